// What the token before was (RWKV, arXiv 2305.13048): out[t] = x[t - 1]. The state is the last x of
// the sequence; zeros before position 0.
#pragma once

#include <cstdint>
#include <span>

#include "exec/recurrent/parts.h"

namespace stet::exec {

// Rows of `width`; the state is at `offset_bytes` of the block. Thread `thread` of `threads` does
// a share of the features and touches no others. x and out are apart.
void token_shift(std::uint32_t width, std::uint64_t offset_bytes, const ConstRows& x,
                 const Rows& out, std::span<const Segment> segments, int thread, int threads);

}  // namespace stet::exec
