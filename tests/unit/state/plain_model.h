// What the tests of the state share: schemas, and a "model" whose rows are a function of the tokens
// alone, so that what a value holds can be checked row by row without keeping a copy.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "memory/page_pool.h"
#include "state/checkpoint.h"
#include "state/sequence.h"

namespace stet::state_test {

using memory::ElementType;
using memory::Group;
using memory::kPageRows;
using memory::Lifetime;
using memory::PagePool;
using memory::Plane;
using memory::Schema;
using state::Append;
using state::GroupState;
using state::Sequence;
using state::Token;

inline Plane plane(const char* name, std::int32_t layer, std::uint32_t elements) {
    return {name, layer, ElementType::f32, elements, memory::row_bytes(ElementType::f32, elements)};
}

inline Schema all_lifetimes(std::uint32_t window, std::uint32_t ratio) {
    return {{Group{"attention", Lifetime::tokens, 0, {plane("k", 0, 2), plane("v", 0, 1)}},
             Group{"window", Lifetime::window, window, {plane("k", 1, 1), plane("v", 1, 2)}},
             Group{"compressed", Lifetime::every, ratio, {plane("c", 2, 1)}},
             Group{"recurrent", Lifetime::fixed, 0, {plane("r", 3, 1), plane("s", 3, 3)}}}};
}

// One bit a lifetime: 1 tokens, 2 window, 4 every, 8 fixed.
inline Schema some_lifetimes(unsigned lifetimes, std::uint32_t window, std::uint32_t ratio) {
    Schema schema = all_lifetimes(window, ratio);
    for (std::size_t g = schema.groups.size(); g-- > 0;) {
        if ((lifetimes >> g & 1U) == 0) {
            schema.groups.erase(schema.groups.begin() + static_cast<std::ptrdiff_t>(g));
        }
    }
    return schema;
}

// digests[n] stands for the first n tokens.
inline std::vector<std::uint32_t> prefix_digests(const std::vector<Token>& tokens) {
    std::vector<std::uint32_t> digests{2166136261U};
    for (const Token token : tokens) {
        digests.push_back(digests.back() * 16777619U ^ static_cast<std::uint32_t>(token + 1));
    }
    return digests;
}

inline float row_value(std::uint32_t digest, std::size_t group, std::size_t plane_index,
                       std::size_t element) {
    const auto salt = static_cast<std::uint32_t>((group * 31 + plane_index) * 31 + element + 1);
    return static_cast<float>((digest ^ salt) * 2654435761U >> 8);
}

inline std::uint64_t tokens_of_rows(const Group& group, std::uint64_t rows) {
    return group.lifetime == Lifetime::every ? rows * group.parameter : rows;
}

inline void fill_row(std::uint32_t digest, const Group& group, std::size_t g, std::size_t p,
                     std::byte* to) {
    for (std::size_t i = 0; i < group.planes[p].elements; ++i) {
        const float value = row_value(digest, g, p, i);
        std::memcpy(to + i * sizeof(float), &value, sizeof(float));
    }
}

inline bool is_row(std::uint32_t digest, const Group& group, std::size_t g, std::size_t p,
                   const std::byte* row) {
    for (std::size_t i = 0; i < group.planes[p].elements; ++i) {
        const float value = row_value(digest, g, p, i);
        if (std::memcmp(row + i * sizeof(float), &value, sizeof(float)) != 0) return false;
    }
    return true;
}

// Plays the model: writes the new rows of every group.
inline void write_rows(const Schema& schema, Append& append) {
    const Sequence& next = append.next();
    const auto digests = prefix_digests(next.tokens);
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            if (!group.is_paged()) {
                fill_row(digests.back(), group, g, p,
                         append.new_block(g).data() + group.plane_offset(p));
                continue;
            }
            const GroupState& state = next.groups[g];
            for (std::uint64_t row = group.rows_at(append.base_position()); row < state.rows;
                 ++row) {
                std::byte* page = append.block_table(g)[(row - state.first_row) / kPageRows];
                fill_row(
                    digests[tokens_of_rows(group, row + 1)], group, g, p,
                    page + group.plane_offset(p) + row % kPageRows * group.planes[p].row_bytes);
            }
        }
    }
}

// Empty when every row that the next token may look at is right. Checkpoints are not looked into.
inline std::string first_wrong_live_row(const Schema& schema, const Sequence& sequence) {
    const auto digests = prefix_digests(sequence.tokens);
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        const GroupState& state = sequence.groups[g];
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            if (!group.is_paged()) {
                if (sequence.position() == 0) continue;
                if (!is_row(digests.back(), group, g, p,
                            state.block.data().data() + group.plane_offset(p))) {
                    return group.name + " block";
                }
                continue;
            }
            const std::uint64_t first = group.first_needed_row(sequence.position());
            for (std::uint64_t row = first; row < state.rows; ++row) {
                const auto page = state.pages[(row - state.first_row) / kPageRows].data();
                const std::byte* found = page.data() + group.plane_offset(p) +
                                         row % kPageRows * group.planes[p].row_bytes;
                if (!is_row(digests[tokens_of_rows(group, row + 1)], group, g, p, found)) {
                    return group.name + " row " + std::to_string(row);
                }
            }
        }
    }
    return "";
}

// The same, of the value and of what it becomes when rolled back to each of its checkpoints.
inline std::string first_wrong_row(const Schema& schema, const Sequence& sequence) {
    if (const Status status = state::validate(schema, sequence); !status) return status.to_string();
    std::string wrong = first_wrong_live_row(schema, sequence);
    for (const auto& kept : sequence.checkpoints) {
        if (!wrong.empty()) break;
        const auto back = state::rollback(schema, sequence, kept->position);
        if (!back) return back.status().to_string();
        wrong = first_wrong_live_row(schema, *back);
        if (!wrong.empty()) wrong += ", at checkpoint " + std::to_string(kept->position);
    }
    return wrong;
}

inline Sequence extended(PagePool& pool, const Sequence& base, const std::vector<Token>& tokens) {
    Append append = Append::begin(pool, base, tokens).value();
    write_rows(pool.schema(), append);
    return std::move(append).commit();
}

inline std::vector<Token> some_tokens(std::size_t count, Token first = 1) {
    std::vector<Token> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<Token>(i % 97);
    return tokens;
}

}  // namespace stet::state_test
