// What the recurrent kernels share: how threads split the work, and compiling a loop for several
// vector widths.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exec/attention.h"

// A function so marked is compiled for each of these and chosen when the program starts. Everything
// inlined into it comes along. (Sanitizers and the choosing don't go together.)
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STET_VECTOR_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define STET_VECTOR_CLONES
#endif

// For what such a function calls: on its own it would be compiled for the plainest machine.
#define STET_INTO_CLONES inline __attribute__((always_inline))

namespace stet::exec {

// f32 rows [tokens][elements], each `stride` floats after the one before.
struct Rows {
    float* data = nullptr;
    std::uint64_t stride = 0;
    float* row(std::uint64_t token) const { return data + token * stride; }
};
struct ConstRows {
    const float* data = nullptr;
    std::uint64_t stride = 0;
    const float* row(std::uint64_t token) const { return data + token * stride; }
};

// Thread `thread` of `threads` and its contiguous share of `count` things, in units of `unit`.
struct Share {
    std::uint64_t begin;
    std::uint64_t end;
};
inline Share share_of(std::uint64_t count, std::uint64_t unit, int thread, int threads) {
    const std::uint64_t units = (count + unit - 1) / unit;
    const auto part = [&](int i) {
        return std::min(count, units * static_cast<std::uint64_t>(i) /
                                   static_cast<std::uint64_t>(threads) * unit);
    };
    return {part(thread), part(thread + 1)};
}

// The row of a plane in a segment's block before the step, or null for all zeros, and after it.
inline const float* base_row(const Segment& segment, std::uint64_t offset_bytes) {
    return segment.base_block == nullptr
               ? nullptr
               : reinterpret_cast<const float*>(segment.base_block + offset_bytes);
}
inline float* new_row(const Segment& segment, std::uint64_t offset_bytes) {
    return reinterpret_cast<float*>(segment.new_block + offset_bytes);
}

// Floats [begin, end) of `base`, or zeros, into the same place of `row`.
inline void start_from(const float* base, float* row, std::uint64_t begin, std::uint64_t end) {
    if (base == nullptr) {
        std::fill(row + begin, row + end, 0.0F);
    } else {
        std::copy(base + begin, base + end, row + begin);
    }
}

}  // namespace stet::exec
