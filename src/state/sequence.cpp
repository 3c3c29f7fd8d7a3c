#include "state/sequence.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/try.h"
#include "state/checkpoint.h"

namespace stet::state {

using memory::Group;
using memory::kPageRows;
using memory::Lifetime;
using memory::page_count;
using memory::page_floor;
using memory::PagePool;
using memory::PageRef;
using memory::Schema;

namespace {

Status broken(const Group& group, std::string why) {
    return Status(Code::internal, fmt::format("sequence value, group '{}': {}", group.name, why));
}

// Forgets the pages that no later token can see.
void drop_left_behind(const Group& shape, std::uint64_t position, GroupState& group) {
    const std::uint64_t needed = page_floor(shape.first_needed_row(position));
    if (needed <= group.first_row) return;
    const std::uint64_t pages = (needed - group.first_row) / kPageRows;
    group.pages.erase(group.pages.begin(),
                      group.pages.begin() + static_cast<std::ptrdiff_t>(pages));
    group.first_row = needed;
}

}  // namespace

Sequence Sequence::empty(const Schema& schema) {
    Sequence sequence;
    sequence.groups.resize(schema.groups.size());
    return sequence;
}

namespace {

Status validate_block(const Group& shape, std::size_t g, const GroupState& group,
                      std::uint64_t position) {
    if (!group.pages.empty() || group.rows != 0) return broken(shape, "fixed, but has rows");
    if (bool(group.block) != (position > 0)) return broken(shape, "block does not match position");
    if (group.block && group.block.group() != g) return broken(shape, "block of another group");
    return {};
}

Status validate_rows(const Group& shape, std::size_t g, const GroupState& group,
                     std::uint64_t position) {
    if (group.block) return broken(shape, "paged, but has a block");
    if (group.rows != shape.rows_at(position)) {
        return broken(shape, fmt::format("{} rows at position {}, expected {}", group.rows,
                                         position, shape.rows_at(position)));
    }
    if (group.first_row % kPageRows != 0 || group.first_row > group.rows ||
        group.pages.size() != page_count(group.rows - group.first_row)) {
        return broken(shape, fmt::format("{} pages from row {} to row {}", group.pages.size(),
                                         group.first_row, group.rows));
    }
    if (group.first_row > shape.first_needed_row(position)) {
        return broken(shape, "rows of the window are missing");
    }
    for (const PageRef& page : group.pages) {
        if (!page || page.group() != g) return broken(shape, "page of another group");
    }
    return {};
}

Status validate_checkpoint(const Schema& schema, const Checkpoint& kept) {
    if (kept.groups.size() != schema.groups.size()) {
        return Status(Code::internal, fmt::format("checkpoint has {} groups, the schema {}",
                                                  kept.groups.size(), schema.groups.size()));
    }
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& shape = schema.groups[g];
        const GroupState& group = kept.groups[g];
        if (!shape.is_paged()) {
            STET_TRY(validate_block(shape, g, group, kept.position));
        } else if (shape.lifetime == Lifetime::window) {
            STET_TRY(validate_rows(shape, g, group, kept.position));
        } else if (group.rows != 0 || !group.pages.empty() || group.block) {
            return broken(shape, "in a checkpoint, but can be cut anywhere");
        }
    }
    return {};
}

}  // namespace

Status validate(const Schema& schema, const Sequence& sequence) {
    if (sequence.groups.size() != schema.groups.size()) {
        return Status(Code::internal, fmt::format("sequence value has {} groups, the schema {}",
                                                  sequence.groups.size(), schema.groups.size()));
    }
    const std::uint64_t position = sequence.position();
    if (!sequence.extensions.empty() && sequence.extensions.size() != position) {
        return Status(Code::internal,
                      fmt::format("sequence value has {} position extensions for {} "
                                  "tokens",
                                  sequence.extensions.size(), position));
    }
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& shape = schema.groups[g];
        STET_TRY(shape.is_paged() ? validate_rows(shape, g, sequence.groups[g], position)
                                  : validate_block(shape, g, sequence.groups[g], position));
    }
    std::uint64_t before = 0;
    for (const auto& kept : sequence.checkpoints) {
        if (kept->position <= before || kept->position > position) {
            return Status(
                Code::internal,
                fmt::format("checkpoint at position {} after one at {}, in a sequence of {}",
                            kept->position, before, position));
        }
        STET_TRY(validate_checkpoint(schema, *kept)
                     .with_context(fmt::format("checkpoint at position {}", kept->position)));
        before = kept->position;
    }
    return {};
}

