#include "base/hash.h"

#include <gtest/gtest.h>

#include <unordered_set>

namespace stet {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string sha(std::string_view text) {
    return Sha256().add_bytes(bytes_of(text)).finish().hex();
}

// FIPS 180-2, appendix B.
TEST(Sha256, KnownAnswers) {
    EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AddsIntegersLittleEndianAndStringsWithTheirLength) {
    EXPECT_EQ(Sha256().add(std::uint64_t{0x0102}).finish().hex(),
              sha(std::string_view("\x02\x01\0\0\0\0\0\0", 8)));
    EXPECT_EQ(Sha256().add("ab").finish().hex(), sha(std::string_view("\x02\0\0\0\0\0\0\0ab", 10)));
    // "ab","c" and "a","bc" are different inputs.
    EXPECT_NE(Sha256().add("ab").add("c").finish(), Sha256().add("a").add("bc").finish());
    const Hash256 inner = Sha256().add("x").finish();
    EXPECT_EQ(Sha256().add(inner).finish(),
              Sha256().add_bytes(std::as_bytes(std::span(inner.bytes))).finish());
}

TEST(Sha256, MovesWithItsState) {
    Sha256 first;
    first.add_bytes(bytes_of("ab"));
    Sha256 second = std::move(first);
    EXPECT_EQ(second.add_bytes(bytes_of("c")).finish().hex(), sha("abc"));
}

// The vectors of the XXH3 reference for empty input, and one of our own that pins the byte order.
TEST(Xxh3, KnownAnswers) {
    EXPECT_EQ(xxh3_128({}).hex(), "99aa06d3014798d86001c324468d497f");
    EXPECT_EQ(xxh3_128(bytes_of("abc")).hex(), "06b05ab6733a618578af5f94892f3950");
    EXPECT_NE(xxh3_128(bytes_of("abc")), xxh3_128(bytes_of("abd")));
}

TEST(Digest, HexBothWays) {
    const Hash256 digest = Sha256().add("x").finish();
    EXPECT_EQ(Hash256::from_hex(digest.hex()), digest);
    EXPECT_EQ(Hash256::from_hex(digest.hex().substr(1)), std::nullopt);
    EXPECT_EQ(Hash256::from_hex(digest.hex() + "0"), std::nullopt);
    std::string wrong = digest.hex();
    wrong[5] = 'g';
    EXPECT_EQ(Hash256::from_hex(wrong), std::nullopt);
    wrong[5] = 'A';  // ours are lower case: one spelling a digest
    EXPECT_EQ(Hash256::from_hex(wrong), std::nullopt);
}

TEST(Digest, IsAKey) {
    std::unordered_set<Hash128> set = {xxh3_128(bytes_of("a")), xxh3_128(bytes_of("b"))};
    EXPECT_EQ(set.size(), 2u);
    EXPECT_TRUE(set.contains(xxh3_128(bytes_of("a"))));
}

}  // namespace
}  // namespace stet
