// How one attention call is split into work items. Depends on the shape, the positions and the
// counts of each segment by itself, never on the number of threads or on the other segments: a
// sequence gets the same bits whatever shares its step.
//
// Lanes: the queries that read the same K/V head. Lane l of a segment is token l / group and head
// kv_head * group + l % group, where group = heads / kv_heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/attention.h"

namespace stet::exec {

// Rows [begin, end).
struct RowRange {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

// What token number `token` of the segment sees.
RowRange visible_rows(const AttentionShape& shape, const Segment& segment, std::uint64_t token);

// A range of lanes and K/V heads against a range of rows. A unit's items cover the same lanes and
// consecutive chunks of rows; the last one to finish merges their sums, in order of the chunks.
struct WorkItem {
    RowRange rows;
    std::uint32_t unit = 0;
    std::uint32_t chunk = 0;
};

struct WorkUnit {
    std::uint32_t segment = 0;
    std::uint32_t lane_begin = 0;
    std::uint32_t lane_count = 0;
    std::uint32_t kv_begin = 0;
    std::uint32_t kv_count = 0;
    std::uint32_t chunk_count = 0;
    bool tiled = false;               // matrix products over pages, else row by row
    std::uint64_t partial_begin = 0;  // floats, where the chunks' sums lie; if chunk_count > 1

    std::uint32_t sums() const { return kv_count * lane_count; }
};

// Floats that hold the results of one chunk: the sums, then the largest scores, then the weights.
// Whole cache lines.
inline std::uint64_t partial_floats(std::uint64_t sums, std::uint64_t sum_stride) {
    return (sums * (sum_stride + 2) + 15) / 16 * 16;
}

struct Plan {
    std::vector<WorkUnit> units;
    std::vector<WorkItem> items;       // in the order in which threads take them
    std::uint64_t partial_floats = 0;  // of all units
    std::uint64_t sums_max = 0;        // of a unit
    std::uint64_t lanes_max = 0;       // of a tiled unit

    // `vector_lanes` is the f32 width of the kernels that will run. Keeps the capacity it has.
    void build(const AttentionShape& shape, std::span<const Segment> segments,
               std::uint32_t vector_lanes);

  private:
    void add_row_unit(const AttentionShape& shape, const Segment& segment, std::uint32_t index,
                      std::uint64_t sum_stride);
    void add_tile_units(const AttentionShape& shape, const Segment& segment, std::uint32_t index,
                        std::uint64_t sum_stride, std::uint32_t vector_lanes);
    void put_equal_rows_together(std::span<const Segment> segments);
    void add_items(WorkUnit unit, RowRange rows, std::uint64_t chunk_rows,
                   std::uint64_t sum_stride);
};

// Elements between two sums: value_size rounded up to whole vectors.
std::uint64_t sum_stride(const AttentionShape& shape, std::uint32_t vector_lanes);

}  // namespace stet::exec
