// What the directory and each session take.

#include <set>
#include <unordered_map>

#include "store/directory_store.h"

namespace stet::store {
namespace {

Result<std::uint64_t> size_or_none(Env& env, const std::filesystem::path& path) {
    const Result<FileInfo> info = env.info(path);
    if (info.is_ok()) return info->size_bytes;
    if (info.status().code() == Code::not_found) return std::uint64_t{0};
    return info.status();
}

Result<std::uint64_t> bytes_of_segments(Env& env, const std::filesystem::path& segments) {
    std::uint64_t bytes = 0;
    STET_ASSIGN(const std::vector<std::string> names, env.list(segments));
    for (const std::string& name : names) {
        STET_ASSIGN(const std::uint64_t size, size_or_none(env, segments / name));
        bytes += size;
    }
    return bytes;
}

Result<std::uint64_t> bytes_of_catalogue(Env& env, const std::filesystem::path& store) {
    std::uint64_t bytes = 0;
    for (const char* end : {"", "-wal", "-shm"}) {
        STET_ASSIGN(const std::uint64_t size, size_or_none(env, catalogue_path(store) += end));
        bytes += size;
    }
    return bytes;
}

std::uint64_t record_bytes(std::int64_t payload_bytes) {
    return Place{0, 0, static_cast<std::uint64_t>(payload_bytes), {}}.end();
}

// Calls `take` with each row of `statement`.
template <typename Take>
Status each_row(Statement statement, Take take) {
    while (true) {
        STET_ASSIGN(const bool is_there, statement.step());
        if (!is_there) return {};
        take(statement);
    }
}

// Sessions, turns and records as a graph, to find out whose is what.
struct Graph {
    static constexpr std::int64_t kNobody = 0;
    static constexpr std::int64_t kSeveral = -1;

    std::unordered_map<TurnId, TurnId> parents;
    std::unordered_map<std::string, TurnId> heads;                // by session
    std::unordered_map<TurnId, std::vector<std::int64_t>> lists;  // records of a turn
    std::unordered_map<std::int64_t, std::uint64_t> sizes;        // by record
    std::unordered_map<std::int64_t, std::int64_t> owners;        // record -> number of a session

    Status read(Database& database);
    // Calls `take` with each record of the session once.
    template <typename Take>
    void each_record(TurnId head, Take take) const {
        std::set<std::int64_t> seen;
        std::set<TurnId> way;  // a damaged catalogue may lead in circles
        for (TurnId turn = head; turn != kNoTurn && way.insert(turn).second;) {
            if (const auto list = lists.find(turn); list != lists.end()) {
                for (const std::int64_t record : list->second) {
                    if (seen.insert(record).second) take(record);
                }
            }
            const auto parent = parents.find(turn);
            turn = parent == parents.end() ? kNoTurn : parent->second;
        }
    }
};

Status Graph::read(Database& database) {
    STET_ASSIGN(Statement sessions, database.query("SELECT name, head FROM session"));
    STET_TRY(each_row(std::move(sessions), [this](const Statement& row) {
        heads[std::string(row.text(0))] = row.integer(1);
    }));
    STET_ASSIGN(Statement turns, database.query("SELECT id, parent FROM turn"));
    STET_TRY(each_row(std::move(turns),
                      [this](const Statement& row) { parents[row.integer(0)] = row.integer(1); }));
    STET_ASSIGN(Statement uses, database.query("SELECT turn, record FROM turn_record"));
    STET_TRY(each_row(std::move(uses), [this](const Statement& row) {
        lists[row.integer(0)].push_back(row.integer(1));
    }));
    STET_ASSIGN(Statement records, database.query("SELECT id, size_bytes FROM record"));
    return each_row(std::move(records), [this](const Statement& row) {
        sizes[row.integer(0)] = record_bytes(row.integer(1));
    });
}

}  // namespace

Result<Usage> DirectoryStore::usage() {
    return guarded([&]() -> Result<Usage> {
        Usage usage;
        STET_ASSIGN(usage.segment_bytes, bytes_of_segments(*env_, segments_path(directory_)));
        STET_ASSIGN(usage.catalogue_bytes, bytes_of_catalogue(*env_, directory_));
        Database& database = catalogue_.database();
        STET_ASSIGN(const auto sessions, database.number("SELECT count(*) FROM session"));
        usage.sessions = static_cast<std::uint64_t>(sessions.value_or(0));
        STET_ASSIGN(Statement rows, database.query("SELECT size_bytes FROM record WHERE id IN "
                                                   "(SELECT record FROM turn_record)"));
        STET_TRY(each_row(std::move(rows), [&](const Statement& row) {
            ++usage.records;
            usage.live_bytes += record_bytes(row.integer(0));
        }));
        return usage;
    });
}

Result<std::map<std::string, SessionUsage>> DirectoryStore::session_usage() {
    return guarded([&]() -> Result<std::map<std::string, SessionUsage>> {
        Graph graph;
        STET_TRY(graph.read(catalogue_.database()));
        std::int64_t number = 0;
        for (const auto& [name, head] : graph.heads) {
            ++number;
            graph.each_record(head, [&](std::int64_t record) {
                std::int64_t& owner = graph.owners[record];
                owner = owner == Graph::kNobody ? number : Graph::kSeveral;
            });
        }
        std::map<std::string, SessionUsage> usages;
        for (const auto& [name, head] : graph.heads) {
            SessionUsage& usage = usages[name];
            graph.each_record(head, [&](std::int64_t record) {
                const std::uint64_t bytes = graph.sizes[record];
                const bool is_shared = graph.owners[record] == Graph::kSeveral;
                ++usage.records;
                (is_shared ? usage.shared_bytes : usage.own_bytes) += bytes;
            });
        }
        return usages;
    });
}

// A turn is shared when another session's head is it, or follows it on another branch.
Result<std::uint64_t> DirectoryStore::shared_turns(std::string_view name) {
    return guarded([&]() -> Result<std::uint64_t> {
        STET_ASSIGN(const SessionRow session, require(name));
        STET_ASSIGN(const std::vector<TurnRow> path, catalogue_.path(session.info.head));
        Database& database = catalogue_.database();
        std::uint64_t after = path.size();
        for (auto row = path.rbegin(); row != path.rend(); ++row, --after) {
            STET_ASSIGN(const auto heads,
                        database.number("SELECT count(*) FROM session WHERE head = ?1 AND id <> ?2",
                                        row->turn.id, session.id));
            STET_ASSIGN(
                const auto children,
                database.number("SELECT count(*) FROM turn WHERE parent = ?1", row->turn.id));
            const std::int64_t own_children = row == path.rbegin() ? 0 : 1;
            if (heads.value_or(0) != 0 || children.value_or(0) > own_children) return after;
        }
        return std::uint64_t{0};
    });
}

}  // namespace stet::store
