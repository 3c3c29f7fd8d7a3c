#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "base/check.h"

namespace stet {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

}  // namespace

template <std::size_t N>
std::string Digest<N>::hex() const {
    std::string text;
    text.reserve(2 * N);
    for (const std::uint8_t byte : bytes) {
        text += kHexDigits[byte >> 4];
        text += kHexDigits[byte & 15];
    }
    return text;
}

template <std::size_t N>
std::optional<Digest<N>> Digest<N>::from_hex(std::string_view hex) {
    if (hex.size() != 2 * N) return std::nullopt;
    Digest digest;
    for (std::size_t i = 0; i < N; ++i) {
        const int high = hex_value(hex[2 * i]);
        const int low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        digest.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return digest;
}

template struct Digest<16>;
template struct Digest<32>;

Hash128 xxh3_128(std::span<const std::byte> data) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.data(), data.size()));
    Hash128 digest;
    static_assert(sizeof(canonical.digest) == sizeof(digest.bytes));
    std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.bytes.begin());
    return digest;
}

struct Sha256::Context {
    EVP_MD_CTX* evp = EVP_MD_CTX_new();
    ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
    STET_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::add_bytes(std::span<const std::byte> data) {
    STET_CHECK(EVP_DigestUpdate(context_->evp, data.data(), data.size()) == 1);
    return *this;
}

Sha256& Sha256::add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    return add_bytes(std::as_bytes(std::span(text)));
}

Sha256& Sha256::add(std::uint64_t value) {
    std::array<std::byte, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(value >> (8 * i) & 0xff);
    return add_bytes(bytes);
}

Sha256& Sha256::add(const Hash256& digest) {
    return add_bytes(std::as_bytes(std::span(digest.bytes)));
}

Hash256 Sha256::finish() {
    Hash256 digest;
    STET_CHECK(EVP_DigestFinal_ex(context_->evp, digest.bytes.data(), nullptr) == 1);
    return digest;
}

}  // namespace stet
