// The state of a sequence as an immutable value, and the transaction that makes the next one.
//
// A Sequence holds references to pages, never copies of them: copying one is a fork, a checkpoint
// and an undo record at once. A value that somebody holds never changes; rows beyond its counts are
// invisible to it.
//
// Thread rules: values may be copied and read from any thread. An Append belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/page_pool.h"
#include "memory/schema.h"
#include "stet/status.h"

namespace stet::state {

using Token = std::int32_t;

// What one group of the schema holds for a sequence.
struct GroupState {
    // Paged groups: pages[i] holds rows [first_row + i * kPageRows, ...). Rows are counted from the
    // first ever made; those before first_row (a multiple of kPageRows) were dropped by a window.
    std::uint64_t first_row = 0;
    std::uint64_t rows = 0;  // one past the last row
    std::vector<memory::PageRef> pages;
    // Fixed groups: the block after the last token; null before the first.
    memory::PageRef block;
};

// Where a token stands when that is more than its number (M-RoPE: media take a place in time, and a
// row and a column of an image). Text: three times the same.
struct PositionExtension {
    std::int32_t time = 0;
    std::int32_t row = 0;
    std::int32_t column = 0;
    bool operator==(const PositionExtension&) const = default;
};

// State of the sampler that belongs to a value (its generator, what its penalties look at). Opaque
// here; null when nobody gave any.
using SamplerState = std::shared_ptr<const std::vector<std::byte>>;

// What can't be had by cutting rows, kept at an earlier position. Holds references only.
struct Checkpoint {
    std::uint64_t position = 0;
    bool is_asked_for = false;  // at a turn boundary or by a caller: thinned out last
    // By group. Windows: pages up to this position. Fixed: the block. Others: empty.
    std::vector<GroupState> groups;
    SamplerState sampler;
};

struct Sequence {
    std::vector<Token> tokens;                  // history; position() is its length
    std::vector<PositionExtension> extensions;  // one a token, or none at all
    std::vector<GroupState> groups;
    std::vector<std::shared_ptr<const Checkpoint>> checkpoints;  // ascending; see checkpoint.h
    // Both belong to the last token, and a step forgets them. Null when nobody gave any.
    SamplerState sampler;
    std::shared_ptr<const std::vector<float>>
        logits;  // that follow it, one a token of the vocabulary

    std::uint64_t position() const { return tokens.size(); }
    static Sequence empty(const memory::Schema& schema);
};

// Our own invariant of a value: counts, pages, blocks and checkpoints agree with the schema and the
// position.
Status validate(const memory::Schema& schema, const Sequence& sequence);

// One step of one sequence: room for `tokens` more, aside from the live value.
//   begin() -> the step writes the new rows -> commit() gives the next value, to be swapped in.
// Dropping an Append, or failing anywhere before commit(), leaves the base value as it was: the
// step writes only rows beyond every count that refers to them.
class Append {
  public:
    // Claims the free rows of a group's last page, or copies that page when they were claimed by
    // another branch. resource_exhausted when the pool is full. `extensions`: one a token, or none;
    // where the base has some and these don't, the tokens go on as text.
    static Result<Append> begin(memory::PagePool& pool, const Sequence& base,
                                std::span<const Token> tokens,
                                std::span<const PositionExtension> extensions = {});
    ~Append();
    Append(Append&& other) noexcept;
    Append& operator=(Append&& other) noexcept;

    // The value that will result. Its new rows hold nothing yet.
    const Sequence& next() const { return next_; }
    std::uint64_t base_position() const { return base_position_; }
    bool is_paged(std::size_t group) const { return schema_->groups[group].is_paged(); }
    std::uint64_t token_count() const { return next_.position() - base_position_; }

    // First byte of each page of a paged group, as the step's block table needs them. The step
    // writes the rows past the base's count and reads the others.
    std::span<std::byte* const> block_table(std::size_t group) const { return tables_[group]; }
    // Fixed groups: the block before the step (empty at position 0), and the one that it fills.
    std::span<const std::byte> base_block(std::size_t group) const;
    std::span<std::byte> new_block(std::size_t group);

    // Makes the checkpoints that are due, drops pages that windows have left behind, and gives the
    // value up.
    Sequence commit() &&;

  private:
    struct Claim {
        memory::PageRef page;
        std::uint32_t from;
        std::uint32_t to;
    };

    Append() = default;
    Status grow(memory::PagePool& pool, std::size_t group, std::uint64_t rows);
    void unclaim();

    const memory::Schema* schema_ = nullptr;
    Sequence next_;
    std::uint64_t base_position_ = 0;
    std::vector<std::vector<std::byte*>> tables_;  // by group
    std::vector<memory::PageRef> base_blocks_;     // by group
    std::vector<Claim> claims_;
};

}  // namespace stet::state
