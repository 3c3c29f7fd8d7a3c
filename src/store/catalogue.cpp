#include "store/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "memory/schema_bytes.h"

namespace stet::store {
namespace {

constexpr std::int64_t kApplicationId = 0x73746574;  // "stet"
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kSealedVersion = 2;  // programs that can't open it refuse it
constexpr std::string_view kWriter = "stet 0.1.0";
constexpr std::uint64_t kPageBytes = 4096;    // SQLite's default
constexpr std::uint64_t kLogBytes = 4 << 20;  // between checkpoints

constexpr const char* kTables = R"(
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE turn (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    parent      INTEGER REFERENCES turn (id),
    number      INTEGER NOT NULL,
    token_begin INTEGER NOT NULL,
    token_end   INTEGER NOT NULL,
    created_ns  INTEGER NOT NULL,
    tokens      BLOB NOT NULL,
    sampler     BLOB NOT NULL,
    records     BLOB NOT NULL,
    checksum    BLOB NOT NULL,
    content     TEXT NOT NULL
) STRICT;
CREATE INDEX turn_parent ON turn (parent);
CREATE TABLE session (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    fingerprint BLOB NOT NULL,
    schema_hash BLOB NOT NULL,
    root        BLOB NOT NULL,
    model_name  TEXT NOT NULL,
    model_path  TEXT NOT NULL,
    head        INTEGER REFERENCES turn (id),
    created_ns  INTEGER NOT NULL,
    used_ns     INTEGER NOT NULL,
    checksum    BLOB NOT NULL
) STRICT;
CREATE INDEX session_head ON session (head);
CREATE TABLE record (
    id         INTEGER PRIMARY KEY,
    key        BLOB NOT NULL UNIQUE,
    segment    INTEGER NOT NULL,
    offset     INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    checksum   BLOB NOT NULL
) STRICT;
CREATE INDEX record_place ON record (segment, offset);
CREATE TABLE turn_record (
    turn   INTEGER NOT NULL REFERENCES turn (id),
    record INTEGER NOT NULL,
    PRIMARY KEY (turn, record)
) STRICT, WITHOUT ROWID;
)";
// Not in every store of version 1: made when they are missing.
constexpr const char* kPinTable =
    "CREATE TABLE pin (session INTEGER PRIMARY KEY REFERENCES session (id)) STRICT";
constexpr const char* kSchemaTable =
    "CREATE TABLE schema (hash BLOB PRIMARY KEY, content BLOB NOT NULL) STRICT, WITHOUT ROWID";

constexpr std::string_view kSessionColumns =
    "SELECT s.id, s.name, s.fingerprint, s.schema_hash, s.root, s.model_name, s.model_path, "
    "s.head, s.created_ns, s.used_ns, s.checksum, t.number, t.token_end "
    "FROM session s LEFT JOIN turn t ON t.id = s.head ";

std::int64_t signed_of(std::uint64_t value) {
    return static_cast<std::int64_t>(value);
}
std::uint64_t unsigned_of(std::int64_t value) {
    return static_cast<std::uint64_t>(value);
}
std::optional<std::int64_t> nullable(TurnId id) {
    return id == kNoTurn ? std::nullopt : std::optional(id);
}

Hash128 checksum_of(const SessionRow& row) {
    Writer writer;
    writer.write_string("session");
    writer.write(row.id);
    writer.write_string(row.info.name);
    writer.write_bytes(std::as_bytes(std::span(row.info.fingerprint.bytes)));
    writer.write_bytes(std::as_bytes(std::span(row.info.schema_hash.bytes)));
    writer.write_bytes(std::as_bytes(std::span(row.root.bytes)));
    writer.write_string(row.info.model_name);
    writer.write_string(row.info.model_path);
    writer.write(row.info.head);
    writer.write(row.info.created_ns);
    writer.write(row.info.used_ns);
    return xxh3_128(writer.data());
}

std::vector<state::Token> tokens_of(std::span<const std::byte> bytes) {
    std::vector<state::Token> tokens(bytes.size() / sizeof(state::Token));
    if (!tokens.empty()) {
        std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(state::Token));
    }
    return tokens;
}

