// verify: proves records where they lie, a stretch at a time.

#include <fmt/format.h>

#include <algorithm>

#include "store/directory_store.h"

namespace stet::store {
namespace {

// Sessions that have a turn with this record on their way.
constexpr std::string_view kSessionsOfRecord =
    "WITH RECURSIVE needy (id) AS (SELECT turn FROM turn_record WHERE record = ?1 UNION "
    "SELECT t.id FROM turn t JOIN needy n ON t.parent = n.id) "
    "SELECT name FROM session WHERE head IN (SELECT id FROM needy) ORDER BY name";

}  // namespace

Result<Verified> DirectoryStore::verify(std::int64_t from, std::uint64_t bytes_max) {
    return guarded([&]() -> Result<Verified> {
        Verified verified;
        std::vector<std::byte> buffer;
        Database& database = catalogue_.database();
        STET_ASSIGN(Statement row,
                    database.query("SELECT id, key, segment, offset, size_bytes, checksum "
                                   "FROM record WHERE id >= ?1 ORDER BY id",
                                   from));
        while (true) {
            STET_ASSIGN(const bool is_there, row.step());
            if (!is_there) return verified;
            const std::int64_t id = row.integer(0);
            if (verified.records != 0 && verified.bytes >= bytes_max) {
                verified.next = id;
                return verified;
            }
            Place place{static_cast<std::uint64_t>(row.integer(2)),
                        static_cast<std::uint64_t>(row.integer(3)),
                        static_cast<std::uint64_t>(row.integer(4)),
                        {}};
            STET_ASSIGN(const Hash256 key, row.digest<32>(1));
            STET_ASSIGN(place.checksum, row.digest<16>(5));
            const Status read = reader_.read(key, place, buffer).status();
            ++verified.records;
            // A damaged one counts as well, else a run of them would be one endless stretch.
            verified.bytes += read ? buffer.size() : kRecordHeaderBytes;
            if (read) continue;
            if (read.code() != Code::corruption) return read;
            verified.damages.emplace_back(read.message());
            STET_ASSIGN(Statement needy, database.query(kSessionsOfRecord, id));
            while (true) {
                STET_ASSIGN(const bool has_name, needy.step());
                if (!has_name) break;
                const std::string name(needy.text(0));
                lacking_.insert(name);
                if (std::ranges::find(verified.sessions, name) == verified.sessions.end()) {
                    verified.sessions.push_back(name);
                }
            }
        }
    });
}

}  // namespace stet::store
