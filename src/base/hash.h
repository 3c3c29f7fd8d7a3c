// Two hashes, two jobs. SHA-256 names content (page ids, fingerprints), so that nobody can make two
// contents share a name. XXH3-128 answers "did it rot" at memory speed.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace stet {

template <std::size_t N>
struct Digest {
    std::array<std::uint8_t, N> bytes{};
    auto operator<=>(const Digest&) const = default;
    std::string hex() const;
    static std::optional<Digest> from_hex(std::string_view hex);
};
using Hash256 = Digest<32>;  // SHA-256
using Hash128 = Digest<16>;  // XXH3-128, canonical (big-endian) byte order

Hash128 xxh3_128(std::span<const std::byte> data);

// Streaming SHA-256. Integers are added little-endian with fixed width, strings with their length
// first, so that two different sequences of add() calls can't produce the same input.
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;

    Sha256& add_bytes(std::span<const std::byte> data);  // raw, no length
    Sha256& add(std::string_view text);                  // u64 length, then bytes
    Sha256& add(std::uint64_t value);
    Sha256& add(const Hash256& digest);
    Hash256 finish();  // once

  private:
    struct Context;
    std::unique_ptr<Context> context_;
};

}  // namespace stet

template <std::size_t N>
struct std::hash<stet::Digest<N>> {  // digests are uniform: their first bytes are a fine hash
    std::size_t operator()(const stet::Digest<N>& digest) const noexcept {
        std::size_t h = 0;
        for (std::size_t i = 0; i < sizeof(h); ++i) h = h << 8 | digest.bytes[i];
        return h;
    }
};
