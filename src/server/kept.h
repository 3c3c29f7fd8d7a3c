// Finished sequences that stay in memory, for the prompts that begin as they do. A sequence is used
// only for the tenant that made it; others do not even compare with it.
//
// Thread rules: one thread at a time (the engine's).
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "memory/schema.h"
#include "server/job.h"
#include "state/sequence.h"

namespace stet::server {

struct KeptSequence {
    std::string tenant;
    state::Sequence sequence;
};

// A state that a prompt can begin with.
struct Prefix {
    std::uint64_t matched = 0;   // tokens that are equal
    std::uint64_t position = 0;  // of them, those with a state to begin with
};

// Whether a state can be had at each position before its end.
bool can_be_cut_anywhere(const memory::Schema& schema);
// How far `tokens` begins as the prompt does; at most all but the last token of the prompt, which
// has to be computed for its logits.
std::uint64_t common_prefix(std::span<const Token> tokens, std::span<const Token> prompt);
Prefix prefix_of(const memory::Schema& schema, const state::Sequence& sequence,
                 std::span<const Token> prompt);
// Why position is less than matched; empty when it isn't.
std::string reuse_reason(const memory::Schema& schema, const Prefix& prefix);

class KeptSequences {
  public:
    KeptSequences(const memory::Schema& schema, std::size_t count_max)
        : schema_(schema), count_max_(count_max) {}

    struct Found {
        Prefix prefix;
        std::shared_ptr<const KeptSequence> kept;  // null: nothing fits
    };
    Found find(std::string_view tenant, std::span<const Token> prompt);
    // Replaces sequences that the new one has in it, unless these are needed to go back.
    std::shared_ptr<const KeptSequence> add(std::string_view tenant, state::Sequence sequence);
    // The one that was not used for the longest time. False when there is none.
    bool drop_oldest();
    void drop(const std::shared_ptr<const KeptSequence>& kept);
    std::size_t size() const { return entries_.size(); }

  private:
    const memory::Schema& schema_;
    std::size_t count_max_;
    std::list<std::shared_ptr<const KeptSequence>> entries_;  // last used first
};

}  // namespace stet::server
