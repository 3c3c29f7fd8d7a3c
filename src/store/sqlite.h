// A thin owner of a SQLite connection: errors as Status, statements prepared once and kept.
//
// Thread rules: a Database and its Statements belong to one thread at a time (the store's mutex).
#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/try.h"
#include "stet/status.h"
#include "store/metered_vfs.h"

namespace stet::store {

class Database;

// One execution of a prepared statement. Its values are valid until the next step(). Given back to
// the database's cache when destroyed.
class Statement {
  public:
    Statement(Statement&& other) noexcept;
    Statement& operator=(Statement&&) = delete;
    ~Statement();

    // Values for ?1, ?2, ... in order; they must outlive the last step().
    void bind(std::int64_t value);
    void bind(std::optional<std::int64_t> value);
    void bind(std::string_view text);
    void bind(std::span<const std::byte> bytes);
    template <std::size_t N>
    void bind(const Digest<N>& digest) {
        bind(std::as_bytes(std::span(digest.bytes)));
    }

    // True: a row is there. False: done.
    Result<bool> step();

    bool is_null(int column) const;
    std::int64_t integer(int column) const;
    std::string_view text(int column) const;
    std::span<const std::byte> blob(int column) const;
    // corruption unless the column holds exactly that many bytes.
    template <std::size_t N>
    Result<Digest<N>> digest(int column) const {
        const std::span<const std::byte> bytes = blob(column);
        if (bytes.size() != N) return wrong_size(column, N, bytes.size());
        Digest<N> digest;
        std::memcpy(digest.bytes.data(), bytes.data(), N);
        return digest;
    }

  private:
    friend class Database;
    Statement(Database* database, sqlite3_stmt* handle) : database_(database), handle_(handle) {}
    Status wrong_size(int column, std::size_t expected, std::size_t found) const;
    void note(int code);

    Database* database_;
    sqlite3_stmt* handle_;
    int bound_ = 0;
    int bind_error_ = SQLITE_OK;
};

class Database {
  public:
    // Makes the file when missing, with the rights of the file `rights_of`; with an empty
    // `rights_of` it is opened for reading only and must exist. What it writes is held against
    // `budget`, unless that is null.
    static Result<std::unique_ptr<Database>> open(const std::filesystem::path& path,
                                                  const std::filesystem::path& rights_of,
                                                  DiskBudget* budget);
    ~Database();
    Database(const Database&) = delete;
    Database& operator=(const Database&) = delete;

    // A bound statement, ready to step.
    template <typename... Values>
    Result<Statement> query(std::string_view sql, const Values&... values) {
        Result<Statement> statement = prepare(sql);
        if (statement.is_ok()) (statement->bind(values), ...);
        return statement;
    }
    // Steps through a statement whose rows are of no interest.
    template <typename... Values>
    Status run(std::string_view sql, const Values&... values) {
        STET_ASSIGN(Statement statement, query(sql, values...));
        return finish(std::move(statement));
    }
    // The integer of the first row, none without a row.
    template <typename... Values>
    Result<std::optional<std::int64_t>> number(std::string_view sql, const Values&... values) {
        STET_ASSIGN(Statement statement, query(sql, values...));
        STET_ASSIGN(const bool row, statement.step());
        if (!row || statement.is_null(0)) return std::optional<std::int64_t>();
        return std::optional<std::int64_t>(statement.integer(0));
    }
    // Several statements without values, run once.
    Status script(const char* sql);

    bool in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }
    const std::filesystem::path& path() const { return path_; }

  private:
    friend class Statement;
    friend class Transaction;
    explicit Database(std::filesystem::path path) : path_(std::move(path)) {}
    Result<Statement> prepare(std::string_view sql);
    static Status finish(Statement statement);
    Status failure(int code, std::string_view what) const;
    void give_back(sqlite3_stmt* handle) noexcept;
    void undo() noexcept;

    std::filesystem::path path_;
    std::unique_ptr<MeteredVfs> vfs_;  // outlives the handle
    sqlite3* handle_ = nullptr;
    std::unordered_map<std::string, std::vector<sqlite3_stmt*>> idle_;
};

// A write transaction, rolled back unless commit() was called and returned ok.
class Transaction {
  public:
    static Result<Transaction> begin(Database& database);
    Transaction(Transaction&& other) noexcept;
    Transaction& operator=(Transaction&&) = delete;
    ~Transaction();

    // Durable when it returns ok. After a failure of commit() itself the transaction is undone for
    // this process, but may come back, whole, if the process dies before the next one: what its
    // rows name must stay.
    Status commit();

  private:
    explicit Transaction(Database* database) : database_(database) {}
    Database* database_;
};

}  // namespace stet::store
