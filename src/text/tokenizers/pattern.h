// A regular expression over valid UTF-8, compiled by PCRE2 with its JIT.
//
// A Pattern is immutable; any thread may use it. A Matcher belongs to one call on one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "stet/status.h"

namespace stet::text {

class Pattern {
  public:
    static Result<Pattern> compile(std::string_view source);

    ~Pattern();
    Pattern(Pattern&& other) noexcept;
    Pattern& operator=(Pattern&& other) noexcept;

  private:
    friend class Matcher;
    Pattern(void* code, bool jit, const std::uint8_t* first_bytes)
        : code_(code), jit_(jit), first_bytes_(first_bytes) {}
    bool may_begin_with(unsigned char byte) const {
        return first_bytes_ == nullptr || (first_bytes_[byte / 8] >> byte % 8 & 1) != 0;
    }
    void* code_ = nullptr;
    bool jit_ = false;
    const std::uint8_t* first_bytes_ = nullptr;  // in code_: a bit for each byte, if PCRE2 knows
};

// Working memory for matching; grows its stack when a text needs more.
class Matcher {
  public:
    Matcher();
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    // Appends the ends of the pieces of `text`: every match is a piece, and so is every gap between
    // matches. `text` must be valid UTF-8. Where a limit of PCRE2 is hit, what is left of the text
    // becomes one piece, so that the cost of any input stays bounded.
    void split(const Pattern& pattern, std::string_view text, std::vector<std::uint32_t>& ends);

  private:
    struct State;
    int match(const Pattern& pattern, std::string_view text, std::size_t offset);
    std::unique_ptr<State> state_;
};

}  // namespace stet::text
