// Attention with a learned bias by distance (T5, arXiv 1910.10683), and cross-attention:
//
//   out[t,h] = sum_j softmax_j(q[t,h] . K[j,h] + bias[bucket(j - position of t)][h]) V[j,h]
//
// Distances have buckets of their own up to half of them, wider ones up to 128, and the last for
// all further. Rows are in pages or, of one step, plain. A query that sees no row gets zeros.
//
// Sums are made in the order of rows, piece by piece, so that bits depend neither on the number of
// threads nor on what else is in the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/attention.h"
#include "exec/recurrent/parts.h"

namespace stet::exec {

struct RelativeAttention {
    std::uint32_t heads = 0;
    std::uint32_t size = 0;       // of a head of q, k and v
    const float* bias = nullptr;  // [buckets][heads]; null: none
    std::uint32_t buckets = 0;    // an even number
    bool both_ways = false;       // rows after the query have buckets of their own
};

// The queries of one sequence and what they see.
struct RelativeSpan {
    std::uint32_t token_begin = 0;  // columns of q and out
    std::uint32_t token_count = 0;
    std::uint64_t position = 0;   // row number of the first query
    std::uint64_t row_begin = 0;  // rows that all of them see
    std::uint64_t row_end = 0;
    bool causal = false;  // but none after a query's own
    // Rows in pages from row 0 on, each head's after the other's, or (no pages) plain.
    std::byte* const* pages = nullptr;
    PlaneView k_plane, v_plane;
    ConstRows k, v;  // row 0 first
};

// The bucket of a row `distance` rows after the query (before it: negative).
std::uint32_t relative_bucket(std::int64_t distance, std::uint32_t buckets, bool both_ways);

// q, out [tokens][heads][size]. Thread `thread` of `threads` does a share of the queries.
void relative_attention(const RelativeAttention& shape, std::span<const RelativeSpan> spans,
                        const ConstRows& q, const Rows& out, int thread, int threads);

}  // namespace stet::exec
