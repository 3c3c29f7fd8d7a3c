#include "state/import/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>

#include "base/try.h"

namespace stet::state::llama {
namespace {

struct Context {
    const Parsed& parsed;
    const std::string& name;
    const ImportTarget& target;
    const memory::Schema& schema;
    const KnownTokens& known;
};

Status contradiction(const Context& c, std::string_view part, std::string why) {
    return Status(Code::corruption, fmt::format("{}: {} cache: {}", c.name, part, why));
}

// First position that a window cache has to hold after `length` tokens.
std::uint64_t first_needed(const Context& c, const CellLayout& layout, std::uint64_t length) {
    std::uint64_t first = length;
    for (const CellLayer& layer : layout.layers) {
        const memory::Group& group = c.schema.groups[layer.k[0].group];
        const std::uint64_t needed = c.target.window_is_chunk
                                         ? length / group.parameter * group.parameter
                                         : group.first_needed_row(length);
        first = std::min(first, needed);
    }
    return first;
}

Status index_cells(const Context& c, std::size_t part, SequencePlan& plan) {
    const CellLayout& layout = c.parsed.layout.cells[part];
    const std::uint64_t length = plan.tokens.size();
    CellIndex index;
    index.cells.assign(length, kNoCell);
    for (const Stream& stream : c.parsed.parts[part].streams) {
        for (std::size_t i = 0; i < stream.cells.size(); ++i) {
            if (!stream.cells.has(i, plan.id)) continue;
            const auto position = static_cast<std::uint64_t>(stream.cells.positions[i]);
            if (position >= length) {
                return contradiction(c, layout.name,
                                     fmt::format("position {}, but {} tokens", position, length));
            }
            if (index.stream != nullptr && index.stream != &stream) {
                return contradiction(c, layout.name,
                                     fmt::format("sequence {} is in two streams", plan.id));
            }
            if (index.cells[position] != kNoCell) {
                return contradiction(c, layout.name,
                                     fmt::format("position {} comes twice", position));
            }
            const Token token = stream.cells.tokens.empty() ? -1 : stream.cells.tokens[i];
            if (token >= 0 && token != plan.tokens[position]) {
                return contradiction(c, layout.name,
                                     fmt::format("token {} at position {}, expected {}", token,
                                                 position, plan.tokens[position]));
            }
            index.stream = &stream;
            index.cells[position] = static_cast<std::uint32_t>(i);
        }
    }
    const std::uint64_t needed = layout.is_window ? first_needed(c, layout, length) : 0;
    const auto missing = std::find(index.cells.begin() + static_cast<std::ptrdiff_t>(needed),
                                   index.cells.end(), kNoCell);
    if (missing != index.cells.end()) {
        return contradiction(
            c, layout.name,
            fmt::format("position {} of {} is missing", missing - index.cells.begin(), length));
    }
    plan.parts.push_back(std::move(index));
    return {};
}

Status find_recurrent(const Context& c, SequencePlan& plan) {
    const CellTable& cells = c.parsed.recurrent->cells;
    bool is_found = false;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (!cells.has(i, plan.id)) continue;
        if (is_found) {
            return contradiction(c, "recurrent",
                                 fmt::format("sequence {} is in two cells", plan.id));
        }
        is_found = true;
        plan.recurrent_cell = i;
        const auto position = static_cast<std::uint64_t>(cells.positions[i]);
        if (position + 1 != plan.tokens.size()) {
            return contradiction(c, "recurrent",
                                 fmt::format("state after position {}, but {} tokens", position,
                                             plan.tokens.size()));
        }
    }
    if (is_found || plan.tokens.empty()) return {};
    return contradiction(c, "recurrent", fmt::format("sequence {} has no state", plan.id));
}

Status check_direct(const Context& c, SequencePlan& plan) {
    plan.direct_stream = c.parsed.is_session() ? static_cast<std::uint32_t>(plan.id) : 0;
    for (const DirectSource& source : c.parsed.direct) {
        const memory::Group& group = c.schema.groups[source.plane.group];
        if (plan.direct_stream >= source.streams) {
            return contradiction(
                c, group.name,
                fmt::format("{} streams, none for sequence {}", source.streams, plan.id));
        }
        const std::uint64_t needed = group.rows_at(plan.tokens.size());
        if (group.is_paged() && source.rows < needed) {
            return contradiction(c, group.name,
                                 fmt::format("{} rows, expected {} for {} tokens", source.rows,
                                             needed, plan.tokens.size()));
        }
    }
    return {};
}

// The tokens of a sequence whose cells are all also in `owner`, whose tokens the file has.
Result<std::vector<Token>> shared_tokens(const Context& c, std::int32_t owner, std::int32_t id) {
    const Status unknown(Code::unimplemented,
                         fmt::format("{}: the session has the tokens of sequence {} only, not of "
                                     "sequence {}",
                                     c.name, owner, id));
    const auto& parts = c.parsed.parts;
    const CellTable* recurrent = c.parsed.recurrent ? &c.parsed.recurrent->cells : nullptr;
    std::uint64_t length = 0;
    const auto add = [&](const CellTable& cells) {
        bool is_shared = true;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (!cells.has(i, id)) continue;
            is_shared = is_shared && cells.has(i, owner);
            length =
                std::max<std::uint64_t>(length, static_cast<std::uint64_t>(cells.positions[i]) + 1);
        }
        return is_shared;
    };
    bool is_shared = true;
    for (const CellPart& part : parts) {
        for (const Stream& stream : part.streams) is_shared = is_shared && add(stream.cells);
    }
    if (recurrent != nullptr) is_shared = is_shared && add(*recurrent);
    if (!is_shared || length > c.parsed.tokens.size()) return unknown;
    return std::vector<Token>(c.parsed.tokens.begin(),
                              c.parsed.tokens.begin() + static_cast<std::ptrdiff_t>(length));
}

Result<std::vector<Token>> tokens_of(const Context& c, std::int32_t id) {
    if (const auto known = c.known.find(id); known != c.known.end()) return known->second;
    if (!c.parsed.is_session()) return c.parsed.tokens;
    const std::int32_t owner = sequence_ids(c.parsed).front();
    return id == owner ? c.parsed.tokens : shared_tokens(c, owner, id);
}

}  // namespace

std::vector<std::int32_t> sequence_ids(const Parsed& parsed) {
    if (!parsed.is_session()) return {0};
    std::bitset<kSequencesMax> seen;
    const auto add = [&](const CellTable& cells) {
        for (const std::int32_t id : cells.ids) seen.set(static_cast<std::size_t>(id));
    };
    for (const CellPart& part : parsed.parts) {
        for (const Stream& stream : part.streams) add(stream.cells);
    }
    if (parsed.recurrent) add(parsed.recurrent->cells);
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        if (seen.test(i)) ids.push_back(static_cast<std::int32_t>(i));
    }
    // Nothing in memory: the session is its tokens.
    if (ids.empty()) ids.push_back(0);
    return ids;
}

Result<SequencePlan> plan_sequence(const Parsed& parsed, std::int32_t id, const std::string& name,
                                   const ImportTarget& target, const memory::Schema& schema,
                                   const KnownTokens& known) {
    const Context context{parsed, name, target, schema, known};
    SequencePlan plan;
    plan.id = id;
    STET_ASSIGN(plan.tokens, tokens_of(context, id));
    for (std::size_t part = 0; part < parsed.parts.size(); ++part) {
        STET_TRY(index_cells(context, part, plan));
    }
    if (parsed.recurrent) STET_TRY(find_recurrent(context, plan));
    STET_TRY(check_direct(context, plan));
    return plan;
}

}  // namespace stet::state::llama
