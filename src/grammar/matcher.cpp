#include "grammar/matcher.h"

#include <dlpack/dlpack.h>
#include <xgrammar/work_limit.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/try.h"
#include "grammar/compiled.h"

namespace stet::grammar {
namespace {

// A step is one state of the parser. For JSON a mask takes some hundreds, at most some ten
// thousands, and each token leaves some dozens in memory. A grammar that can be read in many ways
// takes more and more with each token: what an answer saves goes into its budget, up to the first
// amount here.
constexpr std::int64_t kMaskSteps = 1000000;
constexpr std::int64_t kMaskStepsOfToken = 4000;
constexpr std::int64_t kMoveSteps = 500000;
constexpr std::int64_t kMoveStepsOfToken = 200;
constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int kBitsOfWord = 32;

}  // namespace

// Where the answer is in the grammar, and the tokens that may come next, a bit each.
struct Matcher::Walk {
    explicit Walk(const Grammar& grammar)
        : matcher(grammar.compiled),
          words((static_cast<std::size_t>(grammar.vocabulary->info.GetVocabSize()) + kBitsOfWord -
                 1) /
                kBitsOfWord),
          bits(words) {
        tensor.data = bits.data();
        tensor.device = {kDLCPU, 0};
        tensor.ndim = 1;
        tensor.dtype = {kDLInt, kBitsOfWord, 1};
        tensor.shape = &words;
        tensor.strides = nullptr;
        tensor.byte_offset = 0;
    }
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

    bool has(Token token) const {
        const auto id = static_cast<std::uint32_t>(token);
        return ((static_cast<std::uint32_t>(bits[id / kBitsOfWord]) >> (id % kBitsOfWord)) & 1U) !=
               0;
    }
    void add(Token token) {
        const auto id = static_cast<std::uint32_t>(token);
        auto& word = bits[id / kBitsOfWord];
        word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) |
                                         (1U << (id % kBitsOfWord)));
    }
    bool is_empty() const {
        return std::all_of(bits.begin(), bits.end(), [](std::int32_t word) { return word == 0; });
    }

    xgrammar::GrammarMatcher matcher;
    std::int64_t words;
    std::vector<std::int32_t> bits;
    DLTensor tensor{};
};

Matcher::Matcher() = default;
Matcher::~Matcher() = default;

Result<std::unique_ptr<Matcher>> Matcher::create(Constraint constraint,
                                                 const text::Tokenizer& tokenizer) {
    std::unique_ptr<Matcher> made(new Matcher());
    made->tokenizer_ = &tokenizer;
    made->part_ = constraint.begin.after.empty() ? Part::inside : Part::free;
    made->constraint_ = std::move(constraint);
    made->mask_steps_ = kMaskSteps;
    made->move_steps_ = kMoveSteps;
    const xgrammar::WorkLimit limit(kMoveSteps);
    try {
        made->walk_ = std::make_unique<Walk>(*made->constraint_.grammar);
    } catch (const std::exception&) {
        return Status(Code::invalid_argument, "the grammar takes too much work to begin with");
    }
    return Result<std::unique_ptr<Matcher>>(std::move(made));
}

// What it was about to do has happened by half.
Status Matcher::give_up() {
    part_ = Part::failed;
    return Status(
        Code::invalid_argument,
        "the grammar can be read in too many ways to go on with this answer; make it less "
        "ambiguous");
}

// Does what may take too much work, from a budget that each token fills up a little.
Result<bool> Matcher::spend(std::int64_t& budget, std::int64_t income,
                            const std::function<bool()>& work) {
    budget += income;
    const xgrammar::WorkLimit limit(budget);
    try {
        const bool is_done = work();
        budget = xgrammar::work_left;
        return is_done;
    } catch (const std::exception&) {
        return give_up();
    }
}

Result<std::span<const float>> Matcher::mask(std::span<const float> logits) {
    if (part_ == Part::failed) return give_up();
    const Vocabulary& vocabulary = *constraint_.grammar->vocabulary;
    if (part_ == Part::free) {
        if (vocabulary.ends.empty()) return logits;
        masked_.assign(logits.begin(), logits.end());
        for (const Token end : vocabulary.ends) masked_[static_cast<std::size_t>(end)] = kNever;
        return std::span<const float>(masked_);
    }
    mask_steps_ = std::min(mask_steps_, kMaskSteps);
    STET_TRY(spend(mask_steps_, kMaskStepsOfToken, [&] {
                 return walk_->matcher.FillNextTokenBitmask(&walk_->tensor), true;
             }).status());
    if (is_first_ && constraint_.begin.opening != text::kNoToken) {
        walk_->add(constraint_.begin.opening);
    }
    if (part_ == Part::blanks) {
        for (const Token blank : vocabulary.blanks) walk_->add(blank);
    }
    if (walk_->is_empty()) return std::span<const float>();
    masked_.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
        masked_[i] = walk_->has(static_cast<Token>(i)) ? logits[i] : kNever;
    }
    return std::span<const float>(masked_);
}

// In a free part: whether the text that ends it has come, and what came after it.
Result<bool> Matcher::look_for_begin(Token token) {
    tail_ += tokenizer_->piece(token, true);
    std::size_t end = std::string::npos;
    std::size_t longest = 0;
    for (const std::string& text : constraint_.begin.after) {
        longest = std::max(longest, text.size());
        const std::size_t found = tail_.find(text);
        if (found != std::string::npos) end = std::min(end, found + text.size());
    }
    if (end == std::string::npos) {
        if (tail_.size() > longest) tail_.erase(0, tail_.size() - longest);
        return true;
    }
    const std::string rest = tail_.substr(end);
    tail_.clear();
    part_ = Part::blanks;
    if (rest.find_first_not_of(" \n") == std::string::npos) return true;
    part_ = Part::inside;
    return spend(move_steps_, kMoveStepsOfToken, [&] { return walk_->matcher.AcceptString(rest); });
}

Result<bool> Matcher::accept(Token token) {
    if (part_ == Part::failed) return give_up();
    const bool is_opening = std::exchange(is_first_, false) && part_ == Part::inside &&
                            token == constraint_.begin.opening && token != text::kNoToken;
    if (is_opening) {
        constraint_.begin.after = {constraint_.begin.opened_until};
        part_ = Part::free;
        return true;
    }
    if (part_ == Part::free) return look_for_begin(token);
    const bool may_be_blank = std::exchange(part_, Part::inside) == Part::blanks;
    STET_ASSIGN(const bool is_allowed, spend(move_steps_, kMoveStepsOfToken,
                                             [&] { return walk_->matcher.AcceptToken(token); }));
    if (is_allowed) return true;
    const std::vector<Token>& blanks = constraint_.grammar->vocabulary->blanks;
    return may_be_blank && std::find(blanks.begin(), blanks.end(), token) != blanks.end();
}

bool Matcher::is_complete() const {
    return part_ == Part::inside && walk_->matcher.IsCompleted();
}

}  // namespace stet::grammar
