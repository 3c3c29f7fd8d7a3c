// A cache of cells: who is where, then rows by layer, K of all layers before V of all layers.
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "state/import/parse.h"

namespace stet::state::llama {
namespace {

constexpr Token kNoToken = -1;
constexpr std::uint32_t kRotationMin = 64;
constexpr std::size_t kIdsMax = std::size_t{1} << 31;  // in the cells of a stream

// Whether cells have one depends on the model: x, y and token.
constexpr std::uint64_t kExtensionBytes = 3 * sizeof(std::int32_t);

struct DataHeader {
    std::uint32_t v_transposed, layers, rotation_k, rotation_v;
};

Status read_ids(Reader& reader, bool is_session, std::uint32_t count, std::size_t cell,
                CellTable& cells) {
    if (count == 0 || count > (is_session ? kSequencesMax : 1)) {
        return reader.corrupt("cell",
                              fmt::format("cell {} is said to be in {} sequences", cell, count));
    }
    std::int32_t previous = -1;
    for (std::uint32_t i = 0; i < count; ++i) {
        STET_ASSIGN(const auto id, reader.read<std::int32_t>("sequence id"));
        if (id <= previous || id >= static_cast<std::int32_t>(kSequencesMax)) {
            return reader.corrupt("sequence id",
                                  fmt::format("cell {}: {} after {}", cell, id, previous));
        }
        previous = id;
        if (is_session) cells.ids.push_back(id);
    }
    return {};
}

Status read_extension(Reader& reader, std::int32_t position, std::size_t cell, CellTable& cells) {
    STET_ASSIGN(const auto x, reader.read<std::int32_t>("column of a cell"));
    STET_ASSIGN(const auto y, reader.read<std::int32_t>("row of a cell"));
    STET_ASSIGN(const auto token, reader.read<Token>("token of a cell"));
    const bool is_text = (x == position && y == position) || (x == 0 && y == 0);
    if (!is_text || token < kNoToken) {
        return Status(Code::unimplemented,
                      fmt::format("{}: cell {} at position {} stands at ({}, {}): media can't be "
                                  "imported",
                                  reader.what(), cell, position, x, y));
    }
    cells.tokens.push_back(token);
    return {};
}

Result<CellTable> read_cells(Reader& reader, bool is_session, std::uint32_t count,
                             bool has_extension) {
    constexpr std::uint64_t kCellBytes = 12;  // position, count, one id
    STET_TRY(
        reader.require(count, kCellBytes + (has_extension ? kExtensionBytes : 0), "cell count"));
    CellTable cells;
    cells.positions.reserve(count);
    if (is_session) cells.first_id.reserve(count + std::size_t{1});
    for (std::uint32_t i = 0; i < count; ++i) {
        STET_ASSIGN(const auto position, reader.read<std::int32_t>("position"));
        if (position < 0) {
            return reader.corrupt("position", fmt::format("cell {} has position {}", i, position));
        }
        cells.positions.push_back(position);
        STET_ASSIGN(const auto ids, reader.read<std::uint32_t>("number of sequences"));
        if (has_extension) STET_TRY(read_extension(reader, position, i, cells));
        if (cells.ids.size() > kIdsMax) return reader.corrupt("cells", "too many sequence ids");
        if (is_session) cells.first_id.push_back(static_cast<std::uint32_t>(cells.ids.size()));
        STET_TRY(read_ids(reader, is_session, ids, i, cells));
    }
    if (is_session) cells.first_id.push_back(static_cast<std::uint32_t>(cells.ids.size()));
    return cells;
}

Result<DataHeader> read_data_header(Reader& reader, const CellLayout& layout) {
    DataHeader header{};
    STET_ASSIGN(header.v_transposed, reader.read<std::uint32_t>("V layout"));
    STET_ASSIGN(header.layers, reader.read<std::uint32_t>("number of layers"));
    STET_ASSIGN(header.rotation_k, reader.read<std::uint32_t>("rotation of K"));
    STET_ASSIGN(header.rotation_v, reader.read<std::uint32_t>("rotation of V"));
    if (header.v_transposed > 1) {
        return reader.corrupt("V layout", fmt::format("{}, expected 0 or 1", header.v_transposed));
    }
    if (header.layers != layout.layers.size()) {
        return Status(Code::incompatible,
                      fmt::format("{}: {} cache of {} layers, expected {}", reader.what(),
                                  layout.name, header.layers, layout.layers.size()));
    }
    return header;
}

// How much sense cells make when they are read with or without extensions.
struct Walk {
    int sense =
        0;  // 1: all cells walked, 2: and a V layout behind them, 3: and the layers expected
    std::size_t position = 0;
};
Walk walk_cells(Reader reader, const ParseContext& context, const CellLayout& layout,
                std::uint32_t count, bool has_extension) {
    const auto step = [&]() -> Status {
        STET_TRY(reader.read_bytes(sizeof(std::int32_t), "position").status());
        STET_ASSIGN(const auto ids, reader.read<std::uint32_t>("number of sequences"));
        if (has_extension) STET_TRY(reader.read_bytes(kExtensionBytes, "cell extension").status());
        CellTable ignored;
        return read_ids(reader, context.is_session, ids, 0, ignored);
    };
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!step()) return {0, reader.position()};
    }
    const std::size_t end = reader.position();
    const auto v_transposed = reader.read<std::uint32_t>("V layout");
    if (!v_transposed || *v_transposed > 1) return {1, end};
    const auto layers = reader.read<std::uint32_t>("number of layers");
    return {layers && *layers == layout.layers.size() ? 3 : 2, end};
}