Result<SessionRow> session_of(const Statement& row) {
    SessionRow session;
    session.id = row.integer(0);
    session.info.name = row.text(1);
    STET_ASSIGN(session.info.fingerprint, row.digest<32>(2));
    STET_ASSIGN(session.info.schema_hash, row.digest<32>(3));
    STET_ASSIGN(session.root, row.digest<32>(4));
    session.info.model_name = row.text(5);
    session.info.model_path = row.text(6);
    session.info.head = row.integer(7);
    session.info.created_ns = row.integer(8);
    session.info.used_ns = row.integer(9);
    session.info.turns = unsigned_of(row.integer(11));
    session.info.tokens = unsigned_of(row.integer(12));
    return session;
}

}  // namespace

Hash128 keys_checksum(std::vector<Hash256> keys) {
    std::ranges::sort(keys);
    return xxh3_128(std::as_bytes(std::span(keys)));
}

Status Catalogue::damaged(std::string_view what) const {
    return Status(Code::corruption,
                  fmt::format("catalogue '{}': {}", database_->path().string(), what));
}

Result<Catalogue> Catalogue::open(const std::filesystem::path& path,
                                  const std::filesystem::path& rights_of, DiskBudget* budget,
                                  const std::optional<SecretKey>& key) {
    STET_ASSIGN(std::unique_ptr<Database> database, Database::open(path, rights_of, budget));
    Catalogue catalogue(std::move(database));
    STET_TRY(catalogue.check_identity(rights_of.empty(), budget, key));
    STET_TRY(catalogue.find_later_tables(rights_of.empty()));
    return catalogue;
}

Status Catalogue::check_identity(bool read_only, const DiskBudget* budget,
                                 const std::optional<SecretKey>& key) {
    STET_ASSIGN(const auto application, database_->number("PRAGMA application_id"));
    STET_ASSIGN(const auto version, database_->number("PRAGMA user_version"));
    STET_ASSIGN(const auto tables, database_->number("SELECT count(*) FROM sqlite_schema"));
    const bool is_empty = application == 0 && version == 0 && tables == 0;
    if (is_empty && read_only) {
        return Status(Code::not_found, fmt::format("catalogue '{}' is empty: no session was ever "
                                                   "made here",
                                                   database_->path().string()));
    }
    if (!is_empty && application != kApplicationId) {
        return damaged("is not a catalogue of stet, or its header is damaged");
    }
    if (!is_empty && version > kSealedVersion) {
        std::string writer = "a newer program";
        Result<Statement> row = database_->query("SELECT value FROM meta WHERE name = 'writer'");
        if (row.is_ok()) {
            const Result<bool> found = row->step();
            if (found.is_ok() && *found) writer = row->text(0);
        }
        return Status(Code::incompatible,
                      fmt::format("catalogue '{}' has version {} and was written by {}; {} knows "
                                  "versions up to {}: use the newer program",
                                  database_->path().string(), version.value_or(0), writer, kWriter,
                                  kSealedVersion));
    }
    if (!is_empty) STET_TRY(open_sealing(version.value_or(0), key));
    if (read_only) return {};
    STET_TRY(sealing_->require_key());
    STET_TRY(set_durable(budget));
    if (!is_empty) return {};
    if (key) {
        STET_ASSIGN(*sealing_, Sealing::create(*key));
    }
    return make_tables();
}

// Of a catalogue that is there.
Status Catalogue::open_sealing(std::int64_t version, const std::optional<SecretKey>& key) {
    if (version == kVersion) {
        if (!key) return {};
        return Status(Code::incompatible,
                      "a key was given, but it is not encrypted: leave the key away, or name "
                      "another store, which is made encrypted then");
    }
    if (version != kSealedVersion) return damaged("its version number is damaged");
    STET_ASSIGN(Statement row, database_->query("SELECT value FROM meta WHERE name = 'sealing'"));
    STET_ASSIGN(const bool found, row.step());
    Result<Sealing> sealing = Sealing::open(found ? row.text(0) : std::string_view(), key);
    if (sealing.status().code() == Code::corruption) return damaged(sealing.status().message());
    STET_ASSIGN(*sealing_, std::move(sealing));
    return {};
}

Status Catalogue::find_later_tables(bool read_only) {
    const auto find = [&](std::string_view name, const char* made, bool& is_there) -> Status {
        STET_ASSIGN(const auto tables,
                    database_->number("SELECT count(*) FROM sqlite_schema WHERE name = ?1", name));
        is_there = tables != 0;
        if (is_there || read_only) return {};
        STET_TRY(database_->script(made));
        is_there = true;
        return {};
    };
    STET_TRY(find("pin", kPinTable, has_pins_));
    return find("schema", kSchemaTable, has_schemas_);
}

