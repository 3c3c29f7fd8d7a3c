// Pooled keys: of every `ratio` tokens the indexer scores one key, a mean of theirs (Qwen4, where
// it is plain) or one weighted for each feature by a softmax over the tokens (GLM 5 Next):
//
//   pooled[f] = sum_i softmax_i(gate[i][f] + bias[i][f]) * key[i][f]     or     mean_i key[i][f]
//
// Keys and gates are read as they are kept, so that a pooled key is the same however a prompt is
// cut.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "exec/attention.h"
#include "exec/recurrent/parts.h"

namespace stet::exec {

struct PooledKeys {
    std::uint32_t size = 0;  // of a key
    std::uint32_t ratio = 1;
    PlaneView key;                  // of each token
    std::optional<PlaneView> gate;  // not there: the mean
    const float* bias = nullptr;    // [ratio][size], with a gate
};

// out [tokens][size]: a row in the column of the token that completes it, zeros in all others. The
// step's own keys and gates must be in the pages. Thread `thread` of `threads` does a share of the
// tokens.
void pool_keys(const PooledKeys& shape, const Rows& out, std::span<const Segment> segments,
               int thread, int threads);

}  // namespace stet::exec
