// A context in use, and what it was like: whatever a failed restore could have changed shows here.
#pragma once

#include <string_view>
#include <vector>

#include "selftest/subject.h"

namespace stet::selftest {

class Witness {
  public:
    // Takes down every sequence's bytes and, for each, the logits that the next token would have.
    static Result<Witness> take(Subject& subject, const Context& context);

    // The same sequences, byte for byte, and no page more or less in use.
    Status expect_unchanged(const Context& context, std::string_view after) const;
    // The next logits too.
    Status expect_same_logits(Subject& subject, const Context& context) const;

  private:
    Bytes bytes_;
    std::uint64_t pages_ = 0;
    std::vector<LogitRow> logits_;  // by sequence
};

// Sequence 0 with a checkpoint in it; 1, another; 2, a fork of 0 that went on. Each in use.
Status fill(Subject& subject, Context& context);

// Where a part of the state lies in its encoding.
struct Part {
    std::size_t group = 0;
    std::size_t plane = 0;
    std::size_t begin = 0;  // bytes
    std::size_t size = 0;
};
// Every plane of every page and block, in order. `size_bytes` is that of the whole encoding.
std::vector<Part> parts_of(const state::Saved& saved, std::size_t size_bytes);

}  // namespace stet::selftest
