// What bounds the directory: eviction, expiry and the numbers that they go by. Evicting a session
// takes its records and leaves its turns with their tokens, so that it can be computed again.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>

#include "store/directory_store.h"

namespace stet::store {
namespace {

constexpr std::uint64_t kSlackOfLimit = 32;           // freed beyond need: one part in
constexpr std::uint64_t kSparsePercentWhenFull = 85;  // segments with less live bytes are copied
constexpr std::size_t kTurnsAtOnce = 16;              // evicted in one transaction

}  // namespace

// As long as it is short of the reserve, a small change always fits.
Status DirectoryStore::make_log_room() {
    if (is_tight_) {
        // Whether it helped is for the change to say that follows.
        static_cast<void>(catalogue_.empty_log());
        return {};
    }
    if (!budget_->is_bounded()) return {};
    const std::uint64_t log_bytes = budget_->used_bytes() - budget_->segment_bytes();
    if (log_bytes < budget_->log_bytes_wanted()) return {};
    return catalogue_.empty_log();
}

Status DirectoryStore::no_room(std::uint64_t bytes, std::string_view advice) const {
    return Status(Code::resource_exhausted,
                  fmt::format("store '{}' has no room for {} bytes more: it holds {}, its limit is "
                              "{} (0: none), {} must stay free on the disk; {}",
                              directory_.string(), bytes, budget_->file_bytes(),
                              budget_->limit_bytes(), budget_->floor_bytes(), advice));
}

Status DirectoryStore::explained(Status status) {
    const bool was_refused = budget_->take_refused();
    if (!was_refused || status.code() != Code::resource_exhausted) return status;
    return std::move(status).with_context(fmt::format(
        "store '{}': its limit of {} bytes, or of {} left free, is reached; raise it, or remove "
        "sessions",
        directory_.string(), budget_->limit_bytes(), budget_->floor_bytes()));
}

// Frees more than it must, so that not every commit into a full store has to.
Result<bool> DirectoryStore::make_room(std::uint64_t bytes, const std::set<std::int64_t>& spared) {
    STET_ASSIGN(bool fits, budget_->has_room(bytes));
    if (fits) return false;
    if (budget_->limit_bytes() != 0 && bytes > budget_->limit_bytes()) {
        return no_room(bytes, "raise the limit");  // nothing is taken from others in vain
    }
    STET_TRY(catalogue_.empty_log());
    STET_ASSIGN(fits, budget_->has_room(bytes));
    if (fits) return false;

    std::vector<SessionRow> sessions;  // longest unused first
    STET_ASSIGN(std::vector<SessionInfo> infos, sessions_by_use());
    std::ranges::reverse(infos);
    for (const SessionInfo& info : infos) {
        STET_ASSIGN(SessionRow row, require(info.name));
        if (row.info.head != kNoTurn) sessions.push_back(std::move(row));
    }
    const std::uint64_t wanted = bytes + budget_->limit_bytes() / kSlackOfLimit;
    STET_TRY(check_liveness());
    writer_->rotate();
    for (std::size_t next = 0;;) {
        {
            const DiskBudget::Shrinking shrinking(*budget_);
            STET_TRY(collect(kSparsePercentWhenFull).status());
            STET_TRY(catalogue_.empty_log());
        }
        STET_ASSIGN(fits, budget_->has_room(wanted));
        const auto may_go = [&](const SessionRow& row) {
            return !spared.contains(row.id) && !row.info.is_pinned;
        };
        while (next < sessions.size() && !may_go(sessions[next])) ++next;
        if (fits || next == sessions.size()) break;
        std::vector<SessionRow> kept(sessions.begin() + static_cast<std::ptrdiff_t>(next) + 1,
                                     sessions.end());
        std::ranges::copy_if(sessions.begin(), sessions.begin() + static_cast<std::ptrdiff_t>(next),
                             std::back_inserter(kept), std::not_fn(may_go));
        const DiskBudget::Shrinking shrinking(*budget_);
        STET_TRY(evict(sessions[next++], kept));
    }
    STET_ASSIGN(fits, budget_->has_room(bytes));
    if (fits) return true;
    return no_room(bytes, "raise the limit, or remove or unpin sessions");
}

// The records of turns that no session which is to keep its state has on its way. Turns shared with
// sessions evicted before list none any more.
Status DirectoryStore::evict(const SessionRow& session, const std::vector<SessionRow>& kept) {
    std::set<TurnId> needed;
    for (const SessionRow& other : kept) {
        STET_ASSIGN(const std::vector<TurnRow> path, catalogue_.path(other.info.head));
        for (const TurnRow& row : path) needed.insert(row.turn.id);
    }
    STET_ASSIGN(std::vector<TurnRow> path, catalogue_.path(session.info.head));
    std::erase_if(path, [&](const TurnRow& row) { return needed.contains(row.turn.id); });
    paths_.clear();
    // The last turn first: a crash on the way leaves a state that is missing, not one with a hole.
    std::ranges::reverse(path);
    for (std::size_t begin = 0; begin < path.size(); begin += kTurnsAtOnce) {
        STET_TRY(make_log_room());
        STET_ASSIGN(Transaction transaction, catalogue_.begin());
        for (std::size_t i = begin; i < std::min(begin + kTurnsAtOnce, path.size()); ++i) {
            STET_TRY(catalogue_.forget_records(path[i].turn.id));
        }
        STET_TRY(explained(transaction.commit()));
    }
    return {};
}

Status DirectoryStore::remove_expired(Reclaimed& reclaimed) {
    if (options_.ttl.count() == 0) return {};
    const std::int64_t now = stamp();
    STET_ASSIGN(const std::vector<SessionInfo> sessions, sessions_by_use());
    for (const SessionInfo& session : sessions) {
        if (session.is_pinned || now - session.used_ns <= options_.ttl.count()) continue;
        STET_TRY(make_log_room());
        STET_ASSIGN(Transaction transaction, catalogue_.begin());
        STET_TRY(catalogue_.remove_session(session.name));
        STET_TRY(catalogue_.prune(session.head));
        STET_TRY(explained(transaction.commit()));
        ++reclaimed.sessions;
    }
    return {};
}

}  // namespace stet::store
