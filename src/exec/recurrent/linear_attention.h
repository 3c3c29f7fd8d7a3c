// Recurrences whose state is one matrix a head: the gated delta rule and lightning attention. No
// ggml here.
//
//   S is [size][size], row = element of v, column = element of k (contiguous); S = 0 at position 0.
//   for each token t of a segment, for each head h:
//     S   = S * decay[t,h]                    each column by its own, or all by one
//     u   = beta[t,h] * (v[t,h] - S k[t,h])   gated delta rule
//     u   = v[t,h]                            lightning attention
//     S   = S + u k[t,h]^T
//     out[t,h] = scale * S q[t,h]
//   Gated DeltaNet: arXiv 2412.06464 (one decay a head); Kimi Delta Attention: arXiv 2510.26692
//   (one a column); lightning attention: arXiv 2401.04658 (a fixed decay a head).
//
// Rows of S don't depend on each other, so threads share heads and rows, and the order of every sum
// depends on `size` alone: the same bits on any number of threads, and however a prompt is cut.
#pragma once

#include <cstdint>
#include <span>

#include "exec/attention.h"

namespace stet::exec {

enum class KeyHeads : std::uint8_t {
    grouped,  // head h reads key head h / (heads / key_heads)
    tiled,    // head h reads key head h % key_heads
};

struct LinearAttentionShape {
    std::uint32_t heads = 0;
    std::uint32_t key_heads = 0;  // of q and k; divides heads
    KeyHeads key_order = KeyHeads::grouped;
    std::uint32_t size = 0;  // of a head of q, k and v
    bool delta_rule = true;  // else lightning attention, and beta is not read
    bool column_decay = false;
    float scale = 1.0F;
    std::uint64_t state_offset_bytes = 0;  // in a block: f32 [heads][size][size]
};

// f32 of the batch's tokens; strides in floats.
struct HeadRows {
    const float* data = nullptr;
    std::uint64_t token_stride = 0;
    std::uint64_t head_stride = 0;
};

struct LinearAttentionInputs {
    HeadRows q, k;   // [tokens][key_heads][size]
    HeadRows v;      // [tokens][heads][size]
    HeadRows decay;  // [tokens][heads][size or 1], in (0, 1]
    HeadRows beta;   // [tokens][heads]
};

struct LinearAttentionCall {
    const LinearAttentionShape* shape = nullptr;
    const LinearAttentionInputs* inputs = nullptr;
    float* out = nullptr;
};

// Thread `thread` of `threads` does its share: its rows of S from each segment's base block to its
// new block, and its part of out, f32 [tokens][heads][size] contiguous.
void linear_attention(const LinearAttentionShape& shape, const LinearAttentionInputs& inputs,
                      std::span<const Segment> segments, float* out, int thread, int threads);

}  // namespace stet::exec
