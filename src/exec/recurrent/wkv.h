// The recurrences of RWKV, over a matrix S of [head_size][head_size] for each head.
//
// wkv7, the generalised delta rule (RWKV-7, arXiv 2503.14456); rows of S are value features i:
//   S[i, j] = S[i, j] * w[j] + v[i] * k[j] + (sum over l of S[i, l] * a[l]) * b[j]
//   y[i]    = sum over j of S[i, j] * r[j]
//
// wkv6 (RWKV-6, arXiv 2404.05892); rows of S are key features i:
//   y[j]    = sum over i of r[i] * (S[i, j] + first[i] * k[i] * v[j])
//   S[i, j] = S[i, j] * w[i] + k[i] * v[j]
// Without `first` (gated linear attention, arXiv 2312.06635) y is of the new S, times `scale`.
//
// S is zero before position 0. All inputs are [heads][head_size] a token.
#pragma once

#include <cstdint>
#include <span>

#include "exec/recurrent/parts.h"

namespace stet::exec {

struct Wkv {
    std::uint32_t heads = 0;
    std::uint32_t head_size = 0;
    std::uint64_t offset_bytes = 0;  // of S in the block
};

struct Wkv7Inputs {
    ConstRows r, w, k, v, a, b;
};

struct Wkv6Inputs {
    ConstRows r, w, k, v;
    const float* first = nullptr;  // [heads][head_size] or null
    float scale = 1.0F;
};

// Compute y of all tokens of the segments and write S of each new block. Thread `thread` of
// `threads` does a share of the heads and touches no others.
void wkv7(const Wkv& shape, const Wkv7Inputs& in, const Rows& y, std::span<const Segment> segments,
          int thread, int threads);
void wkv6(const Wkv& shape, const Wkv6Inputs& in, const Rows& y, std::span<const Segment> segments,
          int thread, int threads);

}  // namespace stet::exec
