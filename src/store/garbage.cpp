// collect_garbage. Order is everything: rows go before the bytes that they name, copies are named
// before what they are copies of goes.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "store/directory_store.h"

namespace stet::store {
namespace {

constexpr std::uint64_t kSparsePercent = 50;  // segments with less live bytes are copied together
constexpr std::size_t kRowsAtOnce = 64;       // deleted in one transaction

}  // namespace

Result<Reclaimed> DirectoryStore::collect_garbage() {
    return guarded([&] {
        Reclaimed expired;
        Result<Reclaimed> reclaimed = with_reserve([&]() -> Result<Reclaimed> {
            STET_TRY(check_writable());
            const DiskBudget::Shrinking shrinking(*budget_);
            STET_TRY(make_log_room());
            STET_TRY(remove_expired(expired));
            STET_TRY(check_liveness());
            STET_ASSIGN(Reclaimed collected, collect(kSparsePercent));
            collected.sessions = expired.sessions;
            return collected;
        });
        if (reclaimed) make_reserve();
        return reclaimed;
    });
}

// Liveness is proven already.
Result<Reclaimed> DirectoryStore::collect(std::uint64_t sparse_percent) {
    Reclaimed reclaimed;
    STET_ASSIGN(reclaimed.records, forget_dead_records());
    STET_ASSIGN(std::vector<Candidate> segments, candidates(sparse_percent));
    // Those without live records first: the others need room for copies.
    std::ranges::stable_sort(segments, {}, &Candidate::live_bytes);
    std::uint64_t copied_bytes = 0;
    for (const Candidate& segment : segments) {
        // A segment with a damaged record stays: what is left of it may be mended yet.
        if (segment.live_bytes != 0) {
            STET_ASSIGN(const bool fits,
                        budget_->has_room(kSegmentHeaderBytes + segment.live_bytes));
            if (!fits) continue;
            const Status copied = copy_live_records(segment.number);
            const bool is_refused = budget_->take_refused();
            const bool is_full = is_refused || copied.code() == Code::resource_exhausted;
            if (copied.code() == Code::corruption || (!copied && is_full)) continue;
            STET_TRY(copied);
            copied_bytes += segment.live_bytes;
        }
        reader_.forget();
        STET_TRY(env_->remove(segments_path(directory_) / segment_name(segment.number)));
        budget_->shrink_segments(segment.size_bytes);
        ++reclaimed.segments;
        reclaimed.bytes += segment.size_bytes;
    }
    if (reclaimed.segments != 0) STET_TRY(env_->sync_directory(segments_path(directory_)));
    reclaimed.bytes -= std::min(reclaimed.bytes, copied_bytes);
    return reclaimed;
}

// What is live follows from turn_record; so every turn must still list all of its records.
Status DirectoryStore::check_liveness() {
    Database& database = catalogue_.database();
    STET_ASSIGN(Statement turns, database.query("SELECT id FROM turn"));
    while (true) {
        STET_ASSIGN(const bool is_there, turns.step());
        if (!is_there) return {};
        const TurnId id = turns.integer(0);
        STET_ASSIGN(const TurnRow turn, catalogue_.turn(id));
        STET_ASSIGN(
            Statement row,
            database.query("SELECT r.key FROM turn_record l JOIN record r ON r.id = l.record "
                           "WHERE l.turn = ?1",
                           id));
        std::vector<Hash256> keys;
        while (true) {
            STET_ASSIGN(const bool has_key, row.step());
            if (!has_key) break;
            STET_ASSIGN(const Hash256 key, row.digest<32>(0));
            keys.push_back(key);
        }
        if (keys_checksum(std::move(keys)) != turn.records) {
            return Status(
                Code::corruption,
                fmt::format("catalogue '{}': the list of records of turn id {} is damaged; "
                            "nothing is removed",
                            catalogue_path(directory_).string(), id));
        }
    }
}

// Commits even when there are none: after that no earlier COMMIT that failed can come back and name
// bytes that are about to go (Transaction::commit). In steps, so that a full disk has room for
// them.
Result<std::uint64_t> DirectoryStore::forget_dead_records() {
    Database& database = catalogue_.database();
    std::vector<std::int64_t> dead;
    {
        STET_ASSIGN(Statement row, database.query("SELECT id FROM record WHERE id NOT IN "
                                                  "(SELECT record FROM turn_record)"));
        while (true) {
            STET_ASSIGN(const bool is_there, row.step());
            if (!is_there) break;
            dead.push_back(row.integer(0));
        }
    }
    std::size_t begin = 0;
    do {
        STET_TRY(make_log_room());
        STET_ASSIGN(Transaction transaction, catalogue_.begin());
        STET_TRY(
            database.run("INSERT INTO meta VALUES ('collected', ?1) "
                         "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                         std::string_view(std::to_string(stamp()))));
        const std::size_t end = budget_->is_bounded() || is_tight_
                                    ? std::min(begin + kRowsAtOnce, dead.size())
                                    : dead.size();
        for (; begin < end; ++begin) {
            STET_TRY(database.run("DELETE FROM record WHERE id = ?1", dead[begin]));
        }
        STET_TRY(explained(transaction.commit()));
    } while (begin < dead.size());
    return dead.size();
}

// Segments to remove. The one that is being written is given up when it is as sparse.
Result<std::vector<DirectoryStore::Candidate>> DirectoryStore::candidates(
    std::uint64_t sparse_percent) {
    STET_TRY(budget_->count_segments());
    std::map<std::uint64_t, std::uint64_t> live_bytes;
    STET_ASSIGN(Statement row,
                catalogue_.database().query("SELECT segment, offset, size_bytes FROM record"));
    while (true) {
        STET_ASSIGN(const bool is_there, row.step());
        if (!is_there) break;
        const Place place{static_cast<std::uint64_t>(row.integer(0)),
                          static_cast<std::uint64_t>(row.integer(1)),
                          static_cast<std::uint64_t>(row.integer(2)),
                          {}};
        live_bytes[place.segment] += place.end() - place.offset;
    }
    std::vector<Candidate> candidates;
    STET_ASSIGN(const std::vector<std::string> names, env_->list(segments_path(directory_)));
    for (const std::string& name : names) {
        const std::uint64_t number = segment_number(name);
        if (number == 0) continue;
        STET_ASSIGN(const FileInfo info, env_->info(segments_path(directory_) / name));
        const std::uint64_t live = live_bytes.contains(number) ? live_bytes[number] : 0;
        if (live == 0 || live < info.size_bytes / 100 * sparse_percent) {
            if (number == writer_->number()) writer_->rotate();
            candidates.push_back({number, info.size_bytes, live});
        }
    }
    return candidates;
}

Status DirectoryStore::copy_live_records(std::uint64_t segment) {
    struct Live {
        std::int64_t id;
        Hash256 key;
        Place place;
    };
    std::vector<Live> records;
    {
        STET_ASSIGN(Statement row, catalogue_.database().query(
                                       "SELECT id, key, offset, size_bytes, checksum FROM record "
                                       "WHERE segment = ?1 ORDER BY offset",
                                       static_cast<std::int64_t>(segment)));
        while (true) {
            STET_ASSIGN(const bool is_there, row.step());
            if (!is_there) break;
            Live live{row.integer(0),
                      {},
                      {segment,
                       static_cast<std::uint64_t>(row.integer(2)),
                       static_cast<std::uint64_t>(row.integer(3)),
                       {}}};
            STET_ASSIGN(live.key, row.digest<32>(1));
            STET_ASSIGN(live.place.checksum, row.digest<16>(4));
            records.push_back(live);
        }
    }
    Unnamed unnamed(*writer_);
    std::vector<std::byte> buffer;
    for (Live& live : records) {
        STET_ASSIGN(const auto payload, reader_.read(live.key, live.place, buffer));
        STET_ASSIGN(live.place, writer_->append(live.key, payload.size(), [&](auto into) {
            std::ranges::copy(payload, into.begin());
        }));
    }
    STET_TRY(writer_->sync());
    STET_ASSIGN(Transaction transaction, catalogue_.begin());
    for (const Live& live : records) STET_TRY(catalogue_.move(live.id, live.place));
    const Status committed = transaction.commit();
    unnamed.keep();
    return committed;
}

}  // namespace stet::store
