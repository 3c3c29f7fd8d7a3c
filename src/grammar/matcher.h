// The walk of one answer through a grammar: what may come next, given what came.
//
// Thread rules: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace stet::grammar {

// Where in an answer the grammar begins. Reasoning is free; what comes after it is not.
struct Begin {
    // The answer begins free, up to the end of one of these texts; empty: it does not.
    std::vector<std::string> after;
    // This token may come first instead of what the grammar wants; then the answer is free up to
    // the end of `opened_until`. kNoToken: there is none.
    Token opening = text::kNoToken;
    std::string opened_until;
};

struct Constraint {
    std::shared_ptr<const Grammar> grammar;  // null: anything goes
    Begin begin;

    explicit operator bool() const { return grammar != nullptr; }
};

class Matcher {
  public:
    // `tokenizer` is the one that the grammar was compiled for. invalid_argument: the grammar takes
    // too much work to begin.
    static Result<std::unique_ptr<Matcher>> create(Constraint constraint,
                                                   const text::Tokenizer& tokenizer);
    ~Matcher();

    // `logits` with -infinity where a token can't come next; valid until the next call. Ends of
    // generation are possible only where the grammar is complete. Empty: nothing can come next.
    // invalid_argument: there are too many ways to read the answer to follow them all. After that
    // the matcher is of no more use.
    Result<std::span<const float>> mask(std::span<const float> logits);
    // The token is part of the answer. False: the grammar does not allow it. Fails as mask().
    Result<bool> accept(Token token);
    // What came so far is an answer that the grammar allows.
    bool is_complete() const;

  private:
    Matcher();

    enum class Part : std::uint8_t { free, blanks, inside, failed };

    Result<bool> spend(std::int64_t& budget, std::int64_t income,
                       const std::function<bool()>& work);
    Result<bool> look_for_begin(Token token);
    Status give_up();

    struct Walk;
    std::unique_ptr<Walk> walk_;
    const text::Tokenizer* tokenizer_ = nullptr;
    Constraint constraint_;
    Part part_ = Part::inside;
    bool is_first_ = true;
    std::int64_t mask_steps_ = 0;  // that masks may still take
    std::int64_t move_steps_ = 0;  // that tokens may still take: all of them stay in memory
    std::string tail_;             // end of the text of a free part
    std::vector<float> masked_;
};

}  // namespace stet::grammar
