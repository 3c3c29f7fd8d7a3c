// The store: durable sessions in a directory. Design, section 4.
//
// A session is a name that points at a turn; a turn points at its parent. So a fork is a new name
// for the same turn, a rollback moves the name to an earlier one, and neither moves a byte of rows.
//
// The promise: when commit_turn() returns ok, the turn survives a crash of the process or of the
// machine at any later moment. When it returns anything else, or the process dies before it
// returns, the session is at its previous turn or (only if the process died) at the new one, whole.
//
// Thread rules: a Store may be used from any thread. One process owns a store directory (flock).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cipher.h"
#include "base/env.h"
#include "base/hash.h"
#include "memory/page_pool.h"
#include "state/sequence.h"
#include "stet/status.h"

namespace stet::store {

using TurnId = std::int64_t;  // of the catalogue; never reused
inline constexpr TurnId kNoTurn = 0;

struct SessionInfo {
    std::string name;
    Hash256 fingerprint;  // of the model it was made with
    Hash256 schema_hash;
    std::string model_name;  // for people
    std::string model_path;
    TurnId head = kNoTurn;  // kNoTurn: no turn committed yet
    std::uint64_t turns = 0;
    std::uint64_t tokens = 0;
    std::int64_t created_ns = 0;  // since the epoch
    std::int64_t used_ns = 0;
    bool is_pinned = false;  // never evicted, never expires
};

struct Turn {
    TurnId id = kNoTurn;
    TurnId parent = kNoTurn;
    std::uint64_t number = 0;       // 1 for the first
    std::uint64_t token_begin = 0;  // tokens [token_begin, token_end) are this turn's
    std::uint64_t token_end = 0;
    std::string content;             // JSON for people and clients: the messages of the turn
    std::vector<std::byte> sampler;  // opaque sampler state after the turn
    std::int64_t created_ns = 0;
};

struct NewTurn {
    std::string content;
    std::vector<std::byte> sampler;
};

// Whose state a new session will have.
struct NewSession {
    Hash256 fingerprint;     // of the model
    std::string model_name;  // for people
    std::string model_path;
};

// One turn of commit_turns().
struct Commit {
    std::string session;
    const state::Sequence* sequence = nullptr;  // outlives the call
    NewTurn turn;
    std::optional<NewSession> created;  // the session comes with its first turn, or not at all
};

struct StoreOptions {
    // A store that is made with a key is encrypted (sealing.h) and needs it ever after; read only
    // it can be listed without. incompatible when it is not the store's.
    std::optional<SecretKey> key;
    bool read_only = false;                    // no lock; sessions can be listed and loaded
    std::string tenant;                        // salt of every page id
    std::uint64_t segment_bytes = 256U << 20;  // a segment that long is not appended to
    // Bounds of the whole directory; 0 is none. A commit that would break one evicts the state of
    // the sessions used longest ago (never pinned ones; their tokens stay), else it is refused.
    std::uint64_t disk_limit_bytes = 0;
    std::uint64_t free_floor_bytes = 0;  // left free on the file system
    // A session unused for longer is removed by the next collect_garbage(), unless it is pinned.
    std::chrono::nanoseconds ttl{0};  // 0: never
};

struct Loaded {
    state::Sequence sequence;
    Turn turn;
    std::uint64_t bytes_read = 0;
};

struct Reclaimed {
    std::uint64_t sessions = 0;  // expired
    std::uint64_t records = 0;   // that no turn needed any more
    std::uint64_t segments = 0;  // files removed
    std::uint64_t bytes = 0;     // of the removed files, less what was copied to others
};

struct Usage {
    std::uint64_t sessions = 0;
    std::uint64_t records = 0;
    std::uint64_t live_bytes = 0;       // of records that turns need, headers included
    std::uint64_t segment_bytes = 0;    // of all segments; the rest of them is garbage
    std::uint64_t catalogue_bytes = 0;  // with its log
    std::uint64_t total_bytes() const { return segment_bytes + catalogue_bytes; }
};

struct SessionUsage {
    std::uint64_t records = 0;
    std::uint64_t own_bytes = 0;     // given back when the session goes
    std::uint64_t shared_bytes = 0;  // of records that other sessions need, too
};

// One stretch of a scrub.
struct Verified {
    std::int64_t next = 0;  // to go on with; 0 after the last record
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> damages;   // one line each: where, and what is wrong
    std::vector<std::string> sessions;  // that need a damaged record, by name
};

class Store {
  public:
    virtual ~Store() = default;