// Cells and the header behind them. The file does not say whether cells have an extension: they are
// read the way that makes more sense. Where both make the same (a token may look like a count of
// layers), the context says which; where neither makes any, it is the way that goes further.
Result<DataHeader> read_meta(Reader& reader, const ParseContext& context, const CellLayout& layout,
                             std::uint32_t count, CellTable& cells) {
    const Walk plain = walk_cells(reader, context, layout, count, false);
    const Walk extended = walk_cells(reader, context, layout, count, true);
    bool has_extension = extended.sense > plain.sense;
    if (extended.sense == plain.sense) {
        has_extension =
            plain.sense == 0 ? extended.position > plain.position : context.prefers_extension;
    }
    STET_ASSIGN(cells, read_cells(reader, context.is_session, count, has_extension));
    return read_data_header(reader, layout);
}

// The greatest power of two from 64 on that divides a head; 0 if none does.
std::uint32_t rotation_of(std::uint32_t head_size) {
    const std::uint32_t power = head_size & (~head_size + 1);
    return power < kRotationMin ? 0 : power;
}

Status check_rotation(const Reader& reader, const ParseContext& context, const CellLayout& layout,
                      const DataHeader& header) {
    const std::uint32_t expected = layout.is_rotated && !layout.layers.empty()
                                       ? rotation_of(context.plane(layout.layers[0].k[0]).elements)
                                       : 0;
    if (header.rotation_k == expected && header.rotation_v == 0) return {};
    return Status(
        Code::unimplemented,
        fmt::format("{}: rows of the {} cache are rotated ({}/{}, expected {}/0), as "
                    "quantised caches are; save with f16 K and V",
                    reader.what(), layout.name, header.rotation_k, header.rotation_v, expected));
}

Status read_k(Reader& reader, const ParseContext& context, const CellLayer& layer, Stream& stream) {
    std::uint64_t row_bytes = 0;
    for (const PlaneRef& ref : layer.k) row_bytes += context.plane(ref).row_bytes;
    STET_ASSIGN(const auto type, reader.read<std::int32_t>("K type"));
    STET_TRY(check_type(reader, type, context.plane(layer.k[0])));
    STET_ASSIGN(const auto found, reader.read<std::uint64_t>("K row size"));
    if (found != row_bytes) {
        return Status(Code::incompatible,
                      fmt::format("{}: layer {}: K rows of {} bytes, expected {}", reader.what(),
                                  layer.layer, found, row_bytes));
    }
    STET_TRY(reader.require(stream.cells.size(), row_bytes, "K rows"));
    STET_ASSIGN(const auto rows, reader.read_bytes(stream.cells.size() * row_bytes, "K rows"));
    const std::byte* column = rows.data();
    for (const PlaneRef& ref : layer.k) {
        stream.sources.push_back({ref, column, row_bytes});
        column += context.plane(ref).row_bytes;
    }
    return {};
}

