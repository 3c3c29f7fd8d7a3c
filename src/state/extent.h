// How a sequence value is named and moved outside the process: as extents.
//
// An extent is a run of rows of one group inside one page, or the block of a fixed group. It is
// named by everything that determines its content, so that equal prefixes have equal names:
//
//   root          = SHA-256(format, model fingerprint, schema hash, tenant)
//   prefix id(0)  = root
//   prefix id(n)  = SHA-256(prefix id of the last multiple of 64 below n, the tokens from there)
//   extent key    = SHA-256(prefix id at the extent's last token, group, first row, kind)
//
// The rows that a turn adds fall into extents by the turn's token range alone, therefore a turn
// lists no pages: tokens and turn boundaries say which keys it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "memory/page_pool.h"
#include "memory/schema.h"
#include "state/sequence.h"
#include "stet/status.h"

namespace stet::state {

Hash256 root_id(const Hash256& fingerprint, const memory::Schema& schema, std::string_view tenant);

// Prefix ids of a growing token list, computed once each.
class PrefixIds {
  public:
    explicit PrefixIds(const Hash256& root) : chain_{root} {}
    // The id of tokens[0..n). `tokens` must extend what earlier calls saw.
    Hash256 at(std::span<const Token> tokens, std::uint64_t n);

  private:
    std::vector<Hash256> chain_;  // ids at multiples of 64
};

struct Extent {
    std::size_t group = 0;
    std::uint64_t row_begin = 0;  // paged groups
    std::uint64_t row_end = 0;
    std::uint64_t size_bytes = 0;  // of the payload
    Hash256 key;
    bool operator==(const Extent&) const = default;
};

// The extents that tokens [token_begin, token_end) add to a sequence, in order of group and row.
std::vector<Extent> extents_between(const memory::Schema& schema, PrefixIds& ids,
                                    std::span<const Token> tokens, std::uint64_t token_begin,
                                    std::uint64_t token_end);

// Payload of a paged extent: for each plane in order, its rows [row_begin, row_end) back to back.
// Of a fixed one: the block. `payload` has extent.size_bytes; the value must hold those rows.
void gather(const memory::Schema& schema, const Sequence& sequence, const Extent& extent,
            std::span<std::byte> payload);

// Builds a value aside from extents, in any order. Nothing that is alive is touched.
class Stage {
  public:
    Stage(memory::PagePool& pool, std::vector<Token> tokens);

    // True if the value at the final position needs this extent (windows need only their last).
    bool needs(const Extent& extent) const;
    // For a payload that fills a page or the block: its memory, to be filled by the caller before
    // finish(), from any thread. Empty for other extents. Fails as put() does.
    Result<std::span<std::byte>> place(const Extent& extent);
    // Copies a verified payload in. corruption when sizes or ranges don't fit or rows come twice;
    // resource_exhausted when the pool is full.
    Status put(const Extent& extent, std::span<const std::byte> payload);
    // Every needed row present: the value. Else corruption naming the first missing group and row.
    Result<Sequence> finish() &&;

  private:
    // Takes note of the rows; the page they go to, made now if it isn't there.
    Result<memory::PageRef*> claim_rows(const Extent& extent, std::uint64_t payload_bytes);
    Status put_rows(const Extent& extent, std::span<const std::byte> payload);
    Status put_block(const Extent& extent, std::span<const std::byte> payload);

    memory::PagePool* pool_;
    Sequence sequence_;
    std::vector<std::vector<std::uint64_t>> present_;  // a bit a row (kPageRows), by group and page
};

}  // namespace stet::state
