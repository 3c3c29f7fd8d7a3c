// Inner part of decode(): the manifest of encoded state, read twice. The first reading proves it,
// with no page made yet; the second makes the values of the records' pages. See encode.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "memory/page_pool.h"
#include "state/snapshot.h"
#include "stet/status.h"

namespace stet::state {

// A page or block of the file.
struct Record {
    std::uint32_t group = 0;
    std::uint32_t rows = 0;
    std::uint64_t at = 0;
    Hash128 checksum;
    std::uint32_t rows_used = 0;  // by the value that counts most of them
    memory::PageRef page;         // null until it was read
};

// Bytes of a record's payload.
std::uint64_t payload_bytes(const memory::Group& shape, std::uint32_t rows);

// What a manifest begins with; the schema follows.
Result<Identity> read_identity(Reader& reader);

class ManifestReader {
  public:
    ManifestReader(std::span<const std::byte> manifest, SavedKind kind, const Identity& identity,
                   const Limits& limits, const memory::PagePool& pool)
        : reader_(manifest, "manifest"),
          kind_(kind),
          identity_(identity),
          limits_(limits),
          pool_(pool) {}

    // Fills `records` unless they are there already (with their pages).
    Result<Saved> read(std::vector<Record>& records);

  private:
    Status check_schema(const Identity& found, const memory::Schema& schema) const;
    Status read_records();
    Status check_records_used() const;
    Result<Saved::Entry> read_entry(std::uint32_t index, SequenceId id_min);
    Status read_tokens(Sequence& sequence);
    Status read_extensions(Sequence& sequence);
    Status read_logits(Sequence& sequence);
    Status read_groups(Sequence& sequence);
    Status read_checkpoints(Sequence& sequence);
    Result<SamplerState> read_sampler();
    Result<GroupState> read_rows(std::size_t g, std::uint64_t position);
    Result<memory::PageRef> read_page(std::size_t g, std::uint64_t at, std::uint32_t rows);

    Reader reader_;
    SavedKind kind_;
    const Identity& identity_;
    const Limits& limits_;
    const memory::PagePool& pool_;
    std::vector<Record>* records_ = nullptr;
};

}  // namespace stet::state