Result<bool> Catalogue::is_pinned(std::int64_t session) {
    if (!has_pins_) return false;
    STET_ASSIGN(const auto found,
                database_->number("SELECT 1 FROM pin WHERE session = ?1", session));
    return found.has_value();
}

Status Catalogue::set_pinned(std::int64_t session, bool is_pinned) {
    if (is_pinned) return database_->run("INSERT OR IGNORE INTO pin VALUES (?1)", session);
    return database_->run("DELETE FROM pin WHERE session = ?1", session);
}

Status Catalogue::set_durable(const DiskBudget* budget) {
    STET_ASSIGN(Statement mode, database_->query("PRAGMA journal_mode = WAL"));
    STET_ASSIGN(const bool has_mode, mode.step());
    if (!has_mode || mode.text(0) != "wal") {
        return Status(Code::io, fmt::format("catalogue '{}': its file system can't hold a "
                                            "write-ahead log; use a local one",
                                            database_->path().string()));
    }
    const std::uint64_t log_bytes = budget != nullptr ? budget->log_bytes_wanted() : kLogBytes;
    return database_->script(fmt::format("PRAGMA synchronous = FULL; PRAGMA cache_spill = OFF; "
                                         "PRAGMA wal_autocheckpoint = {}; "
                                         "PRAGMA journal_size_limit = {};",
                                         log_bytes / kPageBytes, log_bytes)
                                 .c_str());
}

Status Catalogue::make_tables() {
    STET_ASSIGN(Transaction transaction, begin());
    STET_TRY(database_->script(kTables));
    STET_TRY(database_->run("INSERT INTO meta VALUES ('writer', ?1)", kWriter));
    if (sealing_->is_sealed()) {
        STET_TRY(database_->run("INSERT INTO meta VALUES ('sealing', ?1)",
                                std::string_view(sealing_->row())));
    }
    STET_TRY(database_->script(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};",
                                           kApplicationId,
                                           sealing_->is_sealed() ? kSealedVersion : kVersion)
                                   .c_str()));
    return transaction.commit();
}

Result<std::optional<SessionRow>> Catalogue::session(std::string_view name) {
    STET_ASSIGN(Statement row,
                database_->query(fmt::format("{} WHERE s.name = ?1", kSessionColumns), name));
    STET_ASSIGN(const bool found, row.step());
    if (!found) return std::optional<SessionRow>();
    STET_ASSIGN(SessionRow session, session_of(row));
    STET_ASSIGN(const Hash128 checksum, row.digest<16>(10));
    if (checksum != checksum_of(session)) {
        return damaged(fmt::format("the row of session '{}' is damaged", name));
    }
    STET_ASSIGN(session.info.is_pinned, is_pinned(session.id));
    return std::optional(std::move(session));
}

Result<std::vector<SessionInfo>> Catalogue::sessions() {
    std::vector<SessionInfo> sessions;
    STET_ASSIGN(Statement row, database_->query(fmt::format("{} ORDER BY s.used_ns DESC, s.id DESC",
                                                            kSessionColumns)));
    while (true) {
        STET_ASSIGN(const bool found, row.step());
        if (!found) return sessions;
        STET_ASSIGN(SessionRow session, session_of(row));
        STET_ASSIGN(session.info.is_pinned, is_pinned(session.id));
        sessions.push_back(std::move(session.info));
    }
}

Result<std::vector<std::string>> Catalogue::names(std::int64_t limit) {
    std::vector<std::string> names;
    STET_ASSIGN(Statement row,
                database_->query("SELECT name FROM session ORDER BY used_ns DESC LIMIT ?1", limit));
    while (true) {
        STET_ASSIGN(const bool found, row.step());
        if (!found) return names;
        names.emplace_back(row.text(0));
    }
}