    // Creates the directory (0700) when missing. conflict when another process owns it.
    static Result<std::unique_ptr<Store>> open(Env& env, const std::filesystem::path& directory,
                                               const StoreOptions& options);

    // already_exists when the name is taken; invalid_argument unless it is [A-Za-z0-9._-]{1,64}
    // and does not start with a dot.
    virtual Result<SessionInfo> create(std::string_view name, const Hash256& fingerprint,
                                       const memory::Schema& schema, std::string_view model_name,
                                       std::string_view model_path) = 0;
    // not_found says which names are close.
    virtual Result<SessionInfo> find(std::string_view name) = 0;
    virtual Result<std::vector<SessionInfo>> list() = 0;  // last used first
    // From the first turn to the head.
    virtual Result<std::vector<Turn>> turns(std::string_view name) = 0;

    // Makes `sequence` the session's new head: only rows of tokens past the old head are written.
    // The sequence must extend the head's tokens (else conflict) and fit the session's schema.
    virtual Result<Turn> commit_turn(std::string_view name, const memory::Schema& schema,
                                     const state::Sequence& sequence, const NewTurn& turn) = 0;
    // Several turns at the price of one: they share the two syncs. An answer for each, in order.
    // Turns of one session must follow each other, and stand or fall together; sessions don't
    // depend on each other, but for what stops all (the disk).
    virtual std::vector<Result<Turn>> commit_turns(const memory::Schema& schema,
                                                   std::span<const Commit> commits) = 0;

    // The state at the head, or at an earlier turn of the session, built aside in `pool`. Every
    // byte is verified. incompatible when fingerprint or schema differ (expected and found).
    virtual Result<Loaded> load(std::string_view name, const Hash256& fingerprint,
                                memory::PagePool& pool, std::optional<TurnId> turn = {}) = 0;
    // corruption: what is missing or damaged; unavailable: the state was evicted. Either way the
    // session goes on from tokens(), and its next commit writes anew what it lacks. A load counts
    // as a use of the session.
    // Only the tokens, for recomputing.
    virtual Result<std::vector<state::Token>> tokens(std::string_view name) = 0;

    virtual Result<SessionInfo> fork(std::string_view from, std::string_view to,
                                     std::optional<TurnId> turn = {}) = 0;
    // Moves the session to an earlier turn of its own, or to before the first with kNoTurn.
    virtual Status rollback(std::string_view name, TurnId turn) = 0;
    virtual Status rename(std::string_view from, std::string_view to) = 0;
    virtual Status remove(std::string_view name) = 0;

    // Gives back the space of records that no turn needs: removes segments without live records and
    // copies the live ones out of sparse segments. Interrupted at any point it loses nothing. When
    // the catalogue does not prove what is live it removes nothing (corruption).
    virtual Result<Reclaimed> collect_garbage() = 0;

    virtual Status pin(std::string_view name, bool is_pinned) = 0;
    virtual Result<Usage> usage() = 0;
    // What each session's records take, by name.
    virtual Result<std::map<std::string, SessionUsage>> session_usage() = 0;
    // How many of the session's turns, from the first on, are another session's as well.
    virtual Result<std::uint64_t> shared_turns(std::string_view name) = 0;
    // Of the state of a session, for who has no model at hand. not_found for a session last
    // committed by a program that did not keep it.
    virtual Result<memory::Schema> schema(std::string_view name) = 0;
    // Reads and proves records from `from` (0 at first) on, until `bytes_max` are read. Other calls
    // wait for one such stretch at most; the rate of a scrub is its caller's.
    virtual Result<Verified> verify(std::int64_t from, std::uint64_t bytes_max) = 0;

    virtual const std::filesystem::path& directory() const = 0;
    virtual bool is_encrypted() const = 0;
};

// XDG_DATA_HOME/stet or ~/.local/share/stet.
std::filesystem::path default_store_directory();

}  // namespace stet::store