namespace {

// Places of new tokens behind `sequence`: given, or those of text.
Status extend_positions(Sequence& sequence, std::uint64_t count,
                        std::span<const PositionExtension> given) {
    auto& extensions = sequence.extensions;
    if (given.empty() && extensions.empty()) return {};
    if (!given.empty() && given.size() != count) {
        return Status(Code::invalid_argument,
                      fmt::format("{} position extensions for {} tokens", given.size(), count));
    }
    const auto text = [](std::int64_t at) {
        const auto place = static_cast<std::int32_t>(at);
        return PositionExtension{place, place, place};
    };
    for (std::uint64_t i = extensions.size(); i < sequence.position(); ++i) {
        extensions.push_back(text(static_cast<std::int64_t>(i)));
    }
    if (!given.empty()) {
        extensions.insert(extensions.end(), given.begin(), given.end());
        return {};
    }
    // Text goes on after the greatest place that anything took so far.
    std::int64_t next = 0;
    for (const PositionExtension& at : extensions) {
        next =
            std::max<std::int64_t>(next, std::max({at.time, at.row, at.column}) + std::int64_t{1});
    }
    for (std::uint64_t i = 0; i < count; ++i) extensions.push_back(text(next++));
    return {};
}

}  // namespace

Result<Append> Append::begin(PagePool& pool, const Sequence& base, std::span<const Token> tokens,
                             std::span<const PositionExtension> extensions) {
    const Schema& schema = pool.schema();
    Append append;
    append.schema_ = &schema;
    append.base_position_ = base.position();
    append.next_ = base;
    append.next_.sampler.reset();
    append.next_.logits.reset();
    STET_TRY(extend_positions(append.next_, tokens.size(), extensions));
    append.next_.tokens.insert(append.next_.tokens.end(), tokens.begin(), tokens.end());
    append.tables_.resize(schema.groups.size());
    append.base_blocks_.resize(schema.groups.size());
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& shape = schema.groups[g];
        if (shape.is_paged()) {
            STET_TRY(append.grow(pool, g, shape.rows_at(append.next_.position())));
            continue;
        }
        GroupState& group = append.next_.groups[g];
        append.base_blocks_[g] = std::move(group.block);
        STET_ASSIGN(group.block, pool.allocate_unfilled(g));  // the step fills it whole
    }
    return append;
}

// Makes room for rows up to `rows`: claims what is free in the last page, then adds pages.
Status Append::grow(PagePool& pool, std::size_t g, std::uint64_t rows) {
    GroupState& group = next_.groups[g];
    const auto claim_in_last = [&](std::uint64_t page_first) {
        const auto from = static_cast<std::uint32_t>(std::max(group.rows, page_first) - page_first);
        const auto to =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(rows - page_first, kPageRows));
        if (!group.pages.back().claim(from, to)) return false;
        claims_.push_back({group.pages.back(), from, to});
        return true;
    };
    const auto used = static_cast<std::uint32_t>(group.rows % kPageRows);
    if (rows > group.rows && used != 0) {
        const std::uint64_t page_first = page_floor(group.rows);
        if (!claim_in_last(page_first)) {
            STET_ASSIGN(group.pages.back(), pool.copy(g, group.pages.back(), used));
            STET_CHECK(claim_in_last(page_first));
        }
    }
    while (group.first_row + group.pages.size() * kPageRows < rows) {
        STET_ASSIGN(PageRef page, pool.allocate(g));
        group.pages.push_back(std::move(page));
        STET_CHECK(claim_in_last(group.first_row + (group.pages.size() - 1) * kPageRows));
    }
    group.rows = rows;
    tables_[g].reserve(group.pages.size());
    for (PageRef& page : group.pages) tables_[g].push_back(page.writable_data().data());
    return {};
}

Append::~Append() {
    unclaim();
}

Append::Append(Append&& other) noexcept
    : schema_(other.schema_),
      next_(std::move(other.next_)),
      base_position_(other.base_position_),
      tables_(std::move(other.tables_)),
      base_blocks_(std::move(other.base_blocks_)),
      claims_(std::exchange(other.claims_, {})) {}

Append& Append::operator=(Append&& other) noexcept {
    unclaim();
    schema_ = other.schema_;
    next_ = std::move(other.next_);
    base_position_ = other.base_position_;
    tables_ = std::move(other.tables_);
    base_blocks_ = std::move(other.base_blocks_);
    claims_ = std::exchange(other.claims_, {});
    return *this;
}

void Append::unclaim() {
    for (Claim& claim : claims_) claim.page.unclaim(claim.from, claim.to);
    claims_.clear();
}

std::span<const std::byte> Append::base_block(std::size_t group) const {
    return base_blocks_[group] ? base_blocks_[group].data() : std::span<const std::byte>();
}

std::span<std::byte> Append::new_block(std::size_t group) {
    return next_.groups[group].block.writable_data();
}

Sequence Append::commit() && {
    claims_.clear();
    make_due_checkpoints(*schema_, base_position_, next_);
    for (std::size_t g = 0; g < schema_->groups.size(); ++g) {
        if (schema_->groups[g].is_paged()) {
            drop_left_behind(schema_->groups[g], next_.position(), next_.groups[g]);
        }
    }
    return std::move(next_);
}

}  // namespace stet::state
