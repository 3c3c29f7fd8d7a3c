// The Store in a directory:
//
//   lock               held by the process that owns the store
//   catalogue.sqlite   catalogue.h (and SQLite's -wal and -shm beside it)
//   segments/*.seg     segment.h
//   reserve            given up when the disk is full, so that removing things, which has to write
//                      as well, finds space (stores without a limit; with one, disk_budget.h sets
//                      space aside)
//
// Thread rules: every public method holds the mutex; everything below it assumes so.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "state/extent.h"
#include "store/catalogue.h"
#include "store/segment.h"
#include "store/store.h"

namespace stet::store {

class DirectoryStore final : public Store {
  public:
    DirectoryStore(Env& env, std::filesystem::path directory, StoreOptions options,
                   std::unique_ptr<FileLock> lock, std::unique_ptr<DiskBudget> budget,
                   Catalogue catalogue, std::optional<SegmentWriter> writer);
    ~DirectoryStore() override;

    Result<SessionInfo> create(std::string_view name, const Hash256& fingerprint,
                               const memory::Schema& schema, std::string_view model_name,
                               std::string_view model_path) override;
    Result<SessionInfo> find(std::string_view name) override;
    Result<std::vector<SessionInfo>> list() override;
    Result<std::vector<Turn>> turns(std::string_view name) override;
    Result<Turn> commit_turn(std::string_view name, const memory::Schema& schema,
                             const state::Sequence& sequence, const NewTurn& turn) override;
    std::vector<Result<Turn>> commit_turns(const memory::Schema& schema,
                                           std::span<const Commit> commits) override;
    Result<Loaded> load(std::string_view name, const Hash256& fingerprint, memory::PagePool& pool,
                        std::optional<TurnId> turn) override;
    Result<std::vector<state::Token>> tokens(std::string_view name) override;
    Result<SessionInfo> fork(std::string_view from, std::string_view to,
                             std::optional<TurnId> turn) override;
    Status rollback(std::string_view name, TurnId turn) override;
    Status rename(std::string_view from, std::string_view to) override;
    Status remove(std::string_view name) override;
    Result<Reclaimed> collect_garbage() override;
    Status pin(std::string_view name, bool is_pinned) override;
    Result<Usage> usage() override;
    Result<std::map<std::string, SessionUsage>> session_usage() override;
    Result<std::uint64_t> shared_turns(std::string_view name) override;
    Result<memory::Schema> schema(std::string_view name) override;
    Result<Verified> verify(std::int64_t from, std::uint64_t bytes_max) override;
    const std::filesystem::path& directory() const override { return directory_; }
    bool is_encrypted() const override { return catalogue_.sealing().is_sealed(); }

  private:
    // The tokens up to a turn, and the prefix ids made of them.
    struct Path {
        TurnId head = kNoTurn;
        std::vector<std::uint64_t> ends;  // token_end of each turn
        std::vector<state::Token> tokens;
        state::PrefixIds ids;
        bool has_evicted = false;  // turns whose records were given up
    };
    // An extent of a new turn: a record that is there, or one to be written.
    struct Part {
        state::Extent extent;
        std::optional<RecordRow> known;
        std::optional<Place> written;
        bool is_earlier = false;  // of a turn before
    };
    // A turn to be committed.
    struct Step {
        std::size_t index = 0;  // in the batch
        const Commit* commit = nullptr;
        TurnRow row;
        std::vector<Part> parts;
    };
    // What is committed to one session.
    struct Pending {
        SessionRow session;
        bool is_new = false;
        Path path{kNoTurn, {}, {}, state::PrefixIds(Hash256())};  // after the steps
        std::vector<Step> steps;
        Status status;
        std::size_t answered = 0;  // steps
    };
    // A record on its way into a value.
    struct Reading {
        state::Extent extent;
        std::uint64_t turn_number = 0;
        SegmentReader::Found found;
        std::span<std::byte> target;  // of whole pages
        Status status;
    };
    // A sparse or dead segment.
    struct Candidate {
        std::uint64_t number = 0;
        std::uint64_t size_bytes = 0;
        std::uint64_t live_bytes = 0;
    };

    // While one exists a full disk is to be made room on.
    class Tight {
      public:
        explicit Tight(bool& is_tight) : is_tight_(is_tight) { is_tight_ = true; }
        ~Tight() { is_tight_ = false; }
        Tight(const Tight&) = delete;
        Tight& operator=(const Tight&) = delete;

      private:
        bool& is_tight_;
    };

    template <typename Work>
    auto guarded(Work work) -> decltype(work());
    Status check_writable() const;
    std::int64_t stamp();

    // Runs a change that frees space. On a full disk it runs again in small steps, after the log's
    // space, and then the reserve's, was given back for it.
    template <typename Work>
    auto with_reserve(Work work) -> decltype(work());
    void make_reserve();

    // store.cpp
    Result<SessionRow> require(std::string_view name);
    Status require_free(std::string_view name);
    Result<SessionInfo> add_session(SessionRow row);
    // `turn` when it is on the way from the first turn to the session's head, or kNoTurn.
    Status require_turn(const SessionRow& session, TurnId turn);

