#include "store/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "store/directory_store.h"
#include "store/names.h"

namespace stet::store {
namespace {

constexpr std::uint64_t kSegmentsInLimit = 16;
constexpr std::size_t kUsesAtOnce = 4;
constexpr std::uint64_t kReserveBytes = 1U << 20;
constexpr std::int64_t kNamesCompared = 10000;  // for "did you mean"

// The numbers of the segment files that are there.
Result<std::vector<std::uint64_t>> segment_numbers(Env& env, const std::filesystem::path& store) {
    std::vector<std::uint64_t> numbers;
    const Result<std::vector<std::string>> names = env.list(segments_path(store));
    if (names.status().code() == Code::not_found) return numbers;
    STET_TRY(names.status());
    for (const std::string& name : *names) {
        if (const std::uint64_t number = segment_number(name); number != 0) {
            numbers.push_back(number);
        }
    }
    return numbers;
}

Result<std::uint64_t> catalogue_size(Env& env, const std::filesystem::path& store) {
    const Result<FileInfo> info = env.info(catalogue_path(store));
    if (info.is_ok()) return info->size_bytes;
    if (info.status().code() == Code::not_found) return std::uint64_t{0};
    return info.status();
}

Result<std::unique_ptr<Store>> open_owned(Env& env, const std::filesystem::path& directory,
                                          const StoreOptions& options) {
    if (options.disk_limit_bytes != 0 && options.disk_limit_bytes < DiskBudget::kLimitMinBytes) {
        return Status(Code::invalid_argument,
                      fmt::format("a disk limit of {} bytes is too small for a store; give at "
                                  "least {}",
                                  options.disk_limit_bytes, DiskBudget::kLimitMinBytes));
    }
    STET_TRY(env.make_directory(directory));
    STET_ASSIGN(std::unique_ptr<FileLock> lock, env.lock(directory / "lock"));
    STET_ASSIGN(const std::vector<std::uint64_t> numbers, segment_numbers(env, directory));
    STET_ASSIGN(const std::uint64_t size, catalogue_size(env, directory));
    // The catalogue is durable before the first segment is made, so this is damage; going on would
    // turn every conversation into garbage.
    if (size == 0 && !numbers.empty()) {
        return Status(
            Code::corruption,
            fmt::format("catalogue '{}' is missing, but segments are there: put it back, or "
                        "move '{}' away",
                        catalogue_path(directory).string(), segments_path(directory).string()));
    }
    auto budget = std::make_unique<DiskBudget>(env, directory, options.disk_limit_bytes,
                                               options.free_floor_bytes);
    STET_ASSIGN(Catalogue catalogue, Catalogue::open(catalogue_path(directory), directory / "lock",
                                                     budget.get(), options.key));
    STET_TRY(env.sync_directory(directory));
    STET_TRY(env.make_directory(segments_path(directory)));
    STET_TRY(budget->count_segments());
    if (budget->is_bounded()) STET_TRY(catalogue.empty_log());
    STET_ASSIGN(const Catalogue::SegmentEnd last, catalogue.last_segment());
    std::uint64_t highest = last.number;
    for (const std::uint64_t number : numbers) highest = std::max(highest, number);
    std::uint64_t segment_bytes = options.segment_bytes;
    if (options.disk_limit_bytes != 0) {
        // Space comes back by the segment.
        segment_bytes = std::min(segment_bytes, options.disk_limit_bytes / kSegmentsInLimit);
    }
    STET_ASSIGN(SegmentWriter writer,
                SegmentWriter::open(env, segments_path(directory), last.number, last.end,
                                    highest + 1, segment_bytes, catalogue.sealing(), budget.get()));
    return std::unique_ptr<Store>(std::make_unique<DirectoryStore>(
        env, directory, options, std::move(lock), std::move(budget), std::move(catalogue),
        std::move(writer)));
}

Result<std::unique_ptr<Store>> open_shared(Env& env, const std::filesystem::path& directory,
                                           const StoreOptions& options) {
    STET_ASSIGN(const std::uint64_t size, catalogue_size(env, directory));
    if (size == 0) {
        return Status(Code::not_found, fmt::format("no store is in '{}'", directory.string()));
    }
    STET_ASSIGN(Catalogue catalogue,
                Catalogue::open(catalogue_path(directory), {}, nullptr, options.key));
    return std::unique_ptr<Store>(std::make_unique<DirectoryStore>(
        env, directory, options, nullptr, nullptr, std::move(catalogue), std::nullopt));
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(Env& env, const std::filesystem::path& directory,
                                           const StoreOptions& options) {
    try {
        Result<std::unique_ptr<Store>> store = options.read_only
                                                   ? open_shared(env, directory, options)
                                                   : open_owned(env, directory, options);
        if (store.is_ok()) return store;
        return store.status().with_context(fmt::format("store '{}'", directory.string()));
    } catch (const std::bad_alloc&) {
        return no_memory();
    } catch (const std::exception& error) {
        return Status(Code::internal,
                      fmt::format("store '{}': {}", directory.string(), error.what()));
    }
}

DirectoryStore::DirectoryStore(Env& env, std::filesystem::path directory, StoreOptions options,
                               std::unique_ptr<FileLock> lock, std::unique_ptr<DiskBudget> budget,
                               Catalogue catalogue, std::optional<SegmentWriter> writer)
    : env_(&env),
      directory_(std::move(directory)),
      options_(std::move(options)),
      lock_(std::move(lock)),
      budget_(std::move(budget)),
      catalogue_(std::move(catalogue)),
      id_salt_(catalogue_.sealing().id_salt(options_.tenant)),
      reader_(env, segments_path(directory_), catalogue_.sealing()),
      writer_(std::move(writer)) {
    options_.key.reset();  // what is derived from it is enough
    make_reserve();
}

DirectoryStore::~DirectoryStore() {
    if (!writer_ || used_.empty()) return;
    // A use that is not written down costs nothing but an order of eviction.
    static_cast<void>(guarded([&]() -> Status {
        const DiskBudget::Shrinking shrinking(*budget_);
        STET_TRY(make_log_room());
        STET_ASSIGN(Transaction transaction, catalogue_.begin());
        STET_TRY(write_uses());
        return transaction.commit();
    }));
}

// Best effort: a disk that is full already has no room for it.
void DirectoryStore::make_reserve() {
    if (!writer_ || budget_->is_bounded()) return;
    const std::filesystem::path path = reserve_path(directory_);
    if (env_->info(path)) return;
    Result<std::unique_ptr<File>> file = env_->open(path, OpenMode::create_new);
    if (!file) return;
    const std::vector<std::byte> zeroes(kReserveBytes);
    if (!(*file)->write_at(0, zeroes)) static_cast<void>(env_->remove(path));
}

Status DirectoryStore::check_writable() const {
    if (writer_) return {};
    return Status(Code::invalid_argument,
                  fmt::format("store '{}' was opened to be read only", directory_.string()));
}

// Nanoseconds since the epoch, never the same twice, so that an order of use is one.
std::int64_t DirectoryStore::stamp() {
    const auto since = env_->now().time_since_epoch();
    const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    last_stamp_ = std::max(now, last_stamp_ + 1);
    return last_stamp_;
}

Result<SessionRow> DirectoryStore::require(std::string_view name) {
    STET_TRY(check_name(name));
    STET_ASSIGN(std::optional<SessionRow> session, catalogue_.session(name));
    if (session) return std::move(*session);
    STET_ASSIGN(const std::vector<std::string> names, catalogue_.names(kNamesCompared));
    const std::vector<std::string> close = close_names(name, names);
    if (close.empty()) {
        return Status(Code::not_found, fmt::format("no session is named '{}'", name));
    }
    return Status(Code::not_found, fmt::format("no session is named '{}'; close are: '{}'", name,
                                               fmt::join(close, "', '")));
}

Status DirectoryStore::require_free(std::string_view name) {
    STET_TRY(check_name(name));
    STET_ASSIGN(const std::optional<SessionRow> session, catalogue_.session(name));
    if (!session) return {};
    return Status(Code::already_exists, fmt::format("a session is already named '{}'", name));
}

Status DirectoryStore::require_turn(const SessionRow& session, TurnId turn) {
    if (turn == kNoTurn || turn == session.info.head) return {};
    STET_ASSIGN(const std::vector<TurnRow> path, catalogue_.path(session.info.head));
    const auto is_it = [turn](const TurnRow& row) { return row.turn.id == turn; };
    if (std::ranges::any_of(path, is_it)) return {};
    return Status(Code::not_found,
                  fmt::format("session '{}' has no turn with id {}", session.info.name, turn));
}

Result<SessionInfo> DirectoryStore::add_session(SessionRow row) {
    row.info.created_ns = stamp();
    row.info.used_ns = row.info.created_ns;
    STET_TRY(make_room(kNewSessionBytes, {row.id}).status());
    STET_ASSIGN(Transaction transaction, catalogue_.begin());
    STET_TRY(catalogue_.insert(row).status());
    // The answer is made before the commit: nothing may fail after it.
    STET_ASSIGN(SessionRow added, require(row.info.name));
    STET_TRY(explained(transaction.commit()));
    return std::move(added.info);
}

Result<SessionInfo> DirectoryStore::create(std::string_view name, const Hash256& fingerprint,
                                           const memory::Schema& schema,
                                           std::string_view model_name,
                                           std::string_view model_path) {
    return guarded([&]() -> Result<SessionInfo> {
        STET_TRY(check_writable());
        STET_TRY(require_free(name));
        SessionRow row;
        row.info.name = name;
        row.info.fingerprint = fingerprint;
        row.info.schema_hash = schema.hash();
        row.info.model_name = model_name;
        row.info.model_path = model_path;
        row.root = state::root_id(fingerprint, schema, id_salt_);
        return add_session(std::move(row));
    });
}

Result<SessionInfo> DirectoryStore::find(std::string_view name) {
    return guarded([&]() -> Result<SessionInfo> {
        STET_ASSIGN(SessionRow session, require(name));
        const auto used = used_.find(name);
        if (used != used_.end()) {
            session.info.used_ns = std::max(session.info.used_ns, used->second);
        }
        return std::move(session.info);
    });
}

Result<std::vector<SessionInfo>> DirectoryStore::list() {
    return guarded([&] { return sessions_by_use(); });
}

Result<std::vector<SessionInfo>> DirectoryStore::sessions_by_use() {
    STET_ASSIGN(std::vector<SessionInfo> sessions, catalogue_.sessions());
    if (used_.empty()) return sessions;
    for (SessionInfo& session : sessions) {
        const auto used = used_.find(session.name);
        if (used != used_.end()) session.used_ns = std::max(session.used_ns, used->second);
    }
    std::ranges::stable_sort(sessions, std::greater<>(), &SessionInfo::used_ns);
    return sessions;
}

Status DirectoryStore::write_uses() {
    auto use = used_.begin();
    for (std::size_t i = 0; i < kUsesAtOnce && use != used_.end(); ++i) {
        STET_TRY(catalogue_.touch(use->first, use->second));
        use = used_.erase(use);  // should the transaction fail, an order of use is lost
    }
    return {};
}

Result<memory::Schema> DirectoryStore::schema(std::string_view name) {
    return guarded([&]() -> Result<memory::Schema> {
        STET_ASSIGN(const SessionRow session, require(name));
        STET_ASSIGN(auto schema, catalogue_.schema(session.info.schema_hash));
        if (schema) return std::move(*schema);
        return Status(
            Code::not_found,
            fmt::format("session '{}' is of a version that did not note what its state is "
                        "made of: continue it by one turn first",
                        name));
    });
}

Result<std::vector<Turn>> DirectoryStore::turns(std::string_view name) {
    return guarded([&]() -> Result<std::vector<Turn>> {
        STET_ASSIGN(const SessionRow session, require(name));
        STET_ASSIGN(std::vector<TurnRow> path, catalogue_.path(session.info.head));
        std::vector<Turn> turns;
        for (TurnRow& row : path) turns.push_back(std::move(row.turn));
        return turns;
    });
}

Result<std::vector<state::Token>> DirectoryStore::tokens(std::string_view name) {
    return guarded([&]() -> Result<std::vector<state::Token>> {
        STET_ASSIGN(const SessionRow session, require(name));
        STET_ASSIGN(const std::vector<TurnRow> path, catalogue_.path(session.info.head));
        std::vector<state::Token> tokens;
        for (const TurnRow& row : path) {
            tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
        }
        return tokens;
    });
}

Result<SessionInfo> DirectoryStore::fork(std::string_view from, std::string_view to,
                                         std::optional<TurnId> turn) {
    return guarded([&]() -> Result<SessionInfo> {
        STET_TRY(check_writable());
        STET_ASSIGN(SessionRow row, require(from));
        STET_TRY(require_free(to));
        if (turn) STET_TRY(require_turn(row, *turn));
        row.info.name = to;
        row.info.head = turn.value_or(row.info.head);
        return add_session(std::move(row));
    });
}

Status DirectoryStore::rollback(std::string_view name, TurnId turn) {
    return guarded([&] {
        return with_reserve([&]() -> Status {
            STET_TRY(check_writable());
            STET_ASSIGN(SessionRow row, require(name));
            STET_TRY(require_turn(row, turn));
            const TurnId old_head = row.info.head;
            row.info.head = turn;
            row.info.used_ns = stamp();
            const DiskBudget::Shrinking shrinking(*budget_);
            STET_TRY(make_log_room());
            STET_ASSIGN(Transaction transaction, catalogue_.begin());
            STET_TRY(catalogue_.update(row));
            STET_TRY(catalogue_.prune(old_head));
            return explained(transaction.commit());
        });
    });
}

Status DirectoryStore::rename(std::string_view from, std::string_view to) {
    return guarded([&] {
        return with_reserve([&]() -> Status {
            STET_TRY(check_writable());
            STET_ASSIGN(SessionRow row, require(from));
            if (from == to) return {};
            STET_TRY(require_free(to));
            row.info.name = to;
            const DiskBudget::Shrinking shrinking(*budget_);
            STET_TRY(make_log_room());
            STET_ASSIGN(Transaction transaction, catalogue_.begin());
            STET_TRY(catalogue_.update(row));
            return explained(transaction.commit());
        });
    });
}

Status DirectoryStore::remove(std::string_view name) {
    return guarded([&] {
        return with_reserve([&]() -> Status {
            STET_TRY(check_writable());
            // A session whose row is damaged can be removed all the same.
            const Status found = require(name).status();
            if (!found.is_ok() && found.code() != Code::corruption) return found;
            const DiskBudget::Shrinking shrinking(*budget_);
            STET_TRY(make_log_room());
            STET_ASSIGN(Transaction transaction, catalogue_.begin());
            STET_ASSIGN(const TurnId head, catalogue_.head_unchecked(name));
            STET_TRY(catalogue_.remove_session(name));
            STET_TRY(catalogue_.prune(head));
            STET_TRY(explained(transaction.commit()));
            if (const auto at = lacking_.find(name); at != lacking_.end()) lacking_.erase(at);
            if (const auto at = used_.find(name); at != used_.end()) used_.erase(at);
            return {};
        });
    });
}

Status DirectoryStore::pin(std::string_view name, bool is_pinned) {
    return guarded([&] {
        return with_reserve([&]() -> Status {
            STET_TRY(check_writable());
            STET_ASSIGN(const SessionRow session, require(name));
            if (session.info.is_pinned == is_pinned) return {};
            const DiskBudget::Shrinking shrinking(*budget_);
            STET_TRY(make_log_room());
            STET_ASSIGN(Transaction transaction, catalogue_.begin());
            STET_TRY(catalogue_.set_pinned(session.id, is_pinned));
            return explained(transaction.commit());
        });
    });
}

std::filesystem::path default_store_directory() {
    const char* data_home = std::getenv("XDG_DATA_HOME");
    // The XDG rules say that a relative path counts as none.
    if (data_home != nullptr && data_home[0] == '/') {
        return std::filesystem::path(data_home) / "stet";
    }
    const char* home = std::getenv("HOME");
    if (home != nullptr && home[0] != '\0') {
        return std::filesystem::path(home) / ".local" / "share" / "stet";
    }
    return std::filesystem::path(".stet");
}

}  // namespace stet::store
