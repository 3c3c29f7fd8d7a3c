#include "state/context.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "state/checkpoint.h"
#include "state/encode.h"

namespace stet::state {
namespace {

Result<std::uint64_t> write_file(Env& env, const Context::Path& path, const Saved& saved) {
    std::uint64_t written = 0;
    STET_TRY(replace_file(env, path, [&](File& file) -> Status {
        FileSink sink(file);
        STET_ASSIGN(written, encode(saved, sink));
        return {};
    }));
    return written;
}

Result<Saved> read_file_of(Env& env, const Context::Path& path,
                           const std::function<Result<Saved>(Source&)>& read) {
    STET_ASSIGN(const auto file, env.open(path, OpenMode::read_no_link));
    STET_ASSIGN(const std::uint64_t size, file->size());
    FileSource source(*file, size);
    Result<Saved> saved = read(source);
    if (saved) return saved;
    return saved.status().with_context(fmt::format("state file '{}'", path.string()));
}

Result<std::uint64_t> write_buffer(const Saved& saved, std::span<std::byte> buffer) {
    const std::uint64_t needed = encoded_size(saved);
    if (buffer.size() < needed) {
        return Status(Code::resource_exhausted,
                      fmt::format("the buffer has {} bytes, {} are needed", buffer.size(), needed));
    }
    SpanSink sink(buffer);
    return encode(saved, sink);
}

}  // namespace

Context::Context(memory::PagePool& pool, Identity identity, Limits limits)
    : pool_(&pool),
      identity_(std::move(identity)),
      limits_(std::move(limits)),
      sequences_(limits_.sequences_max, Sequence::empty(pool.schema())) {
    STET_CHECK(identity_.schema_hash == pool.schema().hash());
}

Status Context::check_id(SequenceId id) const {
    if (id < sequences_.size()) return {};
    return Status(Code::invalid_argument,
                  fmt::format("no sequence has id {}: ids are below {}", id, sequences_.size()));
}

Result<const Sequence*> Context::find(SequenceId id) const {
    STET_TRY(check_id(id));
    return &sequences_[id];
}

Status Context::put(SequenceId id, Sequence sequence) {
    STET_TRY(check_id(id));
    Saved saved{identity_, pool_, SavedKind::sequence, {}};
    saved.entries.push_back({0, std::move(sequence)});
    const PageTable table = PageTable::of(saved);
    for (const PageTable::Use& use : table.uses()) {
        if (use.page.pool() != pool_) {
            return Status(Code::invalid_argument, "the sequence has pages of another pool");
        }
    }
    return commit(id, saved);
}

Result<Usage> Context::usage(SequenceId id) const {
    STET_TRY(check_id(id));
    const Sequence& sequence = sequences_[id];
    Usage usage;
    usage.position = sequence.position();
    for (const GroupState& group : sequence.groups) {
        usage.rows.push_back(group.block ? 1 : group.rows - group.first_row);
    }
    const PageTable table = PageTable::of(saved_one(id));
    for (const PageTable::Use& use : table.uses()) {
        ++usage.pages;
        usage.bytes += use.page.data().size();
    }
    for (const auto& kept : sequence.checkpoints) usage.checkpoints.push_back(kept->position);
    return usage;
}

Status Context::clear(SequenceId id) {
    STET_TRY(check_id(id));
    sequences_[id] = Sequence::empty(pool_->schema());
    return {};
}

Status Context::fork(SequenceId from, SequenceId to) {
    STET_TRY(check_id(from));
    STET_TRY(check_id(to));
    Sequence copy = sequences_[from];
    sequences_[to] = std::move(copy);
    return {};
}

Result<CutResult> Context::truncate(SequenceId id, std::uint64_t position) {
    STET_TRY(check_id(id));
    STET_ASSIGN(Truncated cut, state::truncate(pool_->schema(), sequences_[id], position));
    sequences_[id] = std::move(cut.sequence);
    return CutResult{sequences_[id].position(), cut.recompute_tokens};
}

Status Context::checkpoint(SequenceId id) {
    STET_TRY(check_id(id));
    state::checkpoint(pool_->schema(), sequences_[id]);
    return {};
}

Status Context::rollback(SequenceId id, std::uint64_t position) {
    STET_TRY(check_id(id));
    STET_ASSIGN(Sequence back, state::rollback(pool_->schema(), sequences_[id], position));
    sequences_[id] = std::move(back);
    return {};
}

Saved Context::saved_one(SequenceId id) const {
    Saved saved{identity_, pool_, SavedKind::sequence, {}};
    saved.entries.push_back({0, sequences_[id]});
    return saved;
}

Saved Context::saved_all() const {
    Saved saved{identity_, pool_, SavedKind::context, {}};
    for (SequenceId id = 0; id < sequences_.size(); ++id) {
        if (sequences_[id].position() != 0) saved.entries.push_back({id, sequences_[id]});
    }
    return saved;
}

// Everything that can fail is before the swap.
Status Context::commit(SequenceId id, const Saved& saved) {
    STET_CHECK(saved.kind == SavedKind::sequence && saved.entries.size() == 1);
    STET_TRY(check_fits(identity_, limits_, saved));
    STET_ASSIGN(Saved ours, adopt(*pool_, saved));
    std::swap(sequences_[id], ours.entries.front().sequence);
    return {};
}

Status Context::commit_all(const Saved& saved) {
    STET_CHECK(saved.kind == SavedKind::context);
    STET_TRY(check_fits(identity_, limits_, saved));
    STET_ASSIGN(Saved ours, adopt(*pool_, saved));
    std::vector<Sequence> next(sequences_.size(), Sequence::empty(pool_->schema()));
    for (Saved::Entry& entry : ours.entries) next[entry.id] = std::move(entry.sequence);
    std::swap(sequences_, next);
    return {};
}

Result<Snapshot> Context::snapshot(SequenceId id) const {
    STET_TRY(check_id(id));
    return Snapshot(saved_one(id));
}

Status Context::restore(SequenceId id, const Snapshot& snapshot) {
    STET_TRY(check_id(id));
    return commit(id, snapshot.saved());
}

ContextSnapshot Context::snapshot_all() const {
    return ContextSnapshot(saved_all());
}

Status Context::restore_all(const ContextSnapshot& snapshot) {
    return commit_all(snapshot.saved());
}

Result<std::uint64_t> Context::encoded_size(SequenceId id) const {
    STET_TRY(check_id(id));
    return state::encoded_size(saved_one(id));
}

Result<std::uint64_t> Context::save(SequenceId id, std::span<std::byte> buffer) const {
    STET_TRY(check_id(id));
    return write_buffer(saved_one(id), buffer);
}

Result<std::uint64_t> Context::save(SequenceId id, Sink& sink) const {
    STET_TRY(check_id(id));
    return encode(saved_one(id), sink);
}

Result<std::uint64_t> Context::save_file(SequenceId id, Env& env, const Path& path) const {
    STET_TRY(check_id(id));
    return write_file(env, path, saved_one(id));
}

Status Context::restore(SequenceId id, std::span<const std::byte> data) {
    SpanSource source(data);
    return restore(id, source);
}

Status Context::restore(SequenceId id, Source& source) {
    STET_TRY(check_id(id));
    STET_ASSIGN(const Saved saved, decode(source, SavedKind::sequence, identity_, limits_, *pool_));
    return commit(id, saved);
}

Status Context::restore_file(SequenceId id, Env& env, const Path& path) {
    STET_TRY(check_id(id));
    STET_ASSIGN(const Saved saved, read_file_of(env, path, [&](Source& source) {
                    return decode(source, SavedKind::sequence, identity_, limits_, *pool_);
                }));
    return commit(id, saved);
}

std::uint64_t Context::encoded_size_all() const {
    return state::encoded_size(saved_all());
}

Result<std::uint64_t> Context::save_all(std::span<std::byte> buffer) const {
    return write_buffer(saved_all(), buffer);
}

Result<std::uint64_t> Context::save_all(Sink& sink) const {
    return encode(saved_all(), sink);
}

Result<std::uint64_t> Context::save_all_file(Env& env, const Path& path) const {
    return write_file(env, path, saved_all());
}

Status Context::restore_all(std::span<const std::byte> data) {
    SpanSource source(data);
    return restore_all(source);
}

Status Context::restore_all(Source& source) {
    STET_ASSIGN(const Saved saved, decode(source, SavedKind::context, identity_, limits_, *pool_));
    return commit_all(saved);
}

Status Context::restore_all_file(Env& env, const Path& path) {
    STET_ASSIGN(const Saved saved, read_file_of(env, path, [&](Source& source) {
                    return decode(source, SavedKind::context, identity_, limits_, *pool_);
                }));
    return commit_all(saved);
}

}  // namespace stet::state
