// Recurrent state: a cell a sequence, then r (and p) of all layers before s of all layers.
#include <fmt/format.h>

#include "base/try.h"
#include "state/import/parse.h"

namespace stet::state::llama {
namespace {

Status read_cell(Reader& reader, bool is_session, std::uint32_t cell, CellTable& cells) {
    STET_ASSIGN(const auto position, reader.read<std::int32_t>("position"));
    if (position < 0) {
        return reader.corrupt("position",
                              fmt::format("recurrent cell {} has position {}", cell, position));
    }
    cells.positions.push_back(position);
    STET_ASSIGN(const auto ids, reader.read<std::uint32_t>("number of sequences"));
    if (!is_session) {
        if (ids == 0) return {};
        return reader.corrupt("number of sequences", fmt::format("{}, expected 0", ids));
    }
    if (ids == 0 || ids > kSequencesMax) {
        return reader.corrupt("number of sequences",
                              fmt::format("recurrent cell {} is in {}", cell, ids));
    }
    cells.first_id.push_back(static_cast<std::uint32_t>(cells.ids.size()));
    for (std::uint32_t i = 0; i < ids; ++i) {
        STET_ASSIGN(const auto id, reader.read<std::int32_t>("sequence id"));
        if (id < 0 || id >= static_cast<std::int32_t>(kSequencesMax) ||
            (i > 0 && id <= cells.ids.back())) {
            return reader.corrupt("sequence id", fmt::format("{} in recurrent cell {}", id, cell));
        }
        cells.ids.push_back(id);
    }
    return {};
}

// One row a cell of r, s or p. A layer without the plane has rows of no bytes.
Status read_rows(Reader& reader, const ParseContext& context, std::int32_t layer,
                 std::string_view name, const std::optional<PlaneRef>& ref, bool has_type,
                 Stream& stream) {
    if (has_type) {
        STET_ASSIGN(const auto type, reader.read<std::int32_t>("recurrent type"));
        if (ref) STET_TRY(check_type(reader, type, context.plane(*ref)));
    }
    STET_ASSIGN(const auto found, reader.read<std::uint64_t>("recurrent row size"));
    const std::uint64_t expected = ref ? context.plane(*ref).row_bytes : 0;
    if (found != expected) {
        return Status(Code::incompatible,
                      fmt::format("{}: layer {}: recurrent rows '{}' of {} bytes, expected {}",
                                  reader.what(), layer, name, found, expected));
    }
    STET_TRY(reader.require(stream.cells.size(), expected, "recurrent rows"));
    STET_ASSIGN(const auto rows,
                reader.read_bytes(stream.cells.size() * expected, "recurrent rows"));
    if (ref) stream.sources.push_back({*ref, rows.data(), expected});
    return {};
}

}  // namespace

Result<Stream> parse_recurrent(Reader& reader, const ParseContext& context,
                               std::span<const RecurrentLayer> layers) {
    STET_ASSIGN(const auto count, reader.read<std::uint32_t>("number of recurrent cells"));
    if (count > (context.is_session ? kSequencesMax : 1)) {
        return reader.corrupt(
            "number of recurrent cells",
            fmt::format("{}, expected at most {}", count, context.is_session ? kSequencesMax : 1));
    }
    Stream stream;
    for (std::uint32_t i = 0; i < count; ++i) {
        STET_TRY(read_cell(reader, context.is_session, i, stream.cells));
    }
    if (context.is_session) {
        stream.cells.first_id.push_back(static_cast<std::uint32_t>(stream.cells.ids.size()));
    }
    STET_ASSIGN(const auto transposed, reader.read<std::uint32_t>("layout of recurrent state"));
    if (transposed != 0) {
        return reader.corrupt("layout of recurrent state",
                              fmt::format("{}, expected 0", transposed));
    }
    STET_ASSIGN(const auto found, reader.read<std::uint32_t>("number of layers"));
    if (context.target.layers != 0 && found != context.target.layers) {
        return Status(Code::incompatible,
                      fmt::format("{}: recurrent state of a model of {} layers, expected {}",
                                  reader.what(), found, context.target.layers));
    }
    for (const RecurrentLayer& layer : layers) {
        STET_TRY(read_rows(reader, context, layer.layer, "r", layer.r, true, stream));
        if (!layer.p) continue;
        STET_TRY(read_rows(reader, context, layer.layer, "p", layer.p, false, stream));
    }
    for (const RecurrentLayer& layer : layers) {
        STET_TRY(read_rows(reader, context, layer.layer, "s", layer.s, true, stream));
    }
    return stream;
}

}  // namespace stet::state::llama
