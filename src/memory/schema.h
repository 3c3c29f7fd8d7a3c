// What a model's memory is made of. A schema is a list of groups; a group is a list of planes; a
// plane is rows of bytes for one layer. An architecture declares its schema, and everything that
// saves, restores, forks, verifies or accounts is written once, over the schema.
//
// A page holds kPageRows rows of every plane of a group, plane after plane, without gaps:
//   page = plane 0 [kPageRows][row_bytes], plane 1 [kPageRows][row_bytes], ...
// A fixed group has no pages: its block is one row of every plane, plane after plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "stet/status.h"

namespace stet::memory {

inline constexpr std::uint32_t kPageRows = 64;

// The first row of the page that `row` is in, and the number of pages for `rows` rows from the
// first row of a page on.
constexpr std::uint64_t page_floor(std::uint64_t row) {
    return row / kPageRows * kPageRows;
}
constexpr std::uint64_t page_count(std::uint64_t rows) {
    return (rows + kPageRows - 1) / kPageRows;
}

enum class ElementType : std::uint8_t { f32 = 0, f16 = 1, q8_0 = 2 };
std::string_view element_type_name(ElementType type);
bool is_element_type(ElementType type);  // for numbers that were read
// By its name; nothing for one that is no type.
std::optional<ElementType> element_type_of(std::string_view name);
// Bytes of a row of `elements`; 0 if the type can't hold that many (q8_0: multiples of 32).
std::uint64_t row_bytes(ElementType type, std::uint64_t elements);

enum class Lifetime : std::uint8_t {
    tokens,  // one row a token, for ever
    window,  // one row a token, only the last `parameter` are needed
    every,   // one row every `parameter` tokens
    fixed,   // one block, replaced as a whole
};
std::string_view lifetime_name(Lifetime lifetime);

struct Plane {
    std::string name;  // "k", "v", "conv", ...
    std::int32_t layer;
    ElementType type;
    std::uint32_t elements;   // a row
    std::uint64_t row_bytes;  // = memory::row_bytes(type, elements)
};

struct Group {
    std::string name;  // "attention", "window", "recurrent", ...
    Lifetime lifetime;
    std::uint32_t parameter = 0;  // window size in tokens, or ratio
    std::vector<Plane> planes;

    bool is_paged() const { return lifetime != Lifetime::fixed; }
    std::uint64_t row_bytes() const;   // of all planes together
    std::uint64_t page_bytes() const;  // row_bytes() * kPageRows; of the block when fixed
    std::uint64_t plane_offset(std::size_t plane) const;  // in a page, or in the block when fixed
    // Rows that exist after `tokens` tokens, counted from the first ever made.
    std::uint64_t rows_at(std::uint64_t tokens) const;
    // First row still needed by token number `tokens` (0 except for windows).
    std::uint64_t first_needed_row(std::uint64_t tokens) const;
};

struct Schema {
    std::vector<Group> groups;

    // Over every field of every group and plane, in order. The K/V types are among them.
    Hash256 hash() const;
    std::uint64_t bytes_per_token() const;  // of the paged groups, rows kept for ever
    // Pages and blocks of one sequence of `tokens` tokens, without checkpoints.
    std::uint64_t bytes_at(std::uint64_t tokens) const;
};

}  // namespace stet::memory