    // Writes down when sessions were loaded; in a transaction.
    Status write_uses();
    Result<std::vector<SessionInfo>> sessions_by_use();  // last used first

    // commit.cpp
    static Pending& pending_of(std::vector<Pending>& batch, const Commit& commit);
    Status prepare(const memory::Schema& schema, const Commit& commit, std::size_t index,
                   Pending& pending);
    Status find_session(const memory::Schema& schema, const Commit& commit, Pending& pending);
    Status commit_batch(const memory::Schema& schema, std::span<Pending* const> batch);
    Result<Path> take_path(const SessionRow& session);
    Result<std::vector<Part>> plan(const memory::Schema& schema, const state::Sequence& sequence,
                                   Path& path, bool with_earlier_turns);
    Result<std::uint64_t> bytes_of(const Step& step);
    // Makes room for the batch. What was known of records may have changed with it.
    Status make_room_for(std::span<Pending* const> batch);
    Status write_records(const memory::Schema& schema, std::span<Pending* const> batch);
    Status add_rows(Pending& pending);

    // load.cpp
    Result<Loaded> load_checked(const SessionRow& session, const std::vector<TurnRow>& path,
                                memory::PagePool& pool);
    Status find_record(const TurnRow& row, const state::Extent& extent,
                       std::vector<Reading>& readings);
    static std::size_t read_all(state::Stage& stage, std::vector<Reading>& readings);
    Result<Loaded> load_once(std::string_view name, const Hash256& fingerprint,
                             memory::PagePool& pool, std::optional<TurnId> turn);

    // limits.cpp
    Status remove_expired(Reclaimed& reclaimed);
    // Evicts what it takes so that `bytes` more fit, but nothing of the sessions `spared`. True if
    // something was moved or evicted.
    Result<bool> make_room(std::uint64_t bytes, const std::set<std::int64_t>& spared);
    Status evict(const SessionRow& session, const std::vector<SessionRow>& kept);
    // For small changes that add nothing: the log is emptied in time.
    Status make_log_room();
    Status no_room(std::uint64_t bytes, std::string_view advice) const;
    // `status`, or the limit that was in its way.
    Status explained(Status status);

    // garbage.cpp
    Result<Reclaimed> collect(std::uint64_t sparse_percent);
    Status check_liveness();
    Result<std::uint64_t> forget_dead_records();
    Result<std::vector<Candidate>> candidates(std::uint64_t sparse_percent);
    Status copy_live_records(std::uint64_t segment);

    Env* env_;
    std::filesystem::path directory_;
    StoreOptions options_;
    std::mutex mutex_;
    std::unique_ptr<FileLock> lock_;      // given up last
    std::unique_ptr<DiskBudget> budget_;  // none when read only
    Catalogue catalogue_;
    std::string id_salt_;  // of page ids
    SegmentReader reader_;
    std::optional<SegmentWriter> writer_;  // none when read only
    std::list<Path> paths_;                // of the last commits, latest first
    // Names of sessions some of whose records are known to be damaged or gone: their next commit
    // looks at all of them.
    std::set<std::string, std::less<>> lacking_;
    // When sessions were loaded, until that is written down.
    std::map<std::string, std::int64_t, std::less<>> used_;
    std::optional<Hash256> kept_schema_;  // is in the catalogue
    std::int64_t last_stamp_ = 0;
    bool is_tight_ = false;  // the disk is full: changes go in small steps, the log is kept empty
};

inline Status status_of(const Status& status) {
    return status;
}
template <typename T>
Status status_of(const Result<T>& result) {
    return result.status();
}

inline constexpr std::uint64_t kNewSessionBytes = 96 << 10;  // with its pages in SQLite's log

inline std::filesystem::path catalogue_path(const std::filesystem::path& store) {
    return store / "catalogue.sqlite";
}
inline std::filesystem::path reserve_path(const std::filesystem::path& store) {
    return store / "reserve";
}
inline std::filesystem::path segments_path(const std::filesystem::path& store) {
    return store / "segments";
}

inline Status no_memory() {
    return Status(Code::resource_exhausted, "the system has no memory left for the store");
}

// Nothing that is thrown leaves the library.
template <typename Work>
auto DirectoryStore::guarded(Work work) -> decltype(work()) {
    try {
        const std::lock_guard lock(mutex_);
        return work();
    } catch (const std::bad_alloc&) {
        return no_memory();
    } catch (const std::exception& error) {
        return Status(Code::internal, std::string("store: ") + error.what());
    }
}

template <typename Work>
auto DirectoryStore::with_reserve(Work work) -> decltype(work()) {
    const auto is_full = [&](const auto& done) {
        return !budget_->is_bounded() && status_of(done).code() == Code::resource_exhausted;
    };
    auto done = work();
    if (!writer_ || !is_full(done)) return done;
    const Tight tight(is_tight_);
    done = work();
    if (!is_full(done) || !env_->remove(reserve_path(directory_))) return done;
    return work();
}

}  // namespace stet::store
