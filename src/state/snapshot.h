// What is saved: one sequence or a whole context, as an immutable value with an identity.
//
// A snapshot holds references to pages, so taking one copies no rows. It must not outlive the pool
// that its pages come from. Thread rules: as values; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "memory/page_pool.h"
#include "memory/schema.h"
#include "state/sequence.h"
#include "stet/status.h"

namespace stet::state {

using SequenceId = std::uint32_t;  // of a context: 0 to sequences_max - 1

// What state must agree on to be exchanged.
struct Identity {
    Hash256 fingerprint;  // of the model
    Hash256 schema_hash;
    memory::ElementType k_type = memory::ElementType::f16;
    memory::ElementType v_type = memory::ElementType::f16;
    std::string model_name;  // for messages only

    static Identity of(const Hash256& fingerprint, const memory::Schema& schema,
                       memory::ElementType k_type, memory::ElementType v_type,
                       std::string model_name = {});
};

// incompatible, naming the first of model, K/V types and schema that differs, expected and found.
Status check_identity(const Identity& expected, const Identity& found);

// What a context has room for.
struct Limits {
    std::uint64_t tokens_max = 0;  // of one sequence
    std::uint32_t sequences_max = 1;
    std::uint32_t vocabulary = 0;  // tokens must be below it, and logits that many; 0: not checked
    // Says whether sampler state is usable, before it gets into a value. May be empty.
    std::function<Status(std::span<const std::byte>)> check_sampler;
};

enum class SavedKind : std::uint32_t { sequence = 1, context = 2 };

// The content of a snapshot.
struct Saved {
    struct Entry {
        SequenceId id = 0;
        Sequence sequence;
    };
    Identity identity;
    const memory::PagePool* pool = nullptr;
    SavedKind kind = SavedKind::sequence;
    std::vector<Entry> entries;  // one of id 0, or those of a context in ascending order of id

    const memory::Schema& schema() const { return pool->schema(); }
};

// Everything that can keep `saved` from fitting: identity, then capacity (resource_exhausted), then
// our own invariants of its values.
Status check_fits(const Identity& identity, const Limits& limits, const Saved& saved);
// `saved` with its pages in `pool`: the same ones when they are there already, else copies, each
// page once.
Result<Saved> adopt(memory::PagePool& pool, const Saved& saved);

// One sequence.
class Snapshot {
  public:
    explicit Snapshot(Saved saved) : saved_(std::make_shared<const Saved>(std::move(saved))) {}
    const Identity& identity() const { return saved_->identity; }
    const Sequence& sequence() const { return saved_->entries.front().sequence; }
    const Saved& saved() const { return *saved_; }

  private:
    std::shared_ptr<const Saved> saved_;
};

// All sequences of a context; those that are empty are left out.
class ContextSnapshot {
  public:
    explicit ContextSnapshot(Saved saved)
        : saved_(std::make_shared<const Saved>(std::move(saved))) {}
    const Identity& identity() const { return saved_->identity; }
    const std::vector<Saved::Entry>& entries() const { return saved_->entries; }
    const Saved& saved() const { return *saved_; }

  private:
    std::shared_ptr<const Saved> saved_;
};

// The pages and blocks that values refer to, each once.
class PageTable {
  public:
    struct Use {
        memory::PageRef page;
        std::uint64_t at = 0;    // first row of a page; position of a block
        std::uint32_t rows = 0;  // that some value counts; 1 for a block
    };
    static PageTable of(const Saved& saved);

    const std::vector<Use>& uses() const { return uses_; }
    // The index of a page's use.
    std::size_t index(const memory::PageRef& page) const;

  private:
    void add(const GroupState& group, std::uint64_t position);
    void add(const memory::PageRef& page, std::uint64_t at, std::uint32_t rows);

    std::vector<Use> uses_;
    std::unordered_map<const void*, std::size_t> index_;  // by identity of the page
};

}  // namespace stet::state
