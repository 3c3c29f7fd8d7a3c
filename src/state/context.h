// A context: a bounded set of live sequences over one pool of pages, and everything that can be
// done to their state. Sequences are named by ids 0 to sequences_max - 1; an id that holds nothing
// is an empty sequence.
//
// Every change is a transaction: the next value is built and checked aside, and the change is one
// swap. A call that fails, wherever and why ever, leaves this context (the target with its previous
// content, and every other sequence) bit-identical to never having been made. Encoded state is read
// to its end and proven before the swap. For restores of a whole context the swap is of all values
// at once: all or none.
//
// Codes: invalid_argument (id, position), unavailable (no state at that position), incompatible
// (other model, K/V types, schema, version or kind), resource_exhausted (longer than the context,
// more sequences, or the pool or a buffer is full), corruption (damaged or cut short), not_found
// and io (files). Messages name the one cause with expected and found.
//
// Thread rules: one thread at a time. Snapshots may be used from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/env.h"
#include "memory/page_pool.h"
#include "state/sequence.h"
#include "state/snapshot.h"
#include "state/stream.h"
#include "stet/status.h"

namespace stet::state {

struct Usage {
    std::uint64_t position = 0;              // tokens
    std::vector<std::uint64_t> rows;         // that are kept, by group; 1 for a block
    std::uint64_t pages = 0;                 // and blocks, checkpoints included, each once
    std::uint64_t bytes = 0;                 // of them; forks and snapshots share them
    std::vector<std::uint64_t> checkpoints;  // positions
};

struct CutResult {
    std::uint64_t position = 0;          // reached
    std::uint64_t recompute_tokens = 0;  // from there to the position that was wanted
};

class Context {
  public:
    using Path = std::filesystem::path;

    // The pool must outlive the context; identity.schema_hash is that of the pool's schema.
    Context(memory::PagePool& pool, Identity identity, Limits limits);

    const Identity& identity() const { return identity_; }
    const Limits& limits() const { return limits_; }
    memory::PagePool& pool() const { return *pool_; }

    // The live value; the pointer stays valid as long as the context.
    Result<const Sequence*> find(SequenceId id) const;
    // Makes `sequence` the value of `id`: how a step's result gets in. Its pages must be the
    // pool's.
    Status put(SequenceId id, Sequence sequence);
    Result<Usage> usage(SequenceId id) const;

    Status clear(SequenceId id);
    Status fork(SequenceId from, SequenceId to);
    // To the nearest position at or before `position` that state is kept for. Never refuses one.
    Result<CutResult> truncate(SequenceId id, std::uint64_t position);
    // Keeps what is needed to roll back to where the sequence is now.
    Status checkpoint(SequenceId id);
    // To exactly `position`: a checkpoint, or any that rows can be cut to.
    Status rollback(SequenceId id, std::uint64_t position);

    // Values in memory. A snapshot of another context with the same identity is copied in.
    Result<Snapshot> snapshot(SequenceId id) const;
    Status restore(SequenceId id, const Snapshot& snapshot);
    ContextSnapshot snapshot_all() const;
    Status restore_all(const ContextSnapshot& snapshot);

    // Encoded (encode.h). Answer the bytes written.
    Result<std::uint64_t> encoded_size(SequenceId id) const;
    Result<std::uint64_t> save(SequenceId id, std::span<std::byte> buffer) const;
    Result<std::uint64_t> save(SequenceId id, Sink& sink) const;
    Result<std::uint64_t> save_file(SequenceId id, Env& env, const Path& path) const;
    Status restore(SequenceId id, std::span<const std::byte> data);
    Status restore(SequenceId id, Source& source);
    Status restore_file(SequenceId id, Env& env, const Path& path);

    // The same for all sequences together. Those that the state doesn't hold become empty.
    std::uint64_t encoded_size_all() const;
    Result<std::uint64_t> save_all(std::span<std::byte> buffer) const;
    Result<std::uint64_t> save_all(Sink& sink) const;
    Result<std::uint64_t> save_all_file(Env& env, const Path& path) const;
    Status restore_all(std::span<const std::byte> data);
    Status restore_all(Source& source);
    Status restore_all_file(Env& env, const Path& path);

  private:
    Status check_id(SequenceId id) const;
    Saved saved_one(SequenceId id) const;
    Saved saved_all() const;
    Status commit(SequenceId id, const Saved& saved);
    Status commit_all(const Saved& saved);

    memory::PagePool* pool_;
    Identity identity_;
    Limits limits_;
    std::vector<Sequence> sequences_;
};

}  // namespace stet::state
