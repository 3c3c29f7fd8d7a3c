// The dry run: a state file taken apart into where its rows lie. Copies positions and tokens, never
// rows; what it holds is bounded by the file's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "memory/schema.h"
#include "state/import/import.h"
#include "state/import/layout.h"
#include "stet/status.h"

namespace stet::state::llama {

// Rows of one plane, one a cell.
struct RowSource {
    PlaneRef plane;
    const std::byte* rows = nullptr;
    std::uint64_t stride = 0;         // from cell to cell
    std::uint64_t element_bytes = 0;  // transposed when not 0: rows[element][cell]
    std::uint64_t column_stride = 0;  // then: from element to element
};

// Who is in a cell. Sequence files have one sequence; there `first_id` is empty.
struct CellTable {
    std::vector<std::int32_t> positions;
    std::vector<std::uint32_t> first_id;  // into ids, one more than cells
    std::vector<std::int32_t> ids;        // ascending in each cell
    std::vector<Token> tokens;            // of the cells, where the model keeps them; -1: unknown
    std::size_t size() const { return positions.size(); }
    bool has(std::size_t cell, std::int32_t id) const;
};

// The cells of one stream. Unified caches have one stream, others one a sequence.
struct Stream {
    CellTable cells;
    std::vector<RowSource> sources;
};
struct CellPart {
    std::vector<Stream> streams;  // those with cells
};

// Rows of a compressed cache, or a compressor's block: nothing says where, the order does.
struct DirectSource {
    PlaneRef plane;
    const std::byte* data = nullptr;
    std::uint64_t rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint32_t streams = 0;  // one after the other, each rows * row_bytes
};

struct Parsed {
    ImportKind kind = ImportKind::sequence;
    std::vector<Token> tokens;
    Layout layout;
    std::vector<CellPart> parts;  // as layout.cells
    std::optional<Stream> recurrent;
    std::vector<DirectSource> direct;
    bool is_session() const { return kind == ImportKind::session; }
};

// Checks every size and count against the file and the schema, and that every byte has a meaning.
Result<Parsed> parse(std::span<const std::byte> file, const std::string& name,
                     const ImportTarget& target, const memory::Schema& schema);

// The parts; each leaves the reader behind what it read.
struct ParseContext {
    const memory::Schema& schema;
    const ImportTarget& target;
    bool is_session;
    bool prefers_extension;  // of cells, where they can be read with and without
    const memory::Plane& plane(const PlaneRef& ref) const {
        return schema.groups[ref.group].planes[ref.plane];
    }
};
Result<CellPart> parse_cells(Reader& reader, const ParseContext& context, const CellLayout& layout);
Result<Stream> parse_recurrent(Reader& reader, const ParseContext& context,
                               std::span<const RecurrentLayer> layers);
Status parse_dsv4_header(Reader& reader);
Status parse_dsv4(Reader& reader, const ParseContext& context, const Layout& layout,
                  std::vector<DirectSource>& sources);

// The container's tokens, up to the memory.
Result<std::vector<Token>> parse_container(Reader& reader, const ImportTarget& target,
                                           ImportKind& kind);

// Fails unless `found` (a number of ggml's) is the type of `plane`.
Status check_type(const Reader& reader, std::int32_t found, const memory::Plane& plane);

inline constexpr std::uint32_t kSequencesMax = 256;  // of a context

}  // namespace stet::state::llama