Result<std::int64_t> Catalogue::insert(const SessionRow& session) {
    STET_ASSIGN(const auto last, database_->number("SELECT max(id) FROM session"));
    SessionRow row = session;
    row.id = last.value_or(0) + 1;
    STET_TRY(database_->run(
        "INSERT INTO session (id, name, fingerprint, schema_hash, root, model_name, model_path, "
        "created_ns, used_ns, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, x'')",
        row.id, std::string_view(row.info.name), row.info.fingerprint, row.info.schema_hash,
        row.root, std::string_view(row.info.model_name), std::string_view(row.info.model_path),
        row.info.created_ns, row.info.used_ns));
    STET_TRY(update(row));
    return row.id;
}

Status Catalogue::update(const SessionRow& session) {
    return database_->run(
        "UPDATE session SET name = ?2, head = ?3, used_ns = ?4, checksum = ?5 WHERE id = ?1",
        session.id, std::string_view(session.info.name), nullable(session.info.head),
        session.info.used_ns, checksum_of(session));
}

Status Catalogue::touch(std::string_view name, std::int64_t used_ns) {
    Result<std::optional<SessionRow>> found = session(name);
    // A damaged row is not made to look whole.
    if (found.status().code() == Code::corruption) return {};
    STET_TRY(found.status());
    if (!*found || (*found)->info.used_ns >= used_ns) return {};
    (*found)->info.used_ns = used_ns;
    return update(**found);
}

Status Catalogue::insert(const memory::Schema& schema) {
    Writer writer;
    memory::write_schema(writer, schema);
    return database_->run("INSERT OR IGNORE INTO schema VALUES (?1, ?2)", schema.hash(),
                          std::span<const std::byte>(writer.data()));
}

Result<std::optional<memory::Schema>> Catalogue::schema(const Hash256& hash) {
    if (!has_schemas_) return std::optional<memory::Schema>();
    STET_ASSIGN(Statement row,
                database_->query("SELECT content FROM schema WHERE hash = ?1", hash));
    STET_ASSIGN(const bool found, row.step());
    if (!found) return std::optional<memory::Schema>();
    Reader reader(row.blob(0), "catalogue, a schema");
    STET_ASSIGN(memory::Schema schema, memory::read_schema(reader));
    STET_TRY(reader.finish());
    if (schema.hash() != hash) return damaged("the row of a schema is damaged");
    return std::optional(std::move(schema));
}

Status Catalogue::remove_session(std::string_view name) {
    STET_TRY(database_->run(
        "DELETE FROM pin WHERE session IN (SELECT id FROM session WHERE name = ?1)", name));
    return database_->run("DELETE FROM session WHERE name = ?1", name);
}

Result<TurnId> Catalogue::head_unchecked(std::string_view name) {
    STET_ASSIGN(const auto head,
                database_->number("SELECT head FROM session WHERE name = ?1", name));
    return head.value_or(kNoTurn);
}

Hash128 Catalogue::stored_checksum(const StoredTurn& stored) {
    const TurnRow& row = stored.row;
    Writer writer;
    writer.write_string("turn");
    writer.write(row.turn.id);
    writer.write(row.turn.parent);
    writer.write(row.turn.number);
    writer.write(row.turn.token_begin);
    writer.write(row.turn.token_end);
    writer.write(row.turn.created_ns);
    writer.write(static_cast<std::uint64_t>(stored.tokens.size() / sizeof(state::Token)));
    writer.write_bytes(stored.tokens);
    writer.write(static_cast<std::uint64_t>(stored.sampler.size()));
    writer.write_bytes(stored.sampler);
    writer.write_bytes(std::as_bytes(std::span(row.records.bytes)));
    writer.write_string(stored.content);
    return xxh3_128(writer.data());
}

// As it is kept: in a sealed store all that the turn says is one sealed string.
Result<Catalogue::StoredTurn> Catalogue::stored(const TurnRow& row) const {
    StoredTurn stored;
    stored.row.turn = row.turn;
    stored.row.turn.content.clear();
    stored.row.turn.sampler.clear();
    stored.row.records = row.records;
    const auto tokens = std::as_bytes(std::span(row.tokens));
    if (!sealing_->is_sealed()) {
        stored.tokens.assign(tokens.begin(), tokens.end());
        stored.sampler = row.turn.sampler;
        stored.content = row.turn.content;
        return stored;
    }
    Writer writer;
    writer.write(static_cast<std::uint64_t>(tokens.size()));
    writer.write_bytes(tokens);
    writer.write(static_cast<std::uint64_t>(row.turn.sampler.size()));
    writer.write_bytes(row.turn.sampler);
    writer.write_string(row.turn.content);
    STET_ASSIGN(stored.tokens, sealing_->seal_turn(writer.take(), row.turn.id));
    return stored;
}

