// Compressed rows (DeepSeek-V4): of every `ratio` tokens one row is made, each feature weighted by
// a softmax over the tokens of scores of its own.
//
//   row[f] = sum_i softmax_i(score[i][f]) * value[i][f]      over the block's `ratio` tokens
//
// With overlap, features come in two halves: a row sees the first half of the tokens of the block
// before and the second half of its own block's, in one softmax.
//
// What later rows need of earlier tokens is kept in a fixed block: values and scores of the token
// at position p in row p % rows of [rows][features] each.
#pragma once

#include <cstdint>
#include <span>

#include "exec/recurrent/parts.h"

namespace stet::exec {

struct Compressor {
    std::uint32_t size = 0;  // of a row
    std::uint32_t ratio = 1;
    bool overlaps = false;
    std::uint64_t values_offset_bytes = 0;  // of the planes in the block
    std::uint64_t scores_offset_bytes = 0;

    std::uint32_t features() const { return overlaps ? 2 * size : size; }
    std::uint32_t rows() const { return overlaps ? 2 * ratio : ratio; }
};

// values, scores: [tokens][features]. out [tokens][size]: a row in the column of the token that
// completes it, zeros in all others. Writes both planes of each new block. Thread `thread` of
// `threads` does a share of the features and touches no others.
void compress(const Compressor& compressor, const ConstRows& values, const ConstRows& scores,
              const Rows& out, std::span<const Segment> segments, int thread, int threads);

}  // namespace stet::exec
