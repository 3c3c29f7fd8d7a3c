#include "state/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/try.h"

namespace stet::state {

using memory::Group;
using memory::kPageRows;
using memory::Lifetime;
using memory::page_count;
using memory::page_floor;
using memory::Schema;

namespace {

constexpr std::uint64_t kCheckpointsMost = 16;
constexpr std::uint64_t kCheckpointsFewest = 4;
constexpr std::uint64_t kCheckpointBytes = 256U << 20;  // of one value, when more than the fewest
constexpr double kAskedForWeight = 4.0;

// `group` with the rows that exist at `position` only, less the pages before `first_row`.
GroupState cut_rows(const Group& shape, const GroupState& group, std::uint64_t first_row,
                    std::uint64_t position) {
    GroupState cut;
    cut.rows = shape.rows_at(position);
    cut.first_row = first_row;
    const auto begin = group.pages.begin() +
                       static_cast<std::ptrdiff_t>((first_row - group.first_row) / kPageRows);
    const std::uint64_t count = page_count(cut.rows - cut.first_row);
    cut.pages.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    return cut;
}

// The checkpoint of `sequence` at `position`, whose windows must reach back that far and whose
// fixed blocks must be those of that position.
Checkpoint make_checkpoint(const Schema& schema, const Sequence& sequence, std::uint64_t position) {
    Checkpoint made;
    made.position = position;
    made.groups.resize(schema.groups.size());
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& shape = schema.groups[g];
        const GroupState& group = sequence.groups[g];
        if (!shape.is_paged()) made.groups[g].block = group.block;
        if (shape.lifetime == Lifetime::window) {
            made.groups[g] =
                cut_rows(shape, group, page_floor(shape.first_needed_row(position)), position);
        }
    }
    return made;
}

// Which checkpoint a history of this length misses least. The last one always stays.
std::size_t least_useful(const Sequence& sequence) {
    const auto& kept = sequence.checkpoints;
    std::size_t least = 0;
    double least_use = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i + 1 < kept.size(); ++i) {
        const std::uint64_t before = i == 0 ? 0 : kept[i - 1]->position;
        const auto gap = static_cast<double>(kept[i + 1]->position - before);
        const auto age = static_cast<double>(sequence.position() - kept[i]->position);
        const double weight = kept[i]->is_asked_for ? kAskedForWeight : 1.0;
        const double use = weight * gap / (age + static_cast<double>(kCheckpointSpacing));
        if (use < least_use) {
            least_use = use;
            least = i;
        }
    }
    return least;
}

void keep(const Schema& schema, Sequence& sequence, Checkpoint made) {
    auto& kept = sequence.checkpoints;
    if (!kept.empty() && kept.back()->position == made.position) {
        made.is_asked_for = made.is_asked_for || kept.back()->is_asked_for;
        kept.pop_back();
    }
    kept.push_back(std::make_shared<const Checkpoint>(std::move(made)));
    const std::size_t most = checkpoints_max(schema);
    while (kept.size() > most) {
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(least_useful(sequence)));
    }
}

// Whether `group`, as it was at `held`, has the rows that a sequence at `position` needs.
bool has_rows(const Group& shape, const GroupState& group, std::uint64_t held,
              std::uint64_t position) {
    return held >= position && group.first_row <= shape.first_needed_row(position);
}

// What group `g` of the value was at `position`: in the live value, or in a checkpoint. Null when
// it is nowhere.
const GroupState* source_of(const Schema& schema, const Sequence& sequence, std::size_t g,
                            std::uint64_t position) {
    const Group& shape = schema.groups[g];
    if (!shape.is_paged()) {
        if (position == sequence.position()) return &sequence.groups[g];
        for (const auto& kept : sequence.checkpoints) {
            if (kept->position == position) return &kept->groups[g];
        }
        return nullptr;
    }
    if (has_rows(shape, sequence.groups[g], sequence.position(), position)) {
        return &sequence.groups[g];
    }
    for (const auto& kept : sequence.checkpoints) {
        if (has_rows(shape, kept->groups[g], kept->position, position)) return &kept->groups[g];
    }
    return nullptr;
}

bool is_reachable(const Schema& schema, const Sequence& sequence, std::uint64_t position) {
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        if (source_of(schema, sequence, g, position) == nullptr) return false;
    }
    return true;
}

