// load: every byte proved before the value exists. Design, sections 2 and 4.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

#include "state/checkpoint.h"
#include "store/directory_store.h"

namespace stet::store {
namespace {

constexpr int kReadAgain = 3;

constexpr std::uint64_t kBytesForThread = 8U << 20;  // a thread more for each that many
constexpr std::uint64_t kThreadsMax = 4;

std::string where(const SessionRow& session, std::uint64_t turn_number, const memory::Group& group,
                  const state::Extent& extent) {
    std::string text = fmt::format("session '{}', turn {}, group '{}'", session.info.name,
                                   turn_number, group.name);
    if (group.is_paged()) {
        text += fmt::format(", rows {} to {}", extent.row_begin, extent.row_end);
    }
    return text;
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
    STET_TRY(catalogue_.sealing().require_key());
    if (state::root_id(fingerprint, pool.schema(), id_salt_) != session.root) {
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
    std::vector<Reading> readings;
    for (const TurnRow& row : path) {
        const bool is_last = &row == &path.back();
        for (const state::Extent& extent : state::extents_between(
                 schema, ids, tokens, row.turn.token_begin, row.turn.token_end)) {
            const memory::Group& group = schema.groups[extent.group];
            if (!stage.needs(extent) || (!group.is_paged() && !is_last)) continue;
            const Status found = find_record(row, extent, readings);
            if (!found) return found.with_context(where(session, row.turn.number, group, extent));
        }
    }
    std::uint64_t bytes_read = 0;
    for (const Reading& reading : readings) bytes_read += reading.found.place.size_bytes;
    if (const std::size_t failed = read_all(stage, readings); failed != readings.size()) {
        const Reading& reading = readings[failed];
        return reading.status.with_context(where(
            session, reading.turn_number, schema.groups[reading.extent.group], reading.extent));
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

Status DirectoryStore::find_record(const TurnRow& row, const state::Extent& extent,
                                   std::vector<Reading>& readings) {
    STET_ASSIGN(const std::optional<RecordRow> record, catalogue_.record(extent.key));
    if (!record) {
        if (row.records == keys_checksum({})) {
            return Status(Code::unavailable, "its state was evicted to make room");
        }
        return Status(Code::corruption,
                      fmt::format("the catalogue's row of record {} is missing", extent.key.hex()));
    }
    const Place& place = record->place;
    if (place.size_bytes != extent.size_bytes) {
        return Status(Code::corruption,
                      fmt::format("segment {}, offset {}: record of {} bytes, expected {}",
                                  segment_name(place.segment), place.offset, place.size_bytes,
                                  extent.size_bytes));
    }
    Reading& reading = readings.emplace_back();
    reading.extent = extent;
    reading.turn_number = row.turn.number;
    STET_ASSIGN(reading.found, reader_.find(extent.key, place));
    return {};
}

// Whole pages are read to where they stay, large loads by several threads; parts of pages go
// through a buffer. Answers the first that failed, or their number.
std::size_t DirectoryStore::read_all(state::Stage& stage, std::vector<Reading>& readings) {
    std::uint64_t bytes = 0;
    std::vector<Reading*> whole;
    std::vector<std::byte> buffer;
    for (std::size_t i = 0; i < readings.size(); ++i) {
        Reading& reading = readings[i];
        auto target = stage.place(reading.extent);
        reading.status = target.status();
        if (target && target->empty()) {
            buffer.resize(reading.found.place.size_bytes);
            reading.status = SegmentReader::read(reading.found, buffer);
            if (reading.status) reading.status = stage.put(reading.extent, buffer);
        }
        if (!reading.status) return i;
        if (target->empty()) continue;
        reading.target = *target;
        bytes += target->size();
        whole.push_back(&reading);
    }
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < whole.size(); i = next++) {
            whole[i]->status = SegmentReader::read(whole[i]->found, whole[i]->target);
        }
    };
    {
        std::vector<std::jthread> helpers;
        const std::uint64_t wanted = std::min<std::uint64_t>(
            {bytes / kBytesForThread, std::thread::hardware_concurrency(), kThreadsMax});
        for (std::uint64_t i = 1; i < wanted; ++i) {
            try {
                helpers.emplace_back(work);
            } catch (const std::system_error&) {
                break;  // then fewer threads do it
            }
        }
        work();
    }
    const auto failed =
        std::ranges::find_if(readings, [](const Reading& one) { return !one.status; });
    return static_cast<std::size_t>(failed - readings.begin());
}

}  // namespace stet::store
