// The state of a sequence as an immutable value, and the transaction that makes the next one.
//
// A Sequence holds references to pages, never copies of them: copying one is a fork, a checkpoint
// and an undo record at once. A value that somebody holds never changes; rows beyond its counts are
// invisible to it.
//
// Thread rules: values may be copied and read from any thread. An Append belongs to one thread.
#pragma once

#include <cstdint>
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

struct Sequence {
    std::vector<Token> tokens;  // history; position() is its length
    std::vector<GroupState> groups;

    std::uint64_t position() const { return tokens.size(); }
    static Sequence empty(const memory::Schema& schema);
};

// Our own invariant of a value: counts, pages and blocks agree with the schema and the position.
Status validate(const memory::Schema& schema, const Sequence& sequence);

// The longest position <= `position` to which `sequence` can be cut with every group still having
// what it needs: all token rows, the window's rows, a fixed block at that position.
std::uint64_t truncatable_position(const memory::Schema& schema, const Sequence& sequence,
                                   std::uint64_t position);
// The value cut to `position`, which must be one that truncatable_position() answers.
Result<Sequence> truncate(const memory::Schema& schema, const Sequence& sequence,
                          std::uint64_t position);

// One step of one sequence: room for `tokens` more, aside from the live value.
//   begin() -> the step writes the new rows -> commit() gives the next value, to be swapped in.
// Dropping an Append, or failing anywhere before commit(), leaves the base value as it was: the step
// writes only rows beyond every count that refers to them.
class Append {
  public:
    // Claims the free rows of a group's last page, or copies that page when they were claimed by
    // another branch. resource_exhausted when the pool is full.
    static Result<Append> begin(memory::PagePool& pool, const Sequence& base,
                                std::span<const Token> tokens);
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

    // Drops pages that windows have left behind, and gives the value up.
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
