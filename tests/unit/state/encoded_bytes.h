// Encoded state changed by hand, with checksums that fit again.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/hash.h"
#include "state/encode.h"
#include "unit/state/context_world.h"

namespace stet::state_test {

inline std::uint64_t read_u64(const Bytes& bytes, std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
}

template <typename T>
void write_at(Bytes& bytes, std::size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
}

inline std::size_t manifest_size(const Bytes& bytes) {
    return read_u64(bytes, 24);
}

// Makes the checksums of manifest and header fit again; `size` fields follow the bytes.
inline void seal(Bytes& bytes, std::size_t manifest_bytes) {
    write_at(bytes, 16, std::uint64_t{bytes.size()});
    write_at(bytes, 24, std::uint64_t{manifest_bytes});
    const Hash128 manifest =
        xxh3_128(std::span(bytes).subspan(state::format::kHeaderBytes, manifest_bytes));
    std::memcpy(bytes.data() + 32, manifest.bytes.data(), 16);
    const Hash128 header = xxh3_128(std::span(bytes).first(48));
    std::memcpy(bytes.data() + 48, header.bytes.data(), 16);
}

}  // namespace stet::state_test