Result<TurnRow> Catalogue::turn_of(StoredTurn stored) const {
    TurnRow row = std::move(stored.row);
    if (!sealing_->is_sealed()) {
        row.tokens = tokens_of(stored.tokens);
        row.turn.sampler = std::move(stored.sampler);
        row.turn.content = std::move(stored.content);
        return row;
    }
    Result<std::vector<std::byte>> plain = sealing_->open_turn(stored.tokens, row.turn.id);
    if (plain.status().code() == Code::corruption) {
        return damaged(
            fmt::format("the row of turn id {} {}", row.turn.id, plain.status().message()));
    }
    STET_TRY(plain.status());
    Reader reader(*plain, fmt::format("catalogue, turn id {}", row.turn.id));
    STET_ASSIGN(const auto token_bytes, reader.read<std::uint64_t>("size of the tokens"));
    STET_ASSIGN(const auto tokens, reader.read_bytes(token_bytes, "tokens"));
    STET_ASSIGN(const auto sampler_bytes, reader.read<std::uint64_t>("size of the sampler"));
    STET_ASSIGN(const auto sampler, reader.read_bytes(sampler_bytes, "sampler"));
    STET_ASSIGN(row.turn.content, reader.read_string("content"));
    STET_TRY(reader.finish());
    row.tokens = tokens_of(tokens);
    row.turn.sampler.assign(sampler.begin(), sampler.end());
    return row;
}

Result<TurnRow> Catalogue::turn(TurnId id) {
    STET_ASSIGN(StoredTurn stored, stored_turn(id));
    return turn_of(std::move(stored));
}

Result<Catalogue::StoredTurn> Catalogue::stored_turn(TurnId id) {
    STET_ASSIGN(
        Statement row,
        database_->query("SELECT parent, number, token_begin, token_end, created_ns, tokens, "
                         "sampler, records, checksum, content FROM turn WHERE id = ?1",
                         id));
    STET_ASSIGN(const bool found, row.step());
    if (!found) return damaged(fmt::format("the row of turn id {} is missing", id));
    StoredTurn stored;
    Turn& turn = stored.row.turn;
    turn.id = id;
    turn.parent = row.integer(0);
    turn.number = unsigned_of(row.integer(1));
    turn.token_begin = unsigned_of(row.integer(2));
    turn.token_end = unsigned_of(row.integer(3));
    turn.created_ns = row.integer(4);
    const std::span<const std::byte> tokens = row.blob(5);
    stored.tokens.assign(tokens.begin(), tokens.end());
    const std::span<const std::byte> sampler = row.blob(6);
    stored.sampler.assign(sampler.begin(), sampler.end());
    STET_ASSIGN(stored.row.records, row.digest<16>(7));
    STET_ASSIGN(const Hash128 checksum, row.digest<16>(8));
    stored.content = row.text(9);
    const bool is_odd = !sealing_->is_sealed() && tokens.size() % sizeof(state::Token) != 0;
    if (checksum != stored_checksum(stored) || is_odd) {
        return damaged(fmt::format("the row of turn id {} is damaged", id));
    }
    return stored;
}

Result<std::vector<TurnRow>> Catalogue::path(TurnId head) {
    std::vector<TurnRow> path;
    // A parent is older than its child, so the walk ends whatever the rows say.
    for (TurnId id = head; id != kNoTurn;) {
        STET_ASSIGN(TurnRow row, turn(id));
        if (row.turn.parent >= id) {
            return damaged(fmt::format("turn id {} has parent {}", id, row.turn.parent));
        }
        id = row.turn.parent;
        path.push_back(std::move(row));
    }
    std::ranges::reverse(path);
    std::uint64_t number = 0;
    std::uint64_t position = 0;
    for (const TurnRow& row : path) {
        if (row.turn.number != ++number || row.turn.token_begin != position ||
            row.turn.token_end - position != row.tokens.size()) {
            return damaged(fmt::format("turn id {} does not follow its parent", row.turn.id));
        }
        position = row.turn.token_end;
    }
    return path;
}

Result<TurnId> Catalogue::next_turn_id() {
    STET_ASSIGN(const auto last,
                database_->number("SELECT seq FROM sqlite_sequence WHERE name = 'turn'"));
    return last.value_or(0) + 1;
}

