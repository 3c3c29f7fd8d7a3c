// The durable side of the server: a thread of its own that commits answers to the store and reads
// sequences back, and an index of what is stored, by the tokens that it begins with.
//
// Each tenant has a store of its own: the directory itself without keys (what `stet session`
// shows), tenants/ID below it with keys.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/turn_content.h"
#include "server/job.h"
#include "store/store.h"

namespace stet::server {

// A turn to be made durable.
struct NewCommit {
    std::string tenant;
    std::string session;  // empty: the unnamed session that it goes on with, or a new one
    state::Sequence sequence;
    std::vector<engine::Message> messages;  // of the whole conversation, the answer included
    std::string key;                        // of the request; may be empty
    std::vector<std::byte> sampler;
};
struct Committed {
    std::string session;
    store::TurnId turn = store::kNoTurn;
    std::uint64_t turn_number = 0;
    double ms = 0.0;
};

struct StoredPrefix {
    std::string session;
    store::TurnId turn = store::kNoTurn;  // whose end is the nearest state
    std::uint64_t matched = 0;
    std::uint64_t position = 0;
};

// What is done in idle time.
struct Upkeep {
    std::uint64_t scrubbed_bytes = 0;
    std::uint64_t damaged_records = 0;
    std::uint64_t collections = 0;
    std::uint64_t collected_bytes = 0;
    std::uint64_t expired_sessions = 0;
};

struct KeeperStats {
    std::uint64_t commits = 0, commit_failures = 0, loads = 0, load_failures = 0, bytes_read = 0;
    std::uint64_t sessions = 0;
    double commit_seconds = 0.0, load_seconds = 0.0;
    std::size_t waiting = 0;
    Upkeep upkeep;
};

class Keeper {
  public:
    struct Options {
        std::filesystem::path directory;
        std::vector<std::string> tenants;  // opened at the start
        std::size_t auto_sessions_max = 1000;
        store::StoreOptions store;  // limits of each tenant's
        std::uint64_t scrub_bytes_per_second = 0;
        std::function<void(std::string_view)> warn = [](std::string_view) {};
    };
    // Opens the stores and reads their index. conflict: another process has one open.
    static Result<std::unique_ptr<Keeper>> create(const Options& options, engine::Engine& engine,
                                                  const Hash256& fingerprint);
    ~Keeper();  // stop()
    // Does everything that was asked for, and nothing more.
    void stop();

    // Any thread. Callbacks run on the keeper's thread. Commits that wait together are made durable
    // together.
    void commit(NewCommit commit, std::function<void(Result<Committed>)> done);
    void load(std::string tenant, StoredPrefix prefix,
              std::function<void(Result<state::Sequence>)> done);
    // Anything else with a tenant's store. unavailable when too much is waiting.
    Status run(std::string tenant, std::function<void(Keeper&, store::Store&)> call);
    // The stored sequence that begins most like the prompt.
    std::optional<StoredPrefix> find(std::string_view tenant, std::span<const Token> prompt) const;
    // Tokens that the session begins with as another one of the tenant does: their rows are stored
    // once for both.
    std::uint64_t shared_tokens(std::string_view tenant, std::string_view session) const;
    KeeperStats stats() const;

    // On the keeper's thread, in run(): tells the index what changed.
    void refresh(const std::string& tenant, const std::string& session);
    const Hash256& fingerprint() const { return fingerprint_; }
    engine::Engine& engine() { return engine_; }

  private:
    struct Tenant;
    struct StoredTurn {
        store::TurnId id;
        std::uint64_t token_end;
    };
    struct Stored {
        std::vector<Token> tokens;
        std::vector<StoredTurn> turns;
        std::size_t messages = 0;
        std::int64_t used_ns = 0;
        bool is_lacking = false;  // some of its state is damaged or gone: offered to no prompt
    };
    static void set_lacking(Tenant& tenant, std::string_view session);
    struct Tenant {
        std::unique_ptr<store::Store> store;
        std::map<std::string, Stored, std::less<>> index;  // by session; guarded by mutex_
        // On the keeper's thread:
        std::int64_t scrubbed_to = 0;
        bool may_have_garbage = true;
        std::chrono::steady_clock::time_point collected_at;
    };

    // A commit that waits, and what is known of it once it is its turn.
    struct Waiting {
        NewCommit commit;
        std::function<void(Result<Committed>)> done;
        Committed committed;
        store::NewTurn turn;
        bool is_new_session = false;
        std::size_t new_messages = 0;
    };
    using Task = std::variant<std::function<void()>, Waiting>;

    Keeper(engine::Engine& engine, const Hash256& fingerprint, const Options& options)
        : engine_(engine), fingerprint_(fingerprint), options_(options) {}
    Status open(const std::string& tenant);
    void work();
    void push(Task task);
    std::vector<Waiting> take_commits();
    Result<std::string> choose_session(Tenant& tenant, const NewCommit& commit) const;
    // True if there is something to write; else the answer was given.
    bool prepare(Tenant& tenant, Waiting& waiting);
    Status plan(Tenant& tenant, Waiting& waiting) const;
    void commit_all(std::vector<Waiting> commits);
    void commit_together(Tenant& tenant, std::span<Waiting> batch);
    void finish(Waiting& waiting, Result<Committed> committed, double seconds);
    void drop_oldest_auto(Tenant& tenant);

    // keeper_upkeep.cpp, on the keeper's thread when nothing waits.
    void keep_up();
    void scrub(Tenant& tenant);
    void collect(Tenant& tenant);

    engine::Engine& engine_;
    Hash256 fingerprint_;
    Options options_;
    std::map<std::string, Tenant, std::less<>> tenants_;  // fixed after create()
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Task> tasks_;
    bool is_stopping_ = false;
    KeeperStats stats_;
    std::thread thread_;
};

// Sessions that the server named: conversations of clients that know of none, and responses. The
// oldest of both go when there are too many.
inline constexpr std::string_view kAutoPrefix = "auto-";
inline constexpr std::string_view kResponsePrefix = "resp_";
bool is_unnamed(std::string_view name);

}  // namespace stet::server
