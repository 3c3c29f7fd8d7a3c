#include "memory/schema.h"

#include <algorithm>
#include <array>

namespace stet::memory {
namespace {

struct ElementRow {
    std::string_view name;
    std::uint32_t block_elements;
    std::uint32_t block_bytes;
};

// In the order of ElementType.
constexpr std::array kElements = {
    ElementRow{"f32", 1, 4},
    ElementRow{"f16", 1, 2},
    ElementRow{"q8_0", 32, 34},
};

const ElementRow& element_row(ElementType type) {
    return kElements.at(static_cast<std::size_t>(type));
}

}  // namespace

std::string_view element_type_name(ElementType type) {
    return element_row(type).name;
}

bool is_element_type(ElementType type) {
    return static_cast<std::size_t>(type) < kElements.size();
}

std::optional<ElementType> element_type_of(std::string_view name) {
    for (std::size_t i = 0; i < kElements.size(); ++i) {
        if (kElements[i].name == name) return static_cast<ElementType>(i);
    }
    return std::nullopt;
}

std::uint64_t row_bytes(ElementType type, std::uint64_t elements) {
    const ElementRow& row = element_row(type);
    if (elements % row.block_elements != 0) return 0;
    return elements / row.block_elements * row.block_bytes;
}

std::string_view lifetime_name(Lifetime lifetime) {
    constexpr std::array<std::string_view, 4> kNames = {"tokens", "window", "every", "fixed"};
    return kNames.at(static_cast<std::size_t>(lifetime));
}

std::uint64_t Group::row_bytes() const {
    std::uint64_t sum = 0;
    for (const Plane& plane : planes) sum += plane.row_bytes;
    return sum;
}

std::uint64_t Group::page_bytes() const {
    return is_paged() ? row_bytes() * kPageRows : row_bytes();
}

std::uint64_t Group::plane_offset(std::size_t plane) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < plane; ++i) sum += planes[i].row_bytes;
    return is_paged() ? sum * kPageRows : sum;
}

std::uint64_t Group::rows_at(std::uint64_t tokens) const {
    switch (lifetime) {
        case Lifetime::tokens:
        case Lifetime::window:
            return tokens;
        case Lifetime::every:
            return tokens / parameter;
        case Lifetime::fixed:
            return 0;
    }
    return 0;
}

std::uint64_t Group::first_needed_row(std::uint64_t tokens) const {
    // The token at position `tokens` sees itself and the parameter - 1 rows before it.
    if (lifetime != Lifetime::window || tokens < parameter) return 0;
    return tokens - parameter + 1;
}

Hash256 Schema::hash() const {
    Sha256 sha;
    sha.add("stet schema 1").add(groups.size());
    for (const Group& group : groups) {
        sha.add(group.name).add(static_cast<std::uint64_t>(group.lifetime)).add(group.parameter);
        sha.add(group.planes.size());
        for (const Plane& plane : group.planes) {
            sha.add(plane.name).add(static_cast<std::uint64_t>(plane.layer));
            sha.add(static_cast<std::uint64_t>(plane.type))
                .add(plane.elements)
                .add(plane.row_bytes);
        }
    }
    return sha.finish();
}

std::uint64_t Schema::bytes_per_token() const {
    std::uint64_t sum = 0;
    for (const Group& group : groups) {
        if (group.lifetime == Lifetime::tokens) sum += group.row_bytes();
        if (group.lifetime == Lifetime::every) sum += group.row_bytes() / group.parameter;
    }
    return sum;
}

std::uint64_t Schema::bytes_at(std::uint64_t tokens) const {
    if (tokens == 0) return 0;
    std::uint64_t sum = 0;
    for (const Group& group : groups) {
        const std::uint64_t rows = group.rows_at(tokens);
        const std::uint64_t first = std::min(page_floor(group.first_needed_row(tokens)), rows);
        sum += group.page_bytes() * (group.is_paged() ? page_count(rows - first) : 1);
    }
    return sum;
}

}  // namespace stet::memory
