#include "exec/attention_plan.h"

#include <algorithm>
#include <tuple>

namespace stet::exec {
namespace {

using memory::kPageRows;

// A tile shares one conversion of K and V among its lanes; more lanes mean fewer items. A multiple
// of the kernels' panel widths (48, 24, 12).
constexpr std::uint32_t kTileLanesMax = 144;
// Very long heads: keep Q and the sums of a tile in the second-level cache.
constexpr std::uint32_t kTileLanesLong = 96;
constexpr std::uint32_t kLongHead = 512;  // key_size + value_size
// A segment with fewer tiles than this splits its rows too, so that threads find work.
constexpr std::uint64_t kTileItemsWanted = 24;
constexpr std::uint64_t kTileChunkRowsMin = 128;
// K and V elements of a row-by-row item: long enough to hide its fixed cost, short enough that a
// few hundred rows already occupy several threads.
constexpr std::uint64_t kRowItemElements = 65536;
constexpr std::uint64_t kRowChunkPagesMax = 8;

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
    return (a + b - 1) / b;
}
std::uint64_t round_up(std::uint64_t a, std::uint64_t b) {
    return divide_up(a, b) * b;
}

}  // namespace

std::uint64_t sum_stride(const AttentionShape& shape, std::uint32_t vector_lanes) {
    return round_up(shape.value_size, vector_lanes);
}

RowRange visible_rows(const AttentionShape& shape, const Segment& segment, std::uint64_t token) {
    const std::uint64_t position = segment.position + token;
    RowRange rows{segment.first_row, position + 1};
    if (!shape.causal) {
        rows.end = segment.position + segment.token_count;
    }
    if (shape.window != 0 && shape.window_kind == Window::sliding) {
        const std::uint64_t begin = position + 1 > shape.window ? position + 1 - shape.window : 0;
        rows.begin = std::max(rows.begin, begin);
    }
    if (shape.window != 0 && shape.window_kind == Window::chunked) {
        rows.begin = std::max(rows.begin, position / shape.window * shape.window);
    }
    return rows;
}

void Plan::build(const AttentionShape& shape, std::span<const Segment> segments,
                 std::uint32_t vector_lanes) {
    units.clear();
    items.clear();
    partial_floats = 0;
    sums_max = 0;
    lanes_max = 0;
    const std::uint32_t group = shape.heads / shape.kv_heads;
    const std::uint64_t stride = sum_stride(shape, vector_lanes);
    for (std::uint32_t i = 0; i < segments.size(); ++i) {
        if (segments[i].token_count == 0) {
            continue;
        }
        // Tiles put lanes side by side in vectors, so they need about a vector of them.
        const std::uint64_t lanes = std::uint64_t{segments[i].token_count} * group;
        if (lanes * 4 < std::uint64_t{vector_lanes} * 3) {
            add_row_unit(shape, segments[i], i, stride);
        } else {
            add_tile_units(shape, segments[i], i, stride, vector_lanes);
        }
    }
    put_equal_rows_together(segments);
}

// Decode steps of several sequences: first the first rows of all, then the next ones. Where
// sequences share pages these are read from memory once and then found in the cache. Prompts beside
// them come before, in the order in which they were added.
void Plan::put_equal_rows_together(std::span<const Segment> segments) {
    const auto decoding = std::ranges::count(segments, 1U, &Segment::token_count);
    if (decoding < 2) return;
    const auto rank = [&](const WorkItem& item) {
        const WorkUnit& unit = units[item.unit];
        const bool is_prompt = segments[unit.segment].token_count > 1;
        const std::uint64_t first = is_prompt ? item.unit : item.rows.begin;
        const std::uint64_t second = is_prompt ? item.chunk : unit.kv_begin;
        return std::tuple(!is_prompt, first, second, unit.segment);
    };
    std::ranges::sort(items, {}, rank);
}

