// The catalogue: which sessions, turns and records there are. Rows in, rows out; what they mean for
// each other is the store's business.
//
// SQLite in WAL mode with synchronous=FULL: a transaction is durable when its COMMIT returns.
//
//   session      a name for a turn (its head), with the identity of the model and the schema
//   turn         a node of the tree of turns, with the tokens that it adds
//   record       where the extent of a key lies; see segment.h
//   turn_record  which records a turn adds: what keeps a record from being garbage
//   pin          ids of pinned sessions
//   schema       of what the state of sessions is made, by schema hash
//   meta         which program made the file, and how it is encrypted
//
// SQLite has no checksums of its own pages, so rows that decide something carry one: XXH3-128 over
// every other column, checked whenever the row is used. A row of `record` needs none: the header of
// the record repeats it (segment.h, rule 4).
//
// In a sealed store (sealing.h), which has version 2, `turn.tokens` holds all that a turn says,
// sealed, and `sampler` and `content` are empty.
//
// Thread rules: one thread at a time (the store's mutex).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/sealing.h"
#include "store/segment.h"
#include "store/sqlite.h"
#include "store/store.h"

namespace stet::store {

struct SessionRow {
    std::int64_t id = 0;
    SessionInfo info;  // turns and tokens are the head's
    Hash256 root;      // of the page ids: model, schema and tenant together
};

struct TurnRow {
    Turn turn;
    std::vector<state::Token> tokens;  // [token_begin, token_end)
    Hash128 records;                   // XXH3-128 of the keys that turn_record lists, sorted
};

struct RecordRow {
    std::int64_t id = 0;
    Place place;
};

class Catalogue {
  public:
    // A missing or empty file is made a catalogue, with the rights of the file `rights_of`; without
    // one it must exist and is only read. incompatible when a newer program made it (says which),
    // or when `key` is not its own. `budget` may be null.
    static Result<Catalogue> open(const std::filesystem::path& path,
                                  const std::filesystem::path& rights_of, DiskBudget* budget,
                                  const std::optional<SecretKey>& key);
    const Sealing& sealing() const { return *sealing_; }  // stays where it is

    Result<Transaction> begin() { return Transaction::begin(*database_); }

    Result<std::optional<SessionRow>> session(std::string_view name);
    Result<std::vector<SessionInfo>> sessions();  // last used first; not checked, for display
    // Names, last used first, at most `limit`.
    Result<std::vector<std::string>> names(std::int64_t limit);
    Result<std::int64_t> insert(const SessionRow& session);  // its id
    Status update(const SessionRow& session);                // every column
    Status remove_session(std::string_view name);
    Status set_pinned(std::int64_t session, bool is_pinned);
    // Moves used_ns forward; nothing if the session is gone.
    Status touch(std::string_view name, std::int64_t used_ns);
    // Keeps a schema, once.
    Status insert(const memory::Schema& schema);
    Result<std::optional<memory::Schema>> schema(const Hash256& hash);
    // The head of a session whose row may be damaged; kNoTurn without one.
    Result<TurnId> head_unchecked(std::string_view name);

    Result<TurnRow> turn(TurnId id);
    // From the first turn to `head`: checked one by one, and as a chain.
    Result<std::vector<TurnRow>> path(TurnId head);
    Result<TurnId> next_turn_id();
    Status insert(const TurnRow& turn, std::span<const std::int64_t> records);
    // The turn keeps its tokens and lists no record any more.
    Status forget_records(TurnId turn);
    // Removes `turn` and its ancestors up to the first that a session or another turn needs.
    Status prune(TurnId turn);

    Result<std::optional<RecordRow>> record(const Hash256& key);
    Result<std::int64_t> insert(const Hash256& key, const Place& place);  // its id
    Status move(std::int64_t record, const Place& place);

    // The last segment that a row names and the end of its last record; {0, 0} without one.
    struct SegmentEnd {
        std::uint64_t number = 0;
        std::uint64_t end = 0;
    };
    Result<SegmentEnd> last_segment();

    // Moves SQLite's log into the catalogue and gives its space back, unless a reader needs it.
    Status empty_log() { return database_->run("PRAGMA wal_checkpoint(TRUNCATE)"); }

    Database& database() { return *database_; }

  private:
    explicit Catalogue(std::unique_ptr<Database> database)
        : database_(std::move(database)), sealing_(std::make_unique<Sealing>()) {}
    // A row of turn as it is kept.
    struct StoredTurn {
        TurnRow row;  // without what the turn says
        std::vector<std::byte> tokens;
        std::vector<std::byte> sampler;
        std::string content;
    };
    static Hash128 stored_checksum(const StoredTurn& turn);
    Result<StoredTurn> stored_turn(TurnId id);
    Result<StoredTurn> stored(const TurnRow& row) const;
    Result<TurnRow> turn_of(StoredTurn stored) const;

    Status check_identity(bool read_only, const DiskBudget* budget,
                          const std::optional<SecretKey>& key);
    Status open_sealing(std::int64_t version, const std::optional<SecretKey>& key);
    Status set_durable(const DiskBudget* budget);
    Status make_tables();
    Status find_later_tables(bool read_only);
    Result<bool> is_pinned(std::int64_t session);
    Status damaged(std::string_view what) const;

    std::unique_ptr<Database> database_;
    std::unique_ptr<Sealing> sealing_;
    // A store made before there were such tables may be open to be read only.
    bool has_pins_ = false;
    bool has_schemas_ = false;
};

// The checksum that TurnRow::records holds.
Hash128 keys_checksum(std::vector<Hash256> keys);

}  // namespace stet::store
