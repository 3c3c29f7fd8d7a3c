// load: every byte proved before the value exists. Design, sections 2 and 4.

#include <fmt/format.h>

#include <algorithm>

#include "state/checkpoint.h"
#include "store/directory_store.h"

namespace stet::store {
namespace {

constexpr int kReadAgain = 3;

std::string describe(const memory::Group& group, const state::Extent& extent) {
    if (!group.is_paged()) return fmt::format("group '{}'", group.name);
    return fmt::format("group '{}', rows {} to {}", group.name, extent.row_begin, extent.row_end);
}

}  // namespace

// Who only reads may look for a record just when the owner moves it, and then finds it elsewhere.
Result<Loaded> DirectoryStore::load(std::string_view name, const Hash256& fingerprint,
                                    memory::PagePool& pool, std::optional<TurnId> turn) {
    return guarded([&]() -> Result<Loaded> {
        Result<Loaded> loaded = load_once(name, fingerprint, pool, turn);
        for (int i = 0; i < kReadAgain && !writer_; ++i) {
            if (loaded.status().code() != Code::corruption) break;
            reader_.forget();
            loaded = load_once(name, fingerprint, pool, turn);
        }
        const Code code = loaded.status().code();
        if (code == Code::corruption || code == Code::unavailable) lacking_.emplace(name);
        if (loaded && writer_) used_.insert_or_assign(std::string(name), stamp());
        return loaded;
    });
}

Result<Loaded> DirectoryStore::load_once(std::string_view name, const Hash256& fingerprint,
                                         memory::PagePool& pool, std::optional<TurnId> turn) {
    STET_ASSIGN(const SessionRow session, require(name));
    const SessionInfo& info = session.info;
    if (fingerprint != info.fingerprint) {
        return Status(
            Code::incompatible,
            fmt::format("session '{}' was made with model '{}', fingerprint {}; this "
                        "one has {}: load it with its own model",
                        name, info.model_name, info.fingerprint.hex(), fingerprint.hex()));
    }
    if (const Hash256 hash = pool.schema().hash(); hash != info.schema_hash) {
        return Status(Code::incompatible,
                      fmt::format("session '{}' has state of schema {}, not {}: use the K/V "
                                  "types that it was made with",
                                  name, info.schema_hash.hex(), hash.hex()));
    }
    if (state::root_id(fingerprint, pool.schema(), options_.tenant) != session.root) {
        return Status(Code::incompatible,
                      fmt::format("session '{}' belongs to another tenant", name));
    }
    STET_ASSIGN(std::vector<TurnRow> path, catalogue_.path(info.head));
    if (turn) {
        const auto is_after = [&](const TurnRow& row) { return row.turn.id > *turn; };
        path.erase(std::ranges::find_if(path, is_after), path.end());
        if (*turn != kNoTurn && (path.empty() || path.back().turn.id != *turn)) {
            return Status(Code::not_found,
                          fmt::format("session '{}' has no turn with id {}", name, *turn));
        }
    }
    return load_checked(session, path, pool);
}

Result<Loaded> DirectoryStore::load_checked(const SessionRow& session,
                                            const std::vector<TurnRow>& path,
                                            memory::PagePool& pool) {
    const memory::Schema& schema = pool.schema();
    std::vector<state::Token> tokens;
    for (const TurnRow& row : path) {
        tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
    }
    state::PrefixIds ids(session.root);
    state::Stage stage(pool, tokens);
    std::vector<std::byte> buffer;
    std::uint64_t bytes_read = 0;
    for (const TurnRow& row : path) {
        const bool is_last = &row == &path.back();
        for (const state::Extent& extent : state::extents_between(
                 schema, ids, tokens, row.turn.token_begin, row.turn.token_end)) {
            const memory::Group& group = schema.groups[extent.group];
            if (!stage.needs(extent) || (!group.is_paged() && !is_last)) continue;
            Status loaded = load_extent(extent, stage, buffer, bytes_read);
            if (loaded.code() == Code::not_found) {
                loaded = row.records == keys_checksum({})
                             ? Status(Code::unavailable, "its state was evicted to make room")
                             : Status(Code::corruption, std::string(loaded.message()));
            }
            if (!loaded) {
                return loaded.with_context(fmt::format("session '{}', turn {}, {}",
                                                       session.info.name, row.turn.number,
                                                       describe(group, extent)));
            }
        }
    }
    Result<state::Sequence> sequence = std::move(stage).finish();
    if (!sequence) {
        return sequence.status().with_context(fmt::format("session '{}'", session.info.name));
    }
    if (path.empty()) return Loaded{std::move(*sequence), Turn(), bytes_read};
    // The end of a turn: whoever goes on from here can come back to it.
    const Turn& last = path.back().turn;
    if (!last.sampler.empty()) {
        sequence->sampler = std::make_shared<const std::vector<std::byte>>(last.sampler);
    }
    state::checkpoint(schema, *sequence);
    return Loaded{std::move(*sequence), last, bytes_read};
}

Status DirectoryStore::load_extent(const state::Extent& extent, state::Stage& stage,
                                   std::vector<std::byte>& buffer, std::uint64_t& bytes_read) {
    STET_ASSIGN(const std::optional<RecordRow> record, catalogue_.record(extent.key));
    if (!record) {
        return Status(Code::not_found,
                      fmt::format("the catalogue's row of record {} is missing", extent.key.hex()));
    }
    const Place& place = record->place;
    if (place.size_bytes != extent.size_bytes) {
        return Status(Code::corruption,
                      fmt::format("segment {}, offset {}: record of {} bytes, expected {}",
                                  segment_name(place.segment), place.offset, place.size_bytes,
                                  extent.size_bytes));
    }
    STET_ASSIGN(const std::span<const std::byte> payload, reader_.read(extent.key, place, buffer));
    bytes_read += buffer.size();
    return stage.put(extent, payload);
}

}  // namespace stet::store
