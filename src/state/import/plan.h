// What a sequence of a parsed file is made of: its tokens, and which cell holds which position.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state/import/import.h"
#include "state/import/parse.h"
#include "stet/status.h"

namespace stet::state::llama {

inline constexpr std::uint32_t kNoCell = ~std::uint32_t{0};

struct CellIndex {
    const Stream* stream = nullptr;    // of the parsed file; null: the sequence has no cells
    std::vector<std::uint32_t> cells;  // by position; kNoCell only where a window doesn't need it
};

struct SequencePlan {
    std::int32_t id = 0;
    std::vector<Token> tokens;
    std::vector<CellIndex> parts;  // as Parsed::parts
    std::size_t recurrent_cell = 0;
    std::uint32_t direct_stream = 0;
};

// Ids of the sequences in the file, ascending. A sequence file has one, whose id is not kept: 0.
std::vector<std::int32_t> sequence_ids(const Parsed& parsed);

// corruption: positions missing, doubled or not those of the tokens. unimplemented: the file
// doesn't carry this sequence's tokens.
Result<SequencePlan> plan_sequence(const Parsed& parsed, std::int32_t id, const std::string& name,
                                   const ImportTarget& target, const memory::Schema& schema,
                                   const KnownTokens& known);

}  // namespace stet::state::llama
