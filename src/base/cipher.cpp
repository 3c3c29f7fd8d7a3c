#include "base/cipher.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/try.h"

namespace stet {
namespace {

constexpr std::uint64_t kKeyFileBytesMax = 4096;
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kPartBytesMax = std::size_t{1} << 30;  // OpenSSL counts by int

struct FreeContext {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

Status refused() {
    return Status(Code::resource_exhausted, "AES-256-GCM of OpenSSL could not be set up");
}

const unsigned char* bytes_of(std::span<const std::byte> data) {
    return reinterpret_cast<const unsigned char*>(data.data());
}

// Either direction, in parts, in place.
bool update(EVP_CIPHER_CTX* context, std::span<std::byte> data) {
    for (std::size_t begin = 0; begin < data.size(); begin += kPartBytesMax) {
        const auto part = data.subspan(begin, std::min(kPartBytesMax, data.size() - begin));
        auto* const at = reinterpret_cast<unsigned char*>(part.data());
        int done = 0;
        if (EVP_CipherUpdate(context, at, &done, at, static_cast<int>(part.size())) != 1) {
            return false;
        }
    }
    return true;
}

Context make_context(const SecretKey& key, const Seal& seal, std::span<const std::byte> associated,
                     bool is_sealing) {
    STET_CHECK(associated.size() < kPartBytesMax);
    Context context(EVP_CIPHER_CTX_new());
    int done = 0;
    if (!context ||
        EVP_CipherInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key.bytes().data(),
                          seal.nonce.data(), is_sealing ? 1 : 0) != 1 ||
        EVP_CipherUpdate(context.get(), nullptr, &done, bytes_of(associated),
                         static_cast<int>(associated.size())) != 1) {
        return nullptr;
    }
    return context;
}

}  // namespace

Status fill_random(std::span<std::uint8_t> bytes) {
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1) return {};
    return Status(Code::unavailable, "the system gives no random bytes");
}

Result<SecretKey> SecretKey::parse(std::string_view digits, std::string_view source) {
    const std::size_t begin = std::min(digits.find_first_not_of(kSpace), digits.size());
    digits.remove_prefix(begin);
    digits = digits.substr(0, digits.find_last_not_of(kSpace) + 1);
    std::optional<Hash256> value = Hash256::from_hex(digits);
    if (!value) {
        return Status(
            Code::invalid_argument,
            fmt::format("{} is no key: expected 64 hexadecimal digits (0-9, a-f), found {} "
                        "characters; make one with 'openssl rand -hex 32'",
                        source, digits.size()));
    }
    SecretKey key;
    key.bytes_ = value->bytes;
    OPENSSL_cleanse(value->bytes.data(), value->bytes.size());
    return key;
}

Result<SecretKey> SecretKey::read(Env& env, const Env::Path& path) {
    STET_ASSIGN(const FileInfo info, env.info(path));
    if ((info.mode & 077U) != 0) {
        return Status(Code::invalid_argument,
                      fmt::format("key file '{}' can be read or changed by others (mode {:03o}): "
                                  "chmod 600 it",
                                  path.string(), info.mode));
    }
    STET_ASSIGN(std::vector<std::byte> text, read_file(env, path, kKeyFileBytesMax));
    Result<SecretKey> key = parse({reinterpret_cast<const char*>(text.data()), text.size()},
                                  fmt::format("key file '{}'", path.string()));
    OPENSSL_cleanse(text.data(), text.size());
    return key;
}

SecretKey::~SecretKey() {
    OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

SecretKey SecretKey::derive(std::string_view purpose, std::span<const std::byte> salt) const {
    std::vector<std::uint8_t> info(purpose.begin(), purpose.end());
    info.push_back(0);
    for (const std::byte byte : salt) info.push_back(std::to_integer<std::uint8_t>(byte));
    info.push_back(1);  // the number of the block: one is all it takes
    SecretKey key;
    unsigned size = 0;
    STET_CHECK(HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()), info.data(),
                    info.size(), key.bytes_.data(), &size) != nullptr);
    STET_CHECK(size == key.bytes_.size());
    return key;
}

Hash256 SecretKey::check() const {
    return Sha256().add("key check").add_bytes(std::as_bytes(std::span(bytes_))).finish();
}

Result<Seal> Cipher::seal(std::span<std::byte> data, std::span<const std::byte> context) const {
    Seal seal;
    STET_TRY(fill_random(seal.nonce));
    const Context cipher = make_context(key_, seal, context, true);
    unsigned char rest[EVP_MAX_BLOCK_LENGTH];
    int rest_bytes = 0;
    if (!cipher || !update(cipher.get(), data) ||
        EVP_CipherFinal_ex(cipher.get(), rest, &rest_bytes) != 1 ||
        EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(seal.tag.size()),
                            seal.tag.data()) != 1) {
        return refused();
    }
    return seal;
}

Status Cipher::open(std::span<std::byte> data, const Seal& seal,
                    std::span<const std::byte> context) const {
    const Context cipher = make_context(key_, seal, context, false);
    Seal expected = seal;
    if (!cipher || !update(cipher.get(), data) ||
        EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG,
                            static_cast<int>(expected.tag.size()), expected.tag.data()) != 1) {
        return refused();
    }
    unsigned char rest[EVP_MAX_BLOCK_LENGTH];
    int rest_bytes = 0;
    if (EVP_CipherFinal_ex(cipher.get(), rest, &rest_bytes) == 1) return {};
    return Status(Code::corruption, "was changed: its seal does not fit");
}

}  // namespace stet
