// commit_turn: records first, then the rows that name them. Design, section 4.

#include <fmt/format.h>

#include <algorithm>

#include "store/directory_store.h"

namespace stet::store {
namespace {

constexpr std::size_t kPathsKept = 16;
// Of SQLite's log, per page that a transaction changes: the frame, and the page that a checkpoint
// may add to the catalogue.
constexpr std::uint64_t kChangedPageBytes = 2 * 4120;
constexpr std::uint64_t kPagesOfTurn = 14;         // that a turn changes without its records
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
    return guarded([&]() -> Result<Turn> {
        STET_TRY(check_writable());
        STET_ASSIGN(const SessionRow session, require(name));
        if (const Hash256 hash = schema.hash(); hash != session.info.schema_hash) {
            return Status(Code::incompatible,
                          fmt::format("session '{}' has state of schema {}, not {}", name,
                                      session.info.schema_hash.hex(), hash.hex()));
        }
        STET_TRY(state::validate(schema, sequence));
        if (!sequence.extensions.empty()) {
            // Keys name tokens by their number alone.
            return Status(Code::unimplemented,
                          fmt::format("session '{}': a sequence with media positions can't be kept "
                                      "in a store yet",
                                      name));
        }
        return commit_checked(session, schema, sequence, turn);
    });
}

Result<Turn> DirectoryStore::commit_checked(const SessionRow& session, const memory::Schema& schema,
                                            const state::Sequence& sequence, const NewTurn& turn) {
    STET_ASSIGN(Path path, take_path(session));
    STET_TRY(check_extends(session, path.tokens, sequence.tokens));
    const bool is_lacking = lacking_.contains(session.info.name);
    STET_ASSIGN(std::vector<Part> parts,
                plan(schema, sequence, path, is_lacking || path.has_evicted));
    const auto is_earlier = [](const Part& part) { return part.is_earlier; };
    const auto is_missing = [](const Part& part) { return part.is_earlier && !part.known; };
    // What was evicted may have been written again with a turn since.
    if (!is_lacking && std::ranges::none_of(parts, is_missing)) std::erase_if(parts, is_earlier);
    const std::uint64_t turn_bytes =
        turn.content.size() + turn.sampler.size() +
        (sequence.position() - path.tokens.size()) * sizeof(state::Token);
    STET_TRY(make_room_for(parts, turn_bytes, session.id));

    TurnRow row;
    row.turn.parent = session.info.head;
    row.turn.number = path.ends.size() + 1;
    row.turn.token_begin = path.tokens.size();
    row.turn.token_end = sequence.position();
    row.turn.content = turn.content;
    row.turn.sampler = turn.sampler;
    row.turn.created_ns = stamp();
    row.tokens.assign(sequence.tokens.begin() + static_cast<std::ptrdiff_t>(path.tokens.size()),
                      sequence.tokens.end());
    std::vector<Hash256> keys;
    for (const Part& part : parts) keys.push_back(part.extent.key);
    row.records = keys_checksum(std::move(keys));

    Unnamed unnamed(*writer_);
    STET_TRY(explained(write_records(schema, sequence, parts)));
    STET_ASSIGN(Transaction transaction, catalogue_.begin());
    STET_TRY(add_rows(session, parts, row));
    const Status committed = transaction.commit();
    // Whatever COMMIT says: rows that it could not undo for good may name the records.
    unnamed.keep();
    STET_TRY(explained(committed));

    path.head = row.turn.id;
    path.ends.push_back(row.turn.token_end);
    path.has_evicted = false;
    if (is_lacking) lacking_.erase(session.info.name);
    path.tokens.insert(path.tokens.end(), row.tokens.begin(), row.tokens.end());
    paths_.push_front(std::move(path));
    if (paths_.size() > kPathsKept) paths_.pop_back();
    return std::move(row.turn);
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
Result<std::uint64_t> DirectoryStore::bytes_of(const std::vector<Part>& parts,
                                               std::uint64_t turn_bytes) {
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

Status DirectoryStore::make_room_for(std::vector<Part>& parts, std::uint64_t turn_bytes,
                                     std::int64_t session) {
    if (!budget_->is_bounded()) return {};
    // What others shared with this turn may go with them, and then is to be written as well.
    while (true) {
        STET_ASSIGN(const std::uint64_t bytes, bytes_of(parts, turn_bytes));
        STET_ASSIGN(const bool has_changed, make_room(bytes, session));
        if (!has_changed) return {};
        for (Part& part : parts) {
            STET_ASSIGN(part.known, catalogue_.record(part.extent.key));
        }
    }
}

// Appends what isn't there. A record that is there is read before a turn relies on it: a damaged
// one is written anew, which mends it for every turn that shares it.
Status DirectoryStore::write_records(const memory::Schema& schema, const state::Sequence& sequence,
                                     std::vector<Part>& parts) {
    std::vector<std::byte> buffer;
    bool is_anything_written = false;
    for (Part& part : parts) {
        const state::Extent& extent = part.extent;
        if (part.known && part.known->place.size_bytes == extent.size_bytes &&
            reader_.read(extent.key, part.known->place, buffer).is_ok()) {
            continue;
        }
        STET_ASSIGN(part.written,
                    writer_->append(extent.key, extent.size_bytes, [&](std::span<std::byte> into) {
                        state::gather(schema, sequence, extent, into);
                    }));
        is_anything_written = true;
    }
    return is_anything_written ? writer_->sync() : Status();
}

Status DirectoryStore::add_rows(SessionRow session, const std::vector<Part>& parts, TurnRow& row) {
    std::vector<std::int64_t> records;
    for (const Part& part : parts) {
        if (!part.known) {
            STET_ASSIGN(const std::int64_t id, catalogue_.insert(part.extent.key, *part.written));
            records.push_back(id);
            continue;
        }
        if (part.written) STET_TRY(catalogue_.move(part.known->id, *part.written));
        records.push_back(part.known->id);
    }
    STET_ASSIGN(row.turn.id, catalogue_.next_turn_id());
    STET_TRY(catalogue_.insert(row, records));
    session.info.head = row.turn.id;
    session.info.used_ns = row.turn.created_ns;
    return catalogue_.update(session);
}

}  // namespace stet::store
