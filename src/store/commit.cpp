// commit_turn: records first, then the rows that name them. Design, section 4.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "store/directory_store.h"

namespace stet::store {
namespace {

constexpr std::size_t kPathsKept = 16;
// Of SQLite's log, per page that a transaction changes: the frame, and the page that a checkpoint
// may add to the catalogue.
constexpr std::uint64_t kChangedPageBytes = 2 * 4120;
constexpr std::uint64_t kPagesOfTurn = 18;         // that a turn changes without its records
constexpr std::uint64_t kRowsOfRecordBytes = 200;  // appended: its row, its place, its turn's list
constexpr std::uint64_t kPageContentBytes = 3600;
constexpr std::uint64_t kKeysInPage = 40;

Status check_extends(const SessionRow& session, const std::vector<state::Token>& old_tokens,
                     const std::vector<state::Token>& tokens) {
    const auto [in_old, in_new] = std::ranges::mismatch(old_tokens, tokens);
    if (in_old != old_tokens.end()) {
        return Status(Code::conflict,
                      fmt::format("session '{}' has {} tokens; the sequence to commit has {} and "
                                  "differs from token {} on: roll back or fork first",
                                  session.info.name, old_tokens.size(), tokens.size(),
                                  in_old - old_tokens.begin()));
    }
    if (in_new == tokens.end()) {
        return Status(Code::invalid_argument,
                      fmt::format("the sequence to commit adds no token to the {} of session '{}'",
                                  old_tokens.size(), session.info.name));
    }
    return {};
}

}  // namespace

Result<Turn> DirectoryStore::commit_turn(std::string_view name, const memory::Schema& schema,
                                         const state::Sequence& sequence, const NewTurn& turn) {
    try {
        const Commit commit{std::string(name), &sequence, turn, std::nullopt};
        return std::move(commit_turns(schema, {&commit, 1}).front());
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

// Room for the answers is made before anything is committed.
std::vector<Result<Turn>> DirectoryStore::commit_turns(const memory::Schema& schema,
                                                       std::span<const Commit> commits) {
    std::vector<Result<Turn>> answers(commits.size(),
                                      Status(Code::internal, "nothing was committed"));
    std::vector<Pending> batch;
    const Status done = guarded([&]() -> Status {
        STET_TRY(check_writable());
        std::vector<Pending*> ready;
        batch.reserve(commits.size());  // no pointer into it moves
        for (std::size_t i = 0; i < commits.size(); ++i) {
            Pending& pending = pending_of(batch, commits[i]);
            if (pending.status) pending.status = prepare(schema, commits[i], i, pending);
        }
        for (Pending& pending : batch) {
            if (pending.status) ready.push_back(&pending);
        }
        return ready.empty() ? Status() : commit_batch(schema, ready);
    });
    for (std::size_t i = 0; i < commits.size(); ++i) {
        const auto is_it = [&](const Pending& p) {
            return p.session.info.name == commits[i].session;
        };
        const auto pending = std::ranges::find_if(batch, is_it);  // there, if done is ok
        if (!done) {
            answers[i] = done;
        } else if (!pending->status) {
            answers[i] = pending->status;
        } else {
            answers[i] = std::move(pending->steps[pending->answered++].row.turn);
        }
    }
    return answers;
}

// Commits of one session go together.
DirectoryStore::Pending& DirectoryStore::pending_of(std::vector<Pending>& batch,
                                                    const Commit& commit) {
    for (Pending& pending : batch) {
        if (pending.session.info.name == commit.session) return pending;
    }
    Pending& pending = batch.emplace_back();
    pending.session.info.name = commit.session;
    return pending;
}

// What the turn consists of, and where its records are or will be.
Status DirectoryStore::prepare(const memory::Schema& schema, const Commit& commit,
                               std::size_t index, Pending& pending) {
    const state::Sequence& sequence = *commit.sequence;
    const std::string& name = commit.session;
    if (pending.steps.empty()) STET_TRY(find_session(schema, commit, pending));
    STET_TRY(state::validate(schema, sequence));
    if (!sequence.extensions.empty()) {
        // Keys name tokens by their number alone.
        return Status(Code::unimplemented,
                      fmt::format("session '{}': a sequence with media positions can't be kept in "
                                  "a store yet",
                                  name));
    }
    Path& path = pending.path;
    STET_TRY(check_extends(pending.session, path.tokens, sequence.tokens));
    const bool is_lacking = pending.steps.empty() && lacking_.contains(name);
    Step step{index, &commit, {}, {}};
    STET_ASSIGN(step.parts, plan(schema, sequence, path, is_lacking || path.has_evicted));
    const auto is_earlier = [](const Part& part) { return part.is_earlier; };
    const auto is_missing = [](const Part& part) { return part.is_earlier && !part.known; };
    // What was evicted may have been written again with a turn since.
    if (!is_lacking && std::ranges::none_of(step.parts, is_missing)) {
        std::erase_if(step.parts, is_earlier);
    }
    TurnRow& row = step.row;
    row.turn.number = path.ends.size() + 1;
    row.turn.token_begin = path.tokens.size();
    row.turn.token_end = sequence.position();
    row.turn.content = commit.turn.content;
    row.turn.sampler = commit.turn.sampler;
    row.turn.created_ns = stamp();
    row.tokens.assign(sequence.tokens.begin() + static_cast<std::ptrdiff_t>(path.tokens.size()),
                      sequence.tokens.end());
    std::vector<Hash256> keys;
    for (const Part& part : step.parts) keys.push_back(part.extent.key);
    row.records = keys_checksum(std::move(keys));
    // The path of after the commit; a commit that fails forgets it.
    path.ends.push_back(row.turn.token_end);
    path.has_evicted = false;
    path.tokens.insert(path.tokens.end(), row.tokens.begin(), row.tokens.end());
    pending.steps.push_back(std::move(step));
    return {};
}

// The session as it is, or as it will be.
Status DirectoryStore::find_session(const memory::Schema& schema, const Commit& commit,
                                    Pending& pending) {
    if (commit.created) {
        STET_TRY(require_free(commit.session));
        SessionRow& row = pending.session;
        row.info.fingerprint = commit.created->fingerprint;
        row.info.schema_hash = schema.hash();
        row.info.model_name = commit.created->model_name;
        row.info.model_path = commit.created->model_path;
        row.info.created_ns = stamp();
        row.root = state::root_id(row.info.fingerprint, schema, id_salt_);
        pending.path = Path{kNoTurn, {}, {}, state::PrefixIds(row.root)};
        pending.is_new = true;
        return {};
    }
    STET_ASSIGN(pending.session, require(commit.session));
    if (const Hash256 hash = schema.hash(); hash != pending.session.info.schema_hash) {
        return Status(Code::incompatible,
                      fmt::format("session '{}' has state of schema {}, not {}", commit.session,
                                  pending.session.info.schema_hash.hex(), hash.hex()));
    }
    STET_ASSIGN(pending.path, take_path(pending.session));
    return {};
}

Status DirectoryStore::commit_batch(const memory::Schema& schema, std::span<Pending* const> batch) {
    const Status room = make_room_for(batch);
    if (!room && batch.size() > 1) {
        // Not all fit; some may.
        for (Pending* const& pending : batch) pending->status = commit_batch(schema, {&pending, 1});
        return {};
    }
    STET_TRY(room);
    Unnamed unnamed(*writer_);
    STET_TRY(explained(write_records(schema, batch)));
    STET_ASSIGN(Transaction transaction, catalogue_.begin());
    const bool is_schema_kept = kept_schema_ == schema.hash();
    if (!is_schema_kept) STET_TRY(catalogue_.insert(schema));
    for (Pending* pending : batch) STET_TRY(add_rows(*pending));
    STET_TRY(write_uses());
    // Nothing may fail any more once it is committed.
    std::list<Path> paths;
    for (Pending* pending : batch) {
        pending->path.head = pending->session.info.head;
        paths.push_front(std::move(pending->path));
    }
    const Status committed = transaction.commit();
    // Whatever COMMIT says: rows that it could not undo for good may name the records.
    unnamed.keep();
    STET_TRY(explained(committed));

    kept_schema_ = batch.front()->session.info.schema_hash;
    paths_.splice(paths_.begin(), paths);
    while (paths_.size() > kPathsKept) paths_.pop_back();
    for (const Pending* pending : batch) {
        lacking_.erase(pending->session.info.name);
        used_.erase(pending->session.info.name);
    }
    return {};
}

// The path is taken, not lent: a commit that fails has led its prefix ids astray.
Result<DirectoryStore::Path> DirectoryStore::take_path(const SessionRow& session) {
    for (auto known = paths_.begin(); known != paths_.end(); ++known) {
        if (known->head != session.info.head) continue;
        Path path = std::move(*known);
        paths_.erase(known);
        return path;
    }
    STET_ASSIGN(const std::vector<TurnRow> rows, catalogue_.path(session.info.head));
    Path path{session.info.head, {}, {}, state::PrefixIds(session.root)};
    const Hash128 nothing = keys_checksum({});
    for (const TurnRow& row : rows) {
        path.has_evicted = path.has_evicted || row.records == nothing;
        path.ends.push_back(row.turn.token_end);
        path.tokens.insert(path.tokens.end(), row.tokens.begin(), row.tokens.end());
    }
    return path;
}

// What the turn adds, less rows that windows have left behind already. With earlier turns: their
// rows as well, for a session that lacks some; the new turn then keeps them. (Blocks of earlier
// turns can't be made again from a value that has gone on.)
Result<std::vector<DirectoryStore::Part>> DirectoryStore::plan(const memory::Schema& schema,
                                                               const state::Sequence& sequence,
                                                               Path& path,
                                                               bool with_earlier_turns) {
    std::vector<std::uint64_t> ends;
    if (with_earlier_turns) ends = path.ends;
    ends.push_back(sequence.position());
    std::uint64_t begin = with_earlier_turns ? 0 : path.tokens.size();
    std::vector<Part> parts;
    for (const std::uint64_t end : ends) {
        for (const state::Extent& extent :
             state::extents_between(schema, path.ids, sequence.tokens, begin, end)) {
            const memory::Group& group = schema.groups[extent.group];
            const bool is_there = group.is_paged()
                                      ? extent.row_end > group.first_needed_row(sequence.position())
                                      : end == sequence.position();
            if (!is_there) continue;
            STET_ASSIGN(std::optional<RecordRow> known, catalogue_.record(extent.key));
            parts.push_back({extent, std::move(known), std::nullopt, end != ends.back()});
        }
        begin = end;
    }
    return parts;
}

// What the turn adds to the directory, at most. (A record that is there and turns out damaged is
// written anew; then the budget itself is what holds.)
Result<std::uint64_t> DirectoryStore::bytes_of(const Step& step) {
    const std::vector<Part>& parts = step.parts;
    const std::uint64_t turn_bytes = step.row.turn.content.size() + step.row.turn.sampler.size() +
                                     step.row.tokens.size() * sizeof(state::Token);
    STET_ASSIGN(const auto pages, catalogue_.database().number("PRAGMA page_count"));
    std::uint64_t bytes = kSegmentHeaderBytes;
    std::uint64_t added = 0;
    for (const Part& part : parts) {
        if (part.known) continue;
        bytes += Place{0, 0, part.extent.size_bytes, {}}.end();
        ++added;
    }
    // Keys lie anywhere in their index; all else is appended.
    const std::uint64_t key_pages =
        std::min(added, static_cast<std::uint64_t>(pages.value_or(0)) + added / kKeysInPage);
    const std::uint64_t changed =
        kPagesOfTurn + key_pages +
        (turn_bytes + parts.size() * kRowsOfRecordBytes) / kPageContentBytes;
    return bytes + changed * kChangedPageBytes;
}

Status DirectoryStore::make_room_for(std::span<Pending* const> batch) {
    if (!budget_->is_bounded()) return {};
    std::set<std::int64_t> spared;
    for (const Pending* pending : batch) {
        if (!pending->is_new) spared.insert(pending->session.id);
    }
    // What others shared with a turn may go with them, and then is to be written as well.
    while (true) {
        std::uint64_t bytes = 0;
        for (const Pending* pending : batch) {
            if (pending->is_new) bytes += kNewSessionBytes;
            for (const Step& step : pending->steps) {
                STET_ASSIGN(const std::uint64_t more, bytes_of(step));
                bytes += more;
            }
        }
        STET_ASSIGN(const bool has_changed, make_room(bytes, spared));
        if (!has_changed) return {};
        for (Pending* pending : batch) {
            for (Step& step : pending->steps) {
                for (Part& part : step.parts) {
                    STET_ASSIGN(part.known, catalogue_.record(part.extent.key));
                }
            }
        }
    }
}

// Appends what isn't there, each record once. One that is there is read before a turn relies on it:
// a damaged one is written anew, which mends it for every turn that shares it.
Status DirectoryStore::write_records(const memory::Schema& schema,
                                     std::span<Pending* const> batch) {
    std::map<Hash256, Place> written;
    std::vector<std::byte> buffer;
    for (Pending* pending : batch) {
        for (Step& step : pending->steps) {
            for (Part& part : step.parts) {
                const state::Extent& extent = part.extent;
                if (const auto at = written.find(extent.key); at != written.end()) {
                    part.written = at->second;
                    continue;
                }
                if (part.known && part.known->place.size_bytes == extent.size_bytes &&
                    reader_.read(extent.key, part.known->place, buffer).is_ok()) {
                    continue;
                }
                const auto gather = [&](std::span<std::byte> into) {
                    state::gather(schema, *step.commit->sequence, extent, into);
                };
                STET_ASSIGN(part.written, writer_->append(extent.key, extent.size_bytes, gather));
                written.emplace(extent.key, *part.written);
            }
        }
    }
    return written.empty() ? Status() : writer_->sync();
}

Status DirectoryStore::add_rows(Pending& pending) {
    SessionRow& session = pending.session;
    if (pending.is_new) {
        STET_ASSIGN(session.id, catalogue_.insert(session));
    }
    for (Step& step : pending.steps) {
        std::vector<std::int64_t> records;
        for (Part& part : step.parts) {
            if (!part.known) {
                // Another turn of the batch may have brought it.
                STET_ASSIGN(part.known, catalogue_.record(part.extent.key));
            } else if (part.written) {
                STET_TRY(catalogue_.move(part.known->id, *part.written));
            }
            if (part.known) {
                records.push_back(part.known->id);
                continue;
            }
            STET_ASSIGN(const std::int64_t id, catalogue_.insert(part.extent.key, *part.written));
            records.push_back(id);
        }
        step.row.turn.parent = session.info.head;
        STET_ASSIGN(step.row.turn.id, catalogue_.next_turn_id());
        STET_TRY(catalogue_.insert(step.row, records));
        session.info.head = step.row.turn.id;
        session.info.used_ns = step.row.turn.created_ns;
    }
    return catalogue_.update(session);
}

}  // namespace stet::store
