#include "cli/inspect_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/memory_size.h"
#include "base/try.h"
#include "cli/report.h"
#include "cli/schema_report.h"
#include "engine/turn_content.h"
#include "state/encode.h"
#include "state/import/import.h"
#include "state/stream.h"
#include "store/session_file.h"

namespace stet::cli {
namespace {

constexpr std::size_t kTokensShown = 8;

std::string tokens_text(const std::vector<state::Token>& tokens) {
    const std::size_t shown = std::min(tokens.size(), kTokensShown);
    std::string text = fmt::format("{}", fmt::join(tokens.begin(), tokens.begin() + shown, " "));
    if (shown < tokens.size()) text += " ...";
    return text;
}

Json identity_json(const state::Identity& identity) {
    return {{"model_name", identity.model_name},
            {"fingerprint", identity.fingerprint.hex()},
            {"schema_hash", identity.schema_hash.hex()},
            {"k_type", memory::element_type_name(identity.k_type)},
            {"v_type", memory::element_type_name(identity.v_type)}};
}

Json sequences_json(const state::Saved& saved) {
    Json sequences = Json::array();
    for (const auto& entry : saved.entries) {
        Json checkpoints = Json::array();
        for (const auto& kept : entry.sequence.checkpoints) checkpoints.push_back(kept->position);
        sequences.push_back({{"id", entry.id},
                             {"tokens", entry.sequence.tokens},
                             {"checkpoints", std::move(checkpoints)},
                             {"has_sampler", entry.sequence.sampler != nullptr},
                             {"has_logits", entry.sequence.logits != nullptr},
                             {"has_media_positions", !entry.sequence.extensions.empty()}});
    }
    return sequences;
}

Json saved_json(const state::Saved& saved) {
    return {{"model", identity_json(saved.identity)},
            {"groups", groups_json(saved.schema())},
            {"sequences", sequences_json(saved)}};
}

std::string saved_text(const state::Saved& saved) {
    std::string text = fmt::format(
        "model {}, fingerprint {}\nK/V {}/{}, schema {}\n", one_line(saved.identity.model_name),
        saved.identity.fingerprint.hex(), memory::element_type_name(saved.identity.k_type),
        memory::element_type_name(saved.identity.v_type), saved.identity.schema_hash.hex());
    text += groups_text(saved.schema());
    for (const auto& entry : saved.entries) {
        const state::Sequence& sequence = entry.sequence;
        std::vector<std::uint64_t> positions;
        for (const auto& kept : sequence.checkpoints) positions.push_back(kept->position);
        text += fmt::format("\nsequence {}: {} tokens: {}\n", entry.id, sequence.position(),
                            tokens_text(sequence.tokens));
        if (!positions.empty()) {
            text += fmt::format("  checkpoints at {}\n", fmt::join(positions, " "));
        }
        text += fmt::format("  {}, {}\n", sequence.sampler ? "sampler state" : "no sampler",
                            sequence.logits ? "logits" : "no logits");
    }
    return text;
}

Status inspect_sequence(const std::string& path, state::Source& source, bool is_json,
                        Terminal& terminal) {
    auto read = state::decode_standalone(source, half_of_memory());
    if (!read) return read.status().with_context(path);
    const state::Saved& saved = read->saved;
    const bool is_context = saved.kind == state::SavedKind::context;
    Json json = {{"path", path},
                 {"format", is_context ? "stet context" : "stet sequence"},
                 {"intact", true}};
    json.update(saved_json(saved));
    return terminal.print(is_json ? json_line(json)
                                  : fmt::format("{}: {}, intact\n{}", path,
                                                is_context ? "a whole context" : "one sequence",
                                                saved_text(saved)));
}

Status inspect_session(const std::string& path, state::Source& source, bool is_json,
                       Terminal& terminal) {
    auto read = store::read_session(source, half_of_memory());
    if (!read) return read.status().with_context(path);
    const store::SessionFile& file = *read;
    Json turns = Json::array();
    std::string text = fmt::format("{}: session {}, exported{}, intact\n", path,
                                   one_line(file.name), file.is_compressed ? ", compressed" : "");
    text += saved_text(file.state.saved);
    for (const store::Turn& turn : file.turns) {
        turns.push_back({{"number", turn.number},
                         {"token_begin", turn.token_begin},
                         {"token_end", turn.token_end},
                         {"created_ns", turn.created_ns}});
        text += fmt::format("turn {}: tokens {} to {}\n", turn.number, turn.token_begin,
                            turn.token_end);
    }
    Json json = {
        {"path", path},         {"format", "stet session"},         {"intact", true},
        {"session", file.name}, {"compressed", file.is_compressed}, {"turns", std::move(turns)}};
    json.update(saved_json(file.state.saved));
    return terminal.print(is_json ? json_line(json) : text);
}

// Such files carry no checksum, and their memory can't be read without the model.
Status inspect_llama(const std::string& path, const File& file, std::uint64_t size_bytes,
                     bool is_json, Terminal& terminal) {
    std::vector<std::byte> data(size_bytes);
    STET_TRY(file.read_at(0, data));
    STET_ASSIGN(const state::ForeignHead head, state::read_llama_head(data, path));
    const std::string_view kind = state::import_kind_name(head.kind);
    if (is_json) {
        return terminal.print(json_line({{"path", path},
                                         {"format", fmt::format("llama.cpp {}", kind)},
                                         {"version", head.version},
                                         {"architecture", head.architecture},
                                         {"tokens", head.tokens},
                                         {"memory_bytes", head.memory_bytes}}));
    }
    return terminal.print(fmt::format(
        "{}: llama.cpp {} file, version {}{}\n{} tokens: {}\n{} of memory (no checksum; only its "
        "model can tell whether it is whole)\n",
        path, kind, head.version,
        head.architecture.empty() ? "" : fmt::format(", architecture {}", head.architecture),
        head.tokens.size(), tokens_text(head.tokens), format_bytes(head.memory_bytes)));
}

}  // namespace

std::optional<StateFile> state_file_kind(const File& file, std::uint64_t size_bytes) {
    std::array<std::byte, 8> magic{};
    if (size_bytes < magic.size() || !file.read_at(0, magic)) return std::nullopt;
    const auto is = [&](const char(&expected)[8]) {
        return std::memcmp(magic.data(), expected, sizeof(expected)) == 0;
    };
    if (is(state::format::kMagic)) return StateFile::sequence;
    if (is(store::session_file::kMagic)) return StateFile::session;
    if (state::is_llama_state(magic)) return StateFile::llama;
    return std::nullopt;
}

Status inspect_state(const std::string& path, const File& file, std::uint64_t size_bytes,
                     StateFile kind, bool is_json, Terminal& terminal) {
    state::FileSource source(file, size_bytes);
    switch (kind) {
        case StateFile::sequence:
            return inspect_sequence(path, source, is_json, terminal);
        case StateFile::session:
            return inspect_session(path, source, is_json, terminal);
        case StateFile::llama:
            return inspect_llama(path, file, size_bytes, is_json, terminal);
    }
    return {};
}

}  // namespace stet::cli
