#include "server/keys.h"

#include <openssl/crypto.h>

#include <algorithm>

namespace stet::server {
namespace {

Hash256 hash_of(std::string_view key) {
    return Sha256().add(key).finish();
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string_view key_in(const Request& request) {
    constexpr std::string_view kBearer = "bearer ";
    const std::string_view authorization = request.header("authorization");
    const std::string_view scheme = authorization.substr(0, kBearer.size());
    const bool is_bearer =
        std::equal(scheme.begin(), scheme.end(), kBearer.begin(), kBearer.end(),
                   [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
    if (is_bearer) return trimmed(authorization.substr(kBearer.size()));
    return request.header("x-api-key");
}

// Who reads the directory of a store shall not learn what can be sent as a key.
std::string tenant_id(const Hash256& key_hash) {
    return Sha256().add("tenant").add(key_hash).finish().hex();
}

}  // namespace

Keys::Keys(std::string_view list) {
    while (!list.empty()) {
        const std::string_view part = list.substr(0, list.find_first_of(",\n"));
        list.remove_prefix(std::min(list.size(), part.size() + 1));
        const std::string_view key = trimmed(part);
        if (!key.empty()) hashes_.push_back(hash_of(key));
    }
}

std::optional<std::string> Keys::tenant_of(const Request& request) const {
    if (is_open()) return "";
    const Hash256 given = hash_of(key_in(request));
    // All are looked at, whichever fits: time says nothing about where a key is.
    const Hash256* found = nullptr;
    for (const Hash256& hash : hashes_) {
        if (CRYPTO_memcmp(hash.bytes.data(), given.bytes.data(), hash.bytes.size()) == 0) {
            found = &hash;
        }
    }
    if (found == nullptr) return std::nullopt;
    return tenant_id(*found);
}

std::vector<std::string> Keys::tenants() const {
    if (is_open()) return {""};
    std::vector<std::string> list;
    for (const Hash256& hash : hashes_) {
        std::string id = tenant_id(hash);
        if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(std::move(id));
    }
    return list;
}

}  // namespace stet::server
