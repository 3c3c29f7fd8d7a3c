// One step in the making: the tokens of several sequences side by side, and for each sequence the
// transaction that makes its next value.
//
// Thread rules: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/graph.h"
#include "memory/page_pool.h"
#include "state/sequence.h"
#include "stet/status.h"

namespace stet::engine {

// Which of a part's tokens get logits.
enum class Logits : std::uint8_t {
    none,
    last,
    all,
    some,  // Part::rows
};

// Tokens [begin, end) of a part.
struct RowRange {
    std::size_t begin = 0;
    std::size_t end = 0;
};

// A part of a step: tokens to add to a sequence.
struct Part {
    state::Sequence* sequence;
    std::span<const state::Token> tokens;
    Logits logits;
    // The logits of the last token become part of the value, so that a restored one needs no token
    // fed again to go on. Needs Logits::last or all.
    bool keep_logits = false;
    // The model's encoder reads them (T5), all at once and at the begin of the sequence. Logits are
    // none, and so must all parts of the step be.
    bool encodes = false;
    // The answer has the hidden state after the last norm, [width] a row, instead of logits. All
    // parts of a step agree on it. With `encodes`: the encoder's answer, of all tokens.
    bool hidden = false;
    RowRange rows = {};  // whose logits are wanted, with Logits::some

    RowRange wanted() const {
        const std::size_t count = tokens.size();
        if (logits == Logits::some) return rows;
        if (logits == Logits::none) return {};
        return {logits == Logits::all ? 0 : count - 1, count};
    }
};

class Batch {
  public:
    explicit Batch(memory::PagePool& pool) : pool_(&pool) {}

    // resource_exhausted when the pool has no room. Nothing that is alive changes.
    Status add(const Part& part);
    // What the graph needs. Valid until the next add(), as long as this batch lives.
    const exec::Step& step();
    // Swaps every sequence's next value in. Can't fail.
    void commit();

  private:
    memory::PagePool* pool_;
    std::vector<state::Sequence*> sequences_;
    std::vector<state::Append> appends_;
    std::vector<std::uint32_t> counts_;  // columns of each part
    std::vector<std::int32_t> tokens_;
    std::vector<std::int32_t> positions_;
    std::vector<std::int32_t> output_rows_;
    bool encodes_ = false;
    bool hidden_ = false;
    exec::Step step_;
};

}  // namespace stet::engine
