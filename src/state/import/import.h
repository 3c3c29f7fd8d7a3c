// Import of state that llama.cpp wrote: sequence files, session files and the slot files of its
// server (docs/internals/import.md describes the formats).
//
// The whole file is checked before a page is taken: sizes, counts, types, positions, architecture.
// The value is then built aside, so whatever goes wrong, nothing that is alive has changed. The
// files carry no checksum and, but for sessions, not even the name of the model: what can't be seen
// in sizes and positions can't be refused.
//
// Rows are copied as they are, so K and V must have the types of the target's planes. Refused by
// name: rows rotated for quantisation, media chunks, partial states, another K/V type.
//
// Thread rules: free functions; any thread. The pool must outlive the sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "memory/page_pool.h"
#include "memory/schema.h"
#include "state/sequence.h"
#include "stet/status.h"

namespace stet::state {

// The model that the state is for.
struct ImportTarget {
    std::string architecture;      // as the model file names it
    std::uint32_t layers = 0;      // executed; 0: not checked
    std::uint32_t vocabulary = 0;  // token ids are below it; 0: not checked
    // Window groups are chunks: a token sees its own chunk only, so what lies before may be
    // missing.
    bool window_is_chunk = false;
};

enum class ImportKind : std::uint8_t { sequence, session, slot };
std::string_view import_kind_name(ImportKind kind);

// What the dry run found.
struct ImportSummary {
    ImportKind kind = ImportKind::sequence;
    struct Entry {
        std::int32_t id = 0;  // in the context that was saved
        std::uint64_t tokens = 0;
    };
    std::vector<Entry> sequences;  // by id
};

// What can be said of a file without its model.
struct ForeignHead {
    ImportKind kind = ImportKind::sequence;
    std::uint32_t version = 0;
    std::string architecture;  // sessions alone name it
    std::vector<Token> tokens;
    std::uint64_t memory_bytes = 0;  // that follow
};
bool is_llama_state(std::span<const std::byte> file);
Result<ForeignHead> read_llama_head(std::span<const std::byte> file, const std::string& name);

struct ImportedSequence {
    std::int32_t id = 0;
    Sequence sequence;
};
struct Imported {
    ImportKind kind = ImportKind::sequence;
    std::vector<ImportedSequence> sequences;  // by id
};

// A session carries the tokens of one sequence, which is the one with the lowest id. Others are
// known where they share its cells. The caller may know more, by sequence id.
using KnownTokens = std::map<std::int32_t, std::vector<Token>>;

// `name` stands for the file in messages. corruption: cut short, sizes or positions that contradict
// each other. incompatible: made by another model, type or version. unimplemented: valid, but of a
// kind that can't be imported.
Result<ImportSummary> check_llama_state(std::span<const std::byte> file, const std::string& name,
                                        const ImportTarget& target, const memory::Schema& schema,
                                        const KnownTokens& known = {});
// The same check, then the values. resource_exhausted when the pool has no room.
Result<Imported> import_llama_state(std::span<const std::byte> file, const std::string& name,
                                    const ImportTarget& target, memory::PagePool& pool,
                                    const KnownTokens& known = {});

}  // namespace stet::state