void Plan::add_row_unit(const AttentionShape& shape, const Segment& segment, std::uint32_t index,
                        std::uint64_t stride) {
    WorkUnit unit;
    unit.segment = index;
    unit.lane_count = segment.token_count * (shape.heads / shape.kv_heads);
    unit.kv_count = shape.kv_heads;
    const std::uint64_t page_elements =
        std::uint64_t{kPageRows} * shape.kv_heads * (shape.key_size + shape.v_head_stride);
    const std::uint64_t pages =
        std::clamp<std::uint64_t>(kRowItemElements / page_elements, 1, kRowChunkPagesMax);
    const RowRange rows{visible_rows(shape, segment, 0).begin,
                        visible_rows(shape, segment, segment.token_count - 1).end};
    add_items(unit, rows, pages * kPageRows, stride);
}

void Plan::add_tile_units(const AttentionShape& shape, const Segment& segment, std::uint32_t index,
                          std::uint64_t stride, std::uint32_t vector_lanes) {
    const std::uint32_t group = shape.heads / shape.kv_heads;
    const std::uint64_t lanes = std::uint64_t{segment.token_count} * group;
    const std::uint32_t lanes_limit =
        shape.key_size + shape.value_size > kLongHead ? kTileLanesLong : kTileLanesMax;
    // A segment a little longer than a tile becomes two of like size.
    std::uint64_t tile_lanes = lanes_limit;
    if (lanes < 2 * std::uint64_t{lanes_limit}) {
        tile_lanes = round_up(divide_up(lanes, divide_up(lanes, lanes_limit)), vector_lanes);
    }
    const std::uint64_t tiles = divide_up(lanes, tile_lanes);
    const RowRange all{visible_rows(shape, segment, 0).begin,
                       visible_rows(shape, segment, segment.token_count - 1).end};
    const std::uint64_t row_count = all.end - all.begin;
    std::uint64_t chunk_rows = round_up(all.end, kPageRows);
    if (tiles * shape.kv_heads < kTileItemsWanted) {
        const std::uint64_t chunks = divide_up(kTileItemsWanted, tiles * shape.kv_heads);
        chunk_rows = std::max(kTileChunkRowsMin, round_up(divide_up(row_count, chunks), kPageRows));
    }
    // Last tiles first: they see the most rows, and short items at the end even out the threads.
    for (std::uint64_t tile = tiles; tile-- > 0;) {
        WorkUnit unit;
        unit.segment = index;
        unit.tiled = true;
        unit.lane_begin = static_cast<std::uint32_t>(tile * tile_lanes);
        unit.lane_count =
            static_cast<std::uint32_t>(std::min(tile_lanes, lanes - tile * tile_lanes));
        unit.kv_count = 1;
        const std::uint32_t last_lane = unit.lane_begin + unit.lane_count - 1;
        const RowRange rows{visible_rows(shape, segment, unit.lane_begin / group).begin,
                            visible_rows(shape, segment, last_lane / group).end};
        lanes_max = std::max<std::uint64_t>(lanes_max, unit.lane_count);
        for (std::uint32_t kv = 0; kv < shape.kv_heads; ++kv) {
            unit.kv_begin = kv;
            add_items(unit, rows, chunk_rows, stride);
        }
    }
}

void Plan::add_items(WorkUnit unit, RowRange rows, std::uint64_t chunk_rows, std::uint64_t stride) {
    // Chunks start at multiples of their length, so that most are whole pages.
    const std::uint64_t first = rows.begin / chunk_rows;
    const std::uint64_t last = (rows.end - 1) / chunk_rows;
    unit.chunk_count = static_cast<std::uint32_t>(last - first + 1);
    unit.partial_begin = partial_floats;
    if (unit.chunk_count > 1) {
        partial_floats += unit.chunk_count * exec::partial_floats(unit.sums(), stride);
    }
    sums_max = std::max<std::uint64_t>(sums_max, unit.sums());
    for (std::uint64_t chunk = first; chunk <= last; ++chunk) {
        WorkItem item;
        item.rows = {std::max(rows.begin, chunk * chunk_rows),
                     std::min(rows.end, (chunk + 1) * chunk_rows)};
        item.unit = static_cast<std::uint32_t>(units.size());
        item.chunk = static_cast<std::uint32_t>(chunk - first);
        items.push_back(item);
    }
    units.push_back(unit);
}

}  // namespace stet::exec
