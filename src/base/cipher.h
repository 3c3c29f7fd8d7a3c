// Authenticated encryption of what is kept on disk: AES-256-GCM (NIST SP 800-38D) under keys
// derived from one secret by HKDF-Expand (RFC 5869) with SHA-256.
//
// Thread rules: const calls may come from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/env.h"
#include "base/hash.h"
#include "stet/status.h"

namespace stet {

// 32 random bytes that their owner keeps; wiped when destroyed.
class SecretKey {
  public:
    // 64 hexadecimal digits, as `openssl rand -hex 32` prints them; white space around them is
    // allowed. `source` names them in messages; the key itself is in none.
    static Result<SecretKey> parse(std::string_view digits, std::string_view source);
    // The same from a file, which nobody but its owner may read.
    static Result<SecretKey> read(Env& env, const Env::Path& path);

    SecretKey(const SecretKey&) = default;
    SecretKey& operator=(const SecretKey&) = default;
    ~SecretKey();

    // A key for one purpose and one salt; it tells nothing about the others, nor about this one.
    SecretKey derive(std::string_view purpose, std::span<const std::byte> salt) const;
    std::span<const std::uint8_t> bytes() const { return bytes_; }
    // Something that shows which key it is, and no more.
    Hash256 check() const;

  private:
    SecretKey() = default;
    std::array<std::uint8_t, 32> bytes_{};
};

// What opening needs beside the key.
struct Seal {
    std::array<std::uint8_t, 12> nonce{};
    std::array<std::uint8_t, 16> tag{};
    bool operator==(const Seal&) const = default;
};
inline constexpr std::size_t kSealBytes = sizeof(Seal::nonce) + sizeof(Seal::tag);

class Cipher {
  public:
    explicit Cipher(SecretKey key) : key_(std::move(key)) {}

    // Encrypts `data` where it is, under a random nonce. `context` is not kept: opening needs the
    // same, so that sealed data can't be passed off as other data.
    Result<Seal> seal(std::span<std::byte> data, std::span<const std::byte> context) const;
    // Decrypts `data` where it is. corruption unless all of data, seal and context are as they
    // were; `data` then means nothing.
    Status open(std::span<std::byte> data, const Seal& seal,
                std::span<const std::byte> context) const;

  private:
    SecretKey key_;
};

// Of the system's generator of secrets.
Status fill_random(std::span<std::uint8_t> bytes);

}  // namespace stet
