// Which parts a model's memory has in llama.cpp's state, in the order of the file, and which plane
// of the schema each of their rows is. Follows from the groups of the schema alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "memory/schema.h"
#include "state/import/import.h"
#include "stet/status.h"

namespace stet::state::llama {

struct PlaneRef {
    std::size_t group = 0;
    std::size_t plane = 0;
};

// A row of a cell: K may be several planes side by side (key | gate | pooled).
struct CellLayer {
    std::int32_t layer = 0;
    std::vector<PlaneRef> k;
    std::optional<PlaneRef> v;
};

// A cache of cells: positions, then rows by layer.
struct CellLayout {
    std::string_view name;
    std::vector<CellLayer> layers = {};  // by layer
    bool has_ignored_v = false;          // V rows are there, but nothing reads them
    bool is_window = false;              // only the rows of the window have to be there
    bool is_rotated = false;             // K rows are rotated whatever their type
};

struct RecurrentLayer {
    std::int32_t layer = 0;
    std::optional<PlaneRef> r, s, p;
};

// DeepSeek-V4: rows of a compressed cache, and the state of a compressor.
struct CompressedLayout {
    std::string_view name;
    std::uint32_t ratio = 0;
    std::vector<CellLayer> layers;
};
struct CompressorLayer {
    std::int32_t layer = 0;
    PlaneRef kv, score;
};
struct CompressorLayout {
    std::string_view name;
    std::uint32_t ratio = 0;
    std::vector<CompressorLayer> layers;
};

struct Layout {
    // In order: cells[0 .. recurrent_after), then the recurrent part, then the other cells.
    std::vector<CellLayout> cells;
    std::vector<RecurrentLayer> recurrent;
    std::size_t recurrent_after = 0;
    bool has_recurrent = false;
    // A cache without layers may stand first (models all of whose layers are recurrent) or after
    // the first (models whose window layers are none).
    bool may_begin_empty = false;
    bool may_have_empty_window = false;
    // DeepSeek-V4: after the cells, under a header of its own.
    bool is_dsv4 = false;
    std::vector<CompressedLayout> compressed;
    std::vector<CompressorLayout> compressors;
};

// unimplemented: a group that llama.cpp's state has no part for.
Result<Layout> layout_of(const memory::Schema& schema, const ImportTarget& target);

}  // namespace stet::state::llama
