// Which rows a query attends to, where it doesn't attend to all that it sees. Rows are chosen in
// blocks of one or more; a query that sees no more blocks than may be chosen has no choice, and
// attends to all. What is scored may also be rows that were made of several tokens each, while
// attention reads the tokens' own rows.
//
// Filled by a RowIndexer while a graph runs, read by the attention that follows, maybe of several
// layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/attention.h"

namespace stet::exec {

struct SelectionShape {
    std::uint32_t choosers = 1;      // 1: one choice for all heads; else one for each K/V head
    std::uint32_t blocks_max = 0;    // chosen
    std::uint32_t block_rows = 1;    // rows of a block; the last one may have fewer
    std::uint32_t local_blocks = 0;  // the last ones, which are chosen first whatever their score
    std::uint32_t ratio = 1;         // row i is made by token ratio * (i + 1) - 1
    // A chosen row stands for the `ratio` tokens that it was made of: attention reads their rows,
    // and those of the tokens after the last row that is seen.
    bool stands_for_tokens = false;
};

class RowSelection {
  public:
    explicit RowSelection(const SelectionShape& shape) : shape_(shape) {}

    const SelectionShape& shape() const { return shape_; }
    // Rows and blocks that the token at `position` sees.
    std::uint64_t visible_rows(std::uint64_t position) const {
        return (position + 1) / shape_.ratio;
    }
    std::uint64_t visible_blocks(std::uint64_t position) const {
        return (visible_rows(position) + shape_.block_rows - 1) / shape_.block_rows;
    }

    // Makes room for a step's choices. One thread, before the step.
    void reset(std::span<const Segment> segments);

    // Tokens of the segment before this one have no choice.
    std::uint32_t first_choice(std::size_t segment) const { return segments_[segment].first; }
    // The blocks that a token with a choice attends to, ascending. Indexers write them.
    std::span<std::uint32_t> blocks(std::size_t segment, std::uint32_t token,
                                    std::uint32_t chooser) {
        return std::span(chosen_).subspan(offset(segment, token, chooser), shape_.blocks_max);
    }
    std::span<const std::uint32_t> blocks(std::size_t segment, std::uint32_t token,
                                          std::uint32_t chooser) const {
        return std::span(chosen_).subspan(offset(segment, token, chooser), shape_.blocks_max);
    }

    struct Choice {
        std::uint32_t segment;
        std::uint32_t token;
    };
    // All tokens that have a choice.
    std::span<const Choice> choices() const { return choices_; }

  private:
    struct Part {
        std::uint32_t first;  // token
        std::size_t begin;    // number of its choice
    };
    std::size_t offset(std::size_t segment, std::uint32_t token, std::uint32_t chooser) const {
        const Part& part = segments_[segment];
        return ((part.begin + (token - part.first)) * shape_.choosers + chooser) *
               shape_.blocks_max;
    }

    SelectionShape shape_;
    std::vector<Part> segments_;
    std::vector<Choice> choices_;
    std::vector<std::uint32_t> chosen_;  // [choices][choosers][blocks_max]
};

}  // namespace stet::exec
