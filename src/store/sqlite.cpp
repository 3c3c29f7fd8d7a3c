#include "store/sqlite.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace stet::store {
namespace {

constexpr int kBusyWaitMs = 2000;
// A catalogue that needs more to say what it holds is not one of ours.
constexpr int kLongestValueBytes = 256 << 20;

Code code_of(int extended, int system_errno) {
    switch (extended & 0xff) {
        case SQLITE_OK:
        case SQLITE_ROW:
        case SQLITE_DONE:
            return Code::ok;
        case SQLITE_FULL:
        case SQLITE_NOMEM:
            return Code::resource_exhausted;
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
        case SQLITE_PROTOCOL:
            return Code::conflict;
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
        case SQLITE_FORMAT:
            return Code::corruption;
        case SQLITE_IOERR:
            if (extended == SQLITE_IOERR_NOMEM) return Code::resource_exhausted;
            if (extended == SQLITE_IOERR_CORRUPTFS) return Code::corruption;
            if (system_errno == ENOSPC || system_errno == EDQUOT) return Code::resource_exhausted;
            return Code::io;
        case SQLITE_CANTOPEN:
        case SQLITE_PERM:
        case SQLITE_READONLY:
            return Code::io;
        case SQLITE_TOOBIG:
            return Code::invalid_argument;
        default:
            return Code::internal;
    }
}

// `path` as part of an SQLite URI.
std::string uri_path(const std::filesystem::path& path) {
    const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
    std::string text;
    for (const char c : absolute) {
        if (c == '%' || c == '?' || c == '#' || c == '&') {
            text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        } else {
            text += c;
        }
    }
    return text;
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      handle_(std::exchange(other.handle_, nullptr)),
      bound_(other.bound_),
      bind_error_(other.bind_error_) {}

Statement::~Statement() {
    if (handle_ != nullptr) database_->give_back(handle_);
}

void Statement::note(int code) {
    if (bind_error_ == SQLITE_OK) bind_error_ = code;
}

void Statement::bind(std::int64_t value) {
    note(sqlite3_bind_int64(handle_, ++bound_, value));
}

void Statement::bind(std::optional<std::int64_t> value) {
    if (value) return bind(*value);
    note(sqlite3_bind_null(handle_, ++bound_));
}

void Statement::bind(std::string_view text) {
    // An empty view may have a null pointer, which SQLite would take for NULL.
    const char* data = text.empty() ? "" : text.data();
    note(sqlite3_bind_text64(handle_, ++bound_, data, text.size(), SQLITE_STATIC, SQLITE_UTF8));
}

void Statement::bind(std::span<const std::byte> bytes) {
    const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
    note(sqlite3_bind_blob64(handle_, ++bound_, data, bytes.size(), SQLITE_STATIC));
}

Result<bool> Statement::step() {
    if (bind_error_ != SQLITE_OK) return database_->failure(bind_error_, sqlite3_sql(handle_));
    const int code = sqlite3_step(handle_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return database_->failure(code, sqlite3_sql(handle_));
}

bool Statement::is_null(int column) const {
    return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

std::int64_t Statement::integer(int column) const {
    return sqlite3_column_int64(handle_, column);
}

std::string_view Statement::text(int column) const {
    const unsigned char* data = sqlite3_column_text(handle_, column);
    if (data == nullptr) return {};
    return {reinterpret_cast<const char*>(data),
            static_cast<std::size_t>(sqlite3_column_bytes(handle_, column))};
}

std::span<const std::byte> Statement::blob(int column) const {
    const void* data = sqlite3_column_blob(handle_, column);
    if (data == nullptr) return {};
    return {static_cast<const std::byte*>(data),
            static_cast<std::size_t>(sqlite3_column_bytes(handle_, column))};
}

Status Statement::wrong_size(int column, std::size_t expected, std::size_t found) const {
    return Status(Code::corruption,
                  fmt::format("catalogue '{}': column '{}' holds {} bytes, expected {}",
                              database_->path_.string(), sqlite3_column_name(handle_, column),
                              found, expected));
}

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& path,
                                                 const std::filesystem::path& rights_of,
                                                 DiskBudget* budget) {
    std::unique_ptr<Database> database(new Database(path));
    if (budget != nullptr) database->vfs_ = std::make_unique<MeteredVfs>(*budget);
    const bool read_only = rights_of.empty();
    std::string uri = "file://" + uri_path(path);
    if (!read_only) uri += "?modeof=" + uri_path(rights_of);
    const int flags =
        (read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) |
        SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    const char* vfs = database->vfs_ != nullptr ? database->vfs_->name().c_str() : nullptr;
    const int code = sqlite3_open_v2(uri.c_str(), &database->handle_, flags, vfs);
    if (code != SQLITE_OK) return database->failure(code, "open");
    sqlite3* handle = database->handle_;
    sqlite3_busy_timeout(handle, kBusyWaitMs);
    // A damaged or hostile file must not run anything through its schema.
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kLongestValueBytes);
    STET_TRY(
        database->script("PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON; "
                         "PRAGMA temp_store = MEMORY;"));
    return database;
}

Database::~Database() {
    for (auto& [sql, handles] : idle_) {
        for (sqlite3_stmt* handle : handles) sqlite3_finalize(handle);
    }
    sqlite3_close_v2(handle_);
}

Result<Statement> Database::prepare(std::string_view sql) {
    std::vector<sqlite3_stmt*>& idle = idle_[std::string(sql)];
    if (!idle.empty()) {
        sqlite3_stmt* handle = idle.back();
        idle.pop_back();
        return Statement(this, handle);
    }
    sqlite3_stmt* handle = nullptr;
    const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
    if (code == SQLITE_OK) return Statement(this, handle);
    // The statements are ours and tested, so a table that does not fit them was damaged.
    if (code == SQLITE_ERROR) {
        return Status(Code::corruption,
                      fmt::format("catalogue '{}': its tables are not as expected: {}",
                                  path_.string(), sqlite3_errmsg(handle_)));
    }
    return failure(code, sql);
}

void Database::give_back(sqlite3_stmt* handle) noexcept {
    sqlite3_reset(handle);
    sqlite3_clear_bindings(handle);
    try {
        idle_[sqlite3_sql(handle)].push_back(handle);
    } catch (const std::bad_alloc&) {
        sqlite3_finalize(handle);
    }
}

Status Database::finish(Statement statement) {
    while (true) {
        STET_ASSIGN(const bool row, statement.step());
        if (!row) return {};
    }
}

Status Database::script(const char* sql) {
    const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? Status() : failure(code, sql);
}

void Database::undo() noexcept {
    sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

Status Database::failure(int code, std::string_view what) const {
    const int system_errno = handle_ != nullptr ? sqlite3_system_errno(handle_) : 0;
    const Code mapped = code_of(code, system_errno);
    const char* reason = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
    const std::string_view verb = what.substr(0, what.find(' '));
    return Status(
        mapped == Code::ok ? Code::internal : mapped,
        fmt::format("catalogue '{}': {}: {} (SQLite code {})", path_.string(), verb, reason, code));
}

Result<Transaction> Transaction::begin(Database& database) {
    STET_TRY(database.run("BEGIN IMMEDIATE"));
    return Transaction(&database);
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
    // SQLite undoes some failed transactions by itself. A failing ROLLBACK leaves nothing to do:
    // what was not committed is not visible either way.
    if (database_ != nullptr && database_->in_transaction()) database_->undo();
}

Status Transaction::commit() {
    STET_TRY(database_->run("COMMIT"));
    database_ = nullptr;
    return {};
}

}  // namespace stet::store
