// Going back: checkpoints in a value, and the positions that it can be cut to.
//
// Token rows can be cut anywhere. The rows of a window can be cut as far back as they are kept, and
// a fixed block is the state after one position alone; for these a value keeps checkpoints. They
// are references to pages and blocks, so keeping one copies nothing.
//
// Policy, for schemas with fixed or window groups: one every kCheckpointSpacing tokens (made by
// Append::commit(); groups that are fixed need a step that ends there), and one wherever somebody
// asks (every turn boundary). At most checkpoints_max() are kept. What is forgotten first are
// checkpoints that lie close together for their age, so that those that stay are dense near the end
// and sparse far back; those that were asked for outlast the others.
#pragma once

#include <cstdint>

#include "memory/schema.h"
#include "state/sequence.h"
#include "stet/status.h"

namespace stet::state {

inline constexpr std::uint64_t kCheckpointSpacing = 512;  // tokens

// Whether there is a group that can't be cut to any earlier position.
bool needs_checkpoints(const memory::Schema& schema);
// Whether there is a group of which only a step that ends at a position leaves the state there.
bool has_fixed_group(const memory::Schema& schema);
// Tokens that a step from `position` may have so that it ends where a checkpoint is due.
std::uint64_t step_tokens_max(const memory::Schema& schema, std::uint64_t position);
// How many a value keeps: fewer when one of them pins many bytes.
std::size_t checkpoints_max(const memory::Schema& schema);

// Keeps what is needed to come back to the position that `sequence` is at. Does nothing at 0.
void checkpoint(const memory::Schema& schema, Sequence& sequence);

// The longest position <= `position` for which every group has what it needs, in live rows or in a
// checkpoint: all token rows, the window's rows, a fixed block at that position. 0 always is one.
std::uint64_t reachable_position(const memory::Schema& schema, const Sequence& sequence,
                                 std::uint64_t position);

struct Truncated {
    Sequence sequence;  // at the reachable position
    // Tokens [sequence.position(), sequence.position() + recompute_tokens) of the old history have
    // to be fed again to be at the position that was wanted.
    std::uint64_t recompute_tokens = 0;
};
// The value cut to the nearest position at or before `position` that is reachable. Never refuses:
// only a position past the end is an invalid_argument.
Result<Truncated> truncate(const memory::Schema& schema, const Sequence& sequence,
                           std::uint64_t position);
// The value at exactly `position`; unavailable, naming the nearest one, when that isn't reachable.
Result<Sequence> rollback(const memory::Schema& schema, const Sequence& sequence,
                          std::uint64_t position);

// For Append::commit(): the checkpoints that are due between the position before the step and the
// one after it, from a value whose windows have not dropped pages yet.
void make_due_checkpoints(const memory::Schema& schema, std::uint64_t base_position,
                          Sequence& sequence);

}  // namespace stet::state
