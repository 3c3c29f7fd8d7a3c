// The verbs of `stet session` that keep a store in order, and how sessions are named on the command
// line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/env.h"
#include "base/try.h"
#include "base/units.h"
#include "cli/session_flags.h"
#include "cli/store_access.h"

namespace stet::cli {
namespace {

constexpr std::uint64_t kVerifiedAtOnceBytes = 64U << 20;

// Sessions that are not pinned and were not used for longer than `ttl`.
Result<std::vector<std::string>> expired(store::Store& store, std::chrono::nanoseconds ttl) {
    std::vector<std::string> names;
    if (ttl.count() == 0) return names;
    const auto now =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Env::posix().now().time_since_epoch());
    STET_ASSIGN(const auto sessions, store.list());
    for (const auto& session : sessions) {
        const bool is_old = now.count() - session.used_ns > ttl.count();
        if (is_old && !session.is_pinned) names.push_back(session.name);
    }
    return names;
}

Status predict_garbage(const SessionFlags& flags, Terminal& terminal,
                       std::chrono::nanoseconds ttl) {
    STET_ASSIGN(const auto store, open_store(flags.store, true));
    STET_ASSIGN(const auto names, expired(*store, ttl));
    STET_ASSIGN(const auto usage, store->usage());
    const std::uint64_t garbage =
        usage.segment_bytes - std::min(usage.segment_bytes, usage.live_bytes);
    return answer(flags, terminal,
                  {{"dry_run", true}, {"expired", names}, {"garbage_bytes", garbage}},
                  fmt::format("would remove {} expired sessions{}{}; at most {} of segments are "
                              "garbage already",
                              names.size(), names.empty() ? "" : ": ", fmt::join(names, ", "),
                              format_bytes(garbage)));
}

}  // namespace

Result<std::string> resolve_session(store::Store& store, const std::string& typed) {
    const auto found = store.find(typed);
    if (found.is_ok() || found.status().code() != Code::not_found) {
        // A session whose row is damaged is known by its whole name.
        return typed;
    }
    STET_ASSIGN(const auto sessions, store.list());
    std::vector<std::string> names;
    for (const auto& session : sessions) {
        if (session.name.starts_with(typed)) names.push_back(session.name);
    }
    if (names.size() == 1) return names.front();
    if (names.empty()) return found.status();
    return Status(Code::invalid_argument,
                  fmt::format("'{}' begins the names of {} sessions: {}; give more of it", typed,
                              names.size(), fmt::join(names, ", ")));
}

Status answer(const SessionFlags& flags, Terminal& terminal, const Json& json,
              std::string_view text) {
    return terminal.print(flags.json ? json_line(json) : fmt::format("{}\n", text));
}

Status pin_session(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, false));
    for (const auto& typed : flags.names) {
        STET_ASSIGN(const auto name, resolve_session(*store, typed));
        STET_TRY(store->pin(name, !flags.off));
        STET_TRY(answer(flags, terminal, {{"session", name}, {"pinned", !flags.off}},
                        fmt::format("{} is {}", name, flags.off ? "not pinned" : "pinned")));
    }
    return {};
}

Status show_usage(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, true));
    STET_ASSIGN(const auto usage, store->usage());
    const std::uint64_t garbage =
        usage.segment_bytes - std::min(usage.segment_bytes, usage.live_bytes);
    return answer(flags, terminal,
                  {{"store", store->directory().string()},
                   {"sessions", usage.sessions},
                   {"records", usage.records},
                   {"total_bytes", usage.total_bytes()},
                   {"live_bytes", usage.live_bytes},
                   {"garbage_bytes", garbage},
                   {"catalogue_bytes", usage.catalogue_bytes}},
                  fmt::format("{}: {} in all; state {} in {} records of {} sessions, garbage {}, "
                              "catalogue {}",
                              store->directory().string(), format_bytes(usage.total_bytes()),
                              format_bytes(usage.live_bytes), usage.records, usage.sessions,
                              format_bytes(garbage), format_bytes(usage.catalogue_bytes)));
}

Status collect_garbage(const SessionFlags& flags, Terminal& terminal) {
    std::chrono::nanoseconds ttl{0};
    if (!flags.ttl.empty()) {
        STET_ASSIGN(ttl, parse_duration(flags.ttl));
    }
    if (flags.dry_run) return predict_garbage(flags, terminal, ttl);
    STET_ASSIGN(const auto store,
                open_store(flags.store, false, {.disk = {}, .disk_free = {}, .ttl = flags.ttl}));
    STET_ASSIGN(const auto reclaimed, store->collect_garbage());
    return answer(
        flags, terminal,
        {{"sessions", reclaimed.sessions},
         {"records", reclaimed.records},
         {"segments", reclaimed.segments},
         {"bytes", reclaimed.bytes}},
        fmt::format("removed {} expired sessions, {} records and {} segments: {} are free",
                    reclaimed.sessions, reclaimed.records, reclaimed.segments,
                    format_bytes(reclaimed.bytes)));
}

Status verify_store(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, true));
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> damages;
    std::set<std::string> sessions;
    std::int64_t next = 0;
    do {
        STET_ASSIGN(const auto part, store->verify(next, kVerifiedAtOnceBytes));
        records += part.records;
        bytes += part.bytes;
        damages.insert(damages.end(), part.damages.begin(), part.damages.end());
        sessions.insert(part.sessions.begin(), part.sessions.end());
        next = part.next;
    } while (next != 0);
    std::string text = fmt::format("{} records, {}: {}", records, format_bytes(bytes),
                                   damages.empty() ? "all whole" : "damaged");
    for (const auto& damage : damages) text += fmt::format("\n{}", damage);
    STET_TRY(answer(
        flags, terminal,
        {{"records", records}, {"bytes", bytes}, {"damages", damages}, {"sessions", sessions}},
        text));
    if (damages.empty()) return {};
    return Status(Code::corruption,
                  fmt::format("{} records are damaged; sessions: {}; what they lack is computed "
                              "again at their next turn",
                              damages.size(), fmt::join(sessions, ", ")));
}

}  // namespace stet::cli
