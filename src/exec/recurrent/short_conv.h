// Causal depthwise convolution over a few tokens, as recurrent mixers have it in front of their
// scan (Mamba, arXiv 2312.00752; gated delta net, arXiv 2412.06464; LFM2, arXiv 2511.23404).
//
//   out[t, c] = bias[c] + sum over k < taps of weight[c, k] * x[t - (taps - 1 - k) * dilation, c]
//
// x before the step's first token comes from the state: `kept()` values of each channel, oldest
// first, [channels][kept]. Zeros before position 0.
#pragma once

#include <cstdint>
#include <span>

#include "exec/recurrent/parts.h"

namespace stet::exec {

inline constexpr std::uint32_t kShortConvTapsMax = 32;
inline constexpr std::uint32_t kShortConvKeptMax = 128;

struct ShortConv {
    std::uint32_t channels = 0;
    std::uint32_t taps = 0;          // 2 .. kShortConvTapsMax
    std::uint32_t dilation = 1;      // tokens from tap to tap; kept() <= kShortConvKeptMax
    const float* weight = nullptr;   // [channels][taps]
    const float* bias = nullptr;     // [channels] or null
    std::uint64_t offset_bytes = 0;  // of this convolution's state in the block

    std::uint32_t kept() const { return (taps - 1) * dilation; }
};

// Computes all tokens of the segments and writes [channels][kept] of each new block. Thread
// `thread` of `threads` does a share of the channels and touches no others. x and out are apart.
void short_conv(const ShortConv& conv, const ConstRows& x, const Rows& out,
                std::span<const Segment> segments, int thread, int threads);

}  // namespace stet::exec
