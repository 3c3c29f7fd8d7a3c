#include "base/cipher.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace stet {
namespace {

constexpr std::string_view kDigits =
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

SecretKey key_of(std::string_view digits) {
    return *SecretKey::parse(digits, "test");
}
std::vector<std::byte> bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

TEST(Cipher, OpensWhatItSealed) {
    const Cipher cipher(key_of(kDigits));
    const auto context = bytes_of("where it belongs");
    for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 100'000U}) {
        std::vector<std::byte> plain(size);
        for (std::size_t i = 0; i < size; ++i) plain[i] = std::byte(i * 7 & 0xff);
        std::vector<std::byte> data = plain;
        const auto seal = cipher.seal(data, context);
        ASSERT_TRUE(seal.is_ok());
        if (size > 15) {
            EXPECT_NE(data, plain);
        }
        EXPECT_TRUE(cipher.open(data, *seal, context).is_ok());
        EXPECT_EQ(data, plain);
    }
}

TEST(Cipher, TheSameIsNeverSealedTheSame) {
    const Cipher cipher(key_of(kDigits));
    auto a = bytes_of("twice the same text");
    auto b = a;
    const auto seal_a = cipher.seal(a, {});
    const auto seal_b = cipher.seal(b, {});
    ASSERT_TRUE(seal_a.is_ok() && seal_b.is_ok());
    EXPECT_NE(a, b);
    EXPECT_NE(seal_a->nonce, seal_b->nonce);
}

// Any bit of data, nonce, tag or context, and another key.
TEST(Cipher, NothingMayChange) {
    const Cipher cipher(key_of(kDigits));
    const auto context = bytes_of("context");
    auto sealed = bytes_of("some text that is to be kept");
    const auto seal = cipher.seal(sealed, context);
    ASSERT_TRUE(seal.is_ok());
    const auto code = [&](std::vector<std::byte> data, const Seal& with,
                          const std::vector<std::byte>& in,
                          const Cipher& by) { return by.open(data, with, in).code(); };
    EXPECT_EQ(code(sealed, *seal, context, cipher), Code::ok);
    for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
        auto data = sealed;
        data[bit / 8] ^= std::byte(1U << bit % 8);
        EXPECT_EQ(code(data, *seal, context, cipher), Code::corruption);
    }
    for (std::size_t bit = 0; bit < kSealBytes * 8; ++bit) {
        Seal other = *seal;
        const std::size_t at = bit / 8;
        std::uint8_t& byte =
            at < other.nonce.size() ? other.nonce[at] : other.tag[at - other.nonce.size()];
        byte = static_cast<std::uint8_t>(byte ^ 1U << bit % 8);
        EXPECT_EQ(code(sealed, other, context, cipher), Code::corruption);
    }
    EXPECT_EQ(code(sealed, *seal, bytes_of("Context"), cipher), Code::corruption);
    EXPECT_EQ(code(sealed, *seal, {}, cipher), Code::corruption);
    const Cipher other(key_of(kDigits).derive("another", {}));
    EXPECT_EQ(code(sealed, *seal, context, other), Code::corruption);
}

TEST(SecretKeys, AreDerivedByPurposeAndSalt) {
    const SecretKey key = key_of(kDigits);
    const auto salt = bytes_of("salt");
    EXPECT_EQ(key.derive("a", salt).check(), key.derive("a", salt).check());
    EXPECT_NE(key.derive("a", salt).check(), key.derive("b", salt).check());
    EXPECT_NE(key.derive("a", salt).check(), key.derive("a", {}).check());
    EXPECT_NE(key.derive("a", salt).check(), key.check());
    EXPECT_NE(key.derive("as", bytes_of("alt")).check(), key.derive("a", salt).check());
}

// HMAC-SHA256 of "purpose" 0 "salt" 1 under the key, from another implementation.
TEST(SecretKeys, AreThoseOfHkdf) {
    const SecretKey derived = key_of(kDigits).derive("purpose", bytes_of("salt"));
    Hash256 bytes;
    std::ranges::copy(derived.bytes(), bytes.bytes.begin());
    EXPECT_EQ(bytes.hex(), "3d3b3a33eefb38887d3fcc3c4205a37503a2f9975278d86f7a117ae4cc2161b5");
}

TEST(SecretKeys, AreReadFromDigits) {
    EXPECT_TRUE(SecretKey::parse(kDigits, "x").is_ok());
    EXPECT_TRUE(SecretKey::parse(std::string(kDigits) + "\r\n", "x").is_ok());
    EXPECT_TRUE(SecretKey::parse("  " + std::string(kDigits), "x").is_ok());
    for (const std::string& wrong :
         {std::string(), std::string("\n"), std::string(kDigits.substr(1)),
          std::string(kDigits) + "0", "g" + std::string(kDigits.substr(1)),
          std::string(kDigits) + " 0"}) {
        const auto key = SecretKey::parse(wrong, "the key of the test");
        ASSERT_EQ(key.status().code(), Code::invalid_argument) << wrong;
        EXPECT_NE(key.status().message().find("the key of the test"), std::string::npos);
        if (wrong.size() > 8) {
            EXPECT_EQ(key.status().message().find(wrong.substr(1, 8)), std::string::npos)
                << "the message shows the key";
        }
    }
}

TEST(SecretKeys, OfAFileAreForItsOwnerAlone) {
    std::string name = (std::filesystem::temp_directory_path() / "stet-key-XXXXXX").string();
    const int file = mkstemp(name.data());
    ASSERT_GE(file, 0);
    std::ofstream(name) << kDigits << '\n';
    ASSERT_EQ(fchmod(file, 0600), 0);
    const auto key = SecretKey::read(Env::posix(), name);
    ASSERT_TRUE(key.is_ok()) << key.status().to_string();
    EXPECT_EQ(key->check(), key_of(kDigits).check());
    for (const mode_t mode : {0640U, 0604U, 0620U}) {
        ASSERT_EQ(fchmod(file, mode), 0);
        const auto refused = SecretKey::read(Env::posix(), name);
        EXPECT_EQ(refused.status().code(), Code::invalid_argument);
        EXPECT_NE(refused.status().message().find("chmod 600"), std::string::npos);
    }
    std::filesystem::remove(name);
    EXPECT_EQ(SecretKey::read(Env::posix(), name).status().code(), Code::not_found);
}

}  // namespace
}  // namespace stet
