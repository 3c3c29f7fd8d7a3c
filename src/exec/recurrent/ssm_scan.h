// Selective scan of state space models: Mamba (arXiv 2312.00752), where each state of a channel
// decays on its own, and Mamba-2 (arXiv 2405.21060), where a head decays as a whole.
//
//   d           = softplus(dt[t, h])                              s is [heads][head_size][states]
//   s[h, i, n]  = s[h, i, n] * exp(d * A) + d * x[t, h, i] * B[t, g, n]
//   y[t, h, i]  = sum over n of s[h, i, n] * C[t, g, n]           g = h / (heads / groups)
//
// A is decay[h, n] or decay[h]. s is zero before position 0.
#pragma once

#include <cstdint>
#include <span>

#include "exec/recurrent/parts.h"

namespace stet::exec {

struct SsmScan {
    std::uint32_t heads = 0;
    std::uint32_t head_size = 0;
    std::uint32_t states = 0;
    std::uint32_t groups = 0;        // of B and C; divides heads
    const float* decay = nullptr;    // negative: [heads][states], or [heads]
    bool decay_by_state = false;     // the former
    std::uint64_t offset_bytes = 0;  // of s in the block
};

struct SsmInputs {
    ConstRows x;   // [heads][head_size]
    ConstRows dt;  // [heads], before softplus
    ConstRows b;   // [groups][states]
    ConstRows c;   // [groups][states]
};

// Computes y of all tokens of the segments and writes s of each new block. Thread `thread` of
// `threads` does a share of the heads and touches no others.
void ssm_scan(const SsmScan& scan, const SsmInputs& in, const Rows& y,
              std::span<const Segment> segments, int thread, int threads);

}  // namespace stet::exec