Status Catalogue::insert(const TurnRow& row, std::span<const std::int64_t> records) {
    STET_ASSIGN(const StoredTurn turn, stored(row));
    STET_TRY(database_->run(
        "INSERT INTO turn (id, parent, number, token_begin, token_end, created_ns, tokens, "
        "sampler, "
        "records, checksum, content) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        row.turn.id, nullable(row.turn.parent), signed_of(row.turn.number),
        signed_of(row.turn.token_begin), signed_of(row.turn.token_end), row.turn.created_ns,
        std::span<const std::byte>(turn.tokens), std::span<const std::byte>(turn.sampler),
        row.records, stored_checksum(turn), std::string_view(turn.content)));
    for (const std::int64_t record : records) {
        STET_TRY(database_->run("INSERT INTO turn_record VALUES (?1, ?2)", row.turn.id, record));
    }
    return {};
}

Status Catalogue::forget_records(TurnId id) {
    STET_ASSIGN(StoredTurn stored, stored_turn(id));
    stored.row.records = keys_checksum({});
    STET_TRY(database_->run("DELETE FROM turn_record WHERE turn = ?1", id));
    return database_->run("UPDATE turn SET records = ?2, checksum = ?3 WHERE id = ?1", id,
                          stored.row.records, stored_checksum(stored));
}

Status Catalogue::prune(TurnId turn) {
    while (turn != kNoTurn) {
        STET_ASSIGN(const auto needed,
                    database_->number("SELECT EXISTS (SELECT 1 FROM turn WHERE parent = ?1) OR "
                                      "EXISTS (SELECT 1 FROM session WHERE head = ?1)",
                                      turn));
        if (needed != 0) return {};
        STET_ASSIGN(const auto parent,
                    database_->number("SELECT parent FROM turn WHERE id = ?1", turn));
        STET_TRY(database_->run("DELETE FROM turn_record WHERE turn = ?1", turn));
        STET_TRY(database_->run("DELETE FROM turn WHERE id = ?1", turn));
        turn = parent.value_or(kNoTurn);
    }
    return {};
}

Result<std::optional<RecordRow>> Catalogue::record(const Hash256& key) {
    STET_ASSIGN(
        Statement row,
        database_->query(
            "SELECT id, segment, offset, size_bytes, checksum FROM record WHERE key = ?1", key));
    STET_ASSIGN(const bool found, row.step());
    if (!found) return std::optional<RecordRow>();
    RecordRow record;
    record.id = row.integer(0);
    record.place.segment = unsigned_of(row.integer(1));
    record.place.offset = unsigned_of(row.integer(2));
    record.place.size_bytes = unsigned_of(row.integer(3));
    STET_ASSIGN(record.place.checksum, row.digest<16>(4));
    return std::optional(record);
}

Result<std::int64_t> Catalogue::insert(const Hash256& key, const Place& place) {
    STET_ASSIGN(Statement row,
                database_->query("INSERT INTO record (key, segment, offset, size_bytes, checksum) "
                                 "VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id",
                                 key, signed_of(place.segment), signed_of(place.offset),
                                 signed_of(place.size_bytes), place.checksum));
    STET_ASSIGN(const bool found, row.step());
    if (!found) return Status(Code::internal, "the catalogue gave a new record no id");
    const std::int64_t id = row.integer(0);
    STET_TRY(row.step().status());
    return id;
}

Status Catalogue::move(std::int64_t record, const Place& place) {
    return database_->run(
        "UPDATE record SET segment = ?2, offset = ?3, size_bytes = ?4, checksum = ?5 WHERE id = ?1",
        record, signed_of(place.segment), signed_of(place.offset), signed_of(place.size_bytes),
        place.checksum);
}

Result<Catalogue::SegmentEnd> Catalogue::last_segment() {
    STET_ASSIGN(Statement row, database_->query("SELECT segment, offset, size_bytes FROM record "
                                                "ORDER BY segment DESC, offset DESC LIMIT 1"));
    STET_ASSIGN(const bool found, row.step());
    if (!found) return SegmentEnd();
    const Place place{
        unsigned_of(row.integer(0)), unsigned_of(row.integer(1)), unsigned_of(row.integer(2)), {}};
    return SegmentEnd{place.segment, place.end()};
}

}  // namespace stet::store