// `position` must be reachable.
Sequence cut_to(const Schema& schema, const Sequence& sequence, std::uint64_t position) {
    if (position == sequence.position()) return sequence;
    if (position == 0) return Sequence::empty(schema);
    const auto length = static_cast<std::ptrdiff_t>(position);
    Sequence cut = Sequence::empty(schema);
    cut.tokens.assign(sequence.tokens.begin(), sequence.tokens.begin() + length);
    if (!sequence.extensions.empty()) {
        cut.extensions.assign(sequence.extensions.begin(), sequence.extensions.begin() + length);
    }
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& shape = schema.groups[g];
        const GroupState& source = *source_of(schema, sequence, g, position);
        if (shape.is_paged()) {
            cut.groups[g] = cut_rows(shape, source, source.first_row, position);
        } else {
            cut.groups[g].block = source.block;
        }
    }
    for (const auto& kept : sequence.checkpoints) {
        if (kept->position > position) break;
        cut.checkpoints.push_back(kept);
        if (kept->position == position) cut.sampler = kept->sampler;
    }
    return cut;
}

}  // namespace

bool has_fixed_group(const Schema& schema) {
    return std::ranges::any_of(schema.groups, [](const Group& g) { return !g.is_paged(); });
}

bool needs_checkpoints(const Schema& schema) {
    return std::ranges::any_of(schema.groups, [](const Group& group) {
        return group.lifetime == Lifetime::fixed || group.lifetime == Lifetime::window;
    });
}

std::uint64_t step_tokens_max(const Schema& schema, std::uint64_t position) {
    if (!has_fixed_group(schema)) return std::numeric_limits<std::uint64_t>::max();
    return kCheckpointSpacing - position % kCheckpointSpacing;
}

std::size_t checkpoints_max(const Schema& schema) {
    std::uint64_t bytes = 1;  // of one checkpoint, if it shared nothing
    for (const Group& group : schema.groups) {
        if (!group.is_paged()) bytes += group.page_bytes();
        if (group.lifetime == Lifetime::window) {
            bytes += group.page_bytes() * (group.parameter / kPageRows + 1);
        }
    }
    return std::clamp(kCheckpointBytes / bytes, kCheckpointsFewest, kCheckpointsMost);
}

void checkpoint(const Schema& schema, Sequence& sequence) {
    if (sequence.position() == 0) return;
    Checkpoint made = make_checkpoint(schema, sequence, sequence.position());
    made.is_asked_for = true;
    made.sampler = sequence.sampler;
    keep(schema, sequence, std::move(made));
}

void make_due_checkpoints(const Schema& schema, std::uint64_t base_position, Sequence& sequence) {
    if (!needs_checkpoints(schema)) return;
    const bool only_at_end = has_fixed_group(schema);
    std::uint64_t due = (base_position / kCheckpointSpacing + 1) * kCheckpointSpacing;
    for (; due <= sequence.position(); due += kCheckpointSpacing) {
        if (only_at_end && due != sequence.position()) continue;
        keep(schema, sequence, make_checkpoint(schema, sequence, due));
    }
}

std::uint64_t reachable_position(const Schema& schema, const Sequence& sequence,
                                 std::uint64_t position) {
    if (position >= sequence.position()) return sequence.position();
    if (is_reachable(schema, sequence, position)) return position;
    // What is between two checkpoints and not reachable has no reachable position before it down to
    // the earlier of them: windows reach back from where they were kept.
    const auto& kept = sequence.checkpoints;
    for (auto at = kept.rbegin(); at != kept.rend(); ++at) {
        const std::uint64_t earlier = (*at)->position;
        if (earlier < position && is_reachable(schema, sequence, earlier)) return earlier;
    }
    return 0;
}

Result<Truncated> truncate(const Schema& schema, const Sequence& sequence, std::uint64_t position) {
    if (position > sequence.position()) {
        return Status(Code::invalid_argument, fmt::format("can't cut a sequence of {} tokens to {}",
                                                          sequence.position(), position));
    }
    const std::uint64_t reached = reachable_position(schema, sequence, position);
    return Truncated{cut_to(schema, sequence, reached), position - reached};
}

Result<Sequence> rollback(const Schema& schema, const Sequence& sequence, std::uint64_t position) {
    STET_ASSIGN(Truncated cut, truncate(schema, sequence, position));
    if (cut.recompute_tokens == 0) return std::move(cut.sequence);
    return Status(Code::unavailable,
                  fmt::format("no state is kept at position {}; the nearest before it is {}: "
                              "truncate and feed {} tokens again",
                              position, cut.sequence.position(), cut.recompute_tokens));
}

}  // namespace stet::state