Status read_v(Reader& reader, const ParseContext& context, const CellLayer& layer, bool transposed,
              Stream& stream) {
    const memory::Plane& plane = context.plane(*layer.v);
    STET_ASSIGN(const auto type, reader.read<std::int32_t>("V type"));
    STET_TRY(check_type(reader, type, plane));
    const std::size_t cells = stream.cells.size();
    std::uint64_t found = 0;
    std::uint64_t element_bytes = 0;
    if (transposed) {
        STET_ASSIGN(const auto element, reader.read<std::uint32_t>("V element size"));
        STET_ASSIGN(const auto elements, reader.read<std::uint32_t>("V elements"));
        if (plane.row_bytes % plane.elements != 0 || element != plane.row_bytes / plane.elements) {
            return Status(Code::incompatible,
                          fmt::format("{}: layer {}: V elements of {} bytes don't make {} rows",
                                      reader.what(), layer.layer, element,
                                      memory::element_type_name(plane.type)));
        }
        element_bytes = element;
        found = std::uint64_t{element} * elements;
    } else {
        STET_ASSIGN(found, reader.read<std::uint64_t>("V row size"));
    }
    if (found != plane.row_bytes) {
        return Status(Code::incompatible,
                      fmt::format("{}: layer {}: V rows of {} bytes, expected {}", reader.what(),
                                  layer.layer, found, plane.row_bytes));
    }
    STET_TRY(reader.require(cells, found, "V rows"));
    STET_ASSIGN(const auto rows, reader.read_bytes(cells * found, "V rows"));
    stream.sources.push_back({*layer.v, rows.data(), transposed ? element_bytes : found,
                              element_bytes, cells * element_bytes});
    return {};
}

// V rows that the model writes but never reads; of a size that only the file knows.
Status skip_v(Reader& reader, bool transposed, std::size_t cells) {
    STET_ASSIGN([[maybe_unused]] const auto type, reader.read<std::int32_t>("V type"));
    std::uint64_t row_bytes = 0;
    if (transposed) {
        STET_ASSIGN(const auto element, reader.read<std::uint32_t>("V element size"));
        STET_ASSIGN(const auto elements, reader.read<std::uint32_t>("V elements"));
        row_bytes = std::uint64_t{element} * elements;
    } else {
        STET_ASSIGN(row_bytes, reader.read<std::uint64_t>("V row size"));
    }
    if (row_bytes == 0) return reader.corrupt("V row size", "0");
    STET_TRY(reader.require(cells, row_bytes, "V rows"));
    return reader.read_bytes(cells * row_bytes, "V rows").status();
}

Result<Stream> read_stream(Reader& reader, const ParseContext& context, const CellLayout& layout,
                           std::uint32_t count) {
    Stream stream;
    STET_ASSIGN(const DataHeader header, read_meta(reader, context, layout, count, stream.cells));
    STET_TRY(check_rotation(reader, context, layout, header));
    for (const CellLayer& layer : layout.layers) STET_TRY(read_k(reader, context, layer, stream));
    for (const CellLayer& layer : layout.layers) {
        if (layer.v) STET_TRY(read_v(reader, context, layer, header.v_transposed == 1, stream));
        if (layout.has_ignored_v) STET_TRY(skip_v(reader, header.v_transposed == 1, count));
    }
    return stream;
}

}  // namespace

bool CellTable::has(std::size_t cell, std::int32_t id) const {
    if (first_id.empty()) return true;
    const auto begin = ids.begin() + first_id[cell];
    return std::binary_search(begin, ids.begin() + first_id[cell + 1], id);
}

Result<CellPart> parse_cells(Reader& reader, const ParseContext& context,
                             const CellLayout& layout) {
    STET_ASSIGN(const auto streams, reader.read<std::uint32_t>("number of streams"));
    if (streams == 0 || streams > kSequencesMax) {
        return reader.corrupt("number of streams",
                              fmt::format("{}, expected 1 to {}", streams, kSequencesMax));
    }
    CellPart part;
    for (std::uint32_t s = 0; s < streams; ++s) {
        STET_ASSIGN(const auto count, reader.read<std::uint32_t>("cell count"));
        if (count == 0) continue;
        if (!context.is_session && !part.streams.empty()) {
            return reader.corrupt("cell count", "a sequence with cells in more than one stream");
        }
        STET_ASSIGN(Stream stream, read_stream(reader, context, layout, count));
        part.streams.push_back(std::move(stream));
    }
    return part;
}

}  // namespace stet::state::llama
