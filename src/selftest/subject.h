// A model under test, and what every check does with it: make contexts, feed tokens to sequences,
// compare what comes out.
//
// Steps run on one thread, so that equal steps give equal bits, and several subjects can be tested
// side by side. Thread rules: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "state/context.h"
#include "stet/status.h"

namespace stet::selftest {

using state::Context;
using state::SequenceId;
using state::Token;
using Bytes = std::vector<std::byte>;
using LogitRow = std::vector<float>;  // one a token of the vocabulary

// What the first check records and the others compare with: a prompt fed but for its last token,
// saved, and how it goes on.
struct Baseline {
    std::vector<Token> prompt;
    std::vector<Token> answer;     // drawn with a fixed seed
    std::vector<LogitRow> logits;  // before each token of the answer
    std::filesystem::path file;    // the whole context, saved before the last token of the prompt
};

class Subject {
  public:
    using Path = std::filesystem::path;

    static Result<std::unique_ptr<Subject>> load(const Path& path, model::StateTypes types = {});
    ~Subject();

    engine::Engine& engine() { return *engine_; }
    memory::PagePool& pool() { return engine_->pool(); }
    const memory::Schema& schema() const { return engine_->schema(); }
    const state::Identity& identity() const { return identity_; }
    // Where a check may write; removed with the subject.
    const Path& directory() const { return directory_; }
    // Tokens that a check may use: what the model was trained for, but no more than it takes.
    std::uint32_t length_max() const { return length_max_; }

    // Tokens [begin, end) of history number `history`: random, and the same on every machine.
    std::vector<Token> tokens(std::uint32_t history, std::uint32_t begin, std::uint32_t end) const;

    state::Limits limits(std::uint32_t sequences_max) const;
    Context make_context(std::uint32_t sequences_max = 4);

    // Adds tokens in one step. Answers the logits that follow the last of them.
    Result<LogitRow> feed(Context& context, SequenceId id, std::span<const Token> tokens);
    Result<LogitRow> feed(state::Sequence& sequence, std::span<const Token> tokens);
    // The same, one step a token. Answers the logits after each.
    Result<std::vector<LogitRow>> feed_each(Context& context, SequenceId id,
                                            std::span<const Token> tokens);

    // Made when first asked for.
    Result<const Baseline*> baseline();
    // `id` holds the baseline's prompt without its last token: it has to go on as the baseline did.
    Status expect_baseline(Context& context, SequenceId id);

  private:
    Subject() = default;
    Result<Baseline> make_baseline();

    std::unique_ptr<engine::Engine> engine_;
    state::Identity identity_;
    Path directory_;
    std::uint32_t length_max_ = 0;
    std::unique_ptr<Baseline> baseline_;
};

// A file with just these bytes.
Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
Result<Bytes> save(const Context& context, SequenceId id);
Result<Bytes> save_all(const Context& context);

// What a failed check says.
Status failure(std::string what);
// `expected` and `got` are the same bits.
Status expect_equal(std::span<const float> expected, std::span<const float> got,
                    std::string_view what);
Status expect_equal(std::span<const std::byte> expected, std::span<const std::byte> got,
                    std::string_view what);
// Normalised mean square error at most `limit`, and nothing that is not a number.
Status expect_close(std::span<const float> expected, std::span<const float> got, double limit,
                    std::string_view what);
// `status` is a refusal with one of the codes, and says why.
Status expect_refused(const Status& status, std::initializer_list<Code> codes,
                      std::string_view what);

}  // namespace stet::selftest
