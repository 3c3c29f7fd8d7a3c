#include "selftest/subject.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <system_error>

#include "base/try.h"

namespace stet::selftest {
namespace {

// Past two pages, and past two of the longest blocks of compressed rows.
constexpr std::uint32_t kLengthMax = 300;  // tokens
constexpr std::uint32_t kPromptTokens = 100;
constexpr std::uint32_t kAnswerTokens = 16;
constexpr std::uint32_t kSeed = 1234;
constexpr std::uint64_t kStateLimitBytes = 2ULL << 30;
// The baseline's steps are made again step for step: what differs is noise of the machine at most.
constexpr double kAnswerLimit = 1e-5;

// Draws by probability alone.
engine::SamplerOptions plain_draw() {
    engine::SamplerOptions options;
    options.temperature = 1.0F;
    options.top_k = 0;
    options.top_p = 1.0F;
    options.min_p = 0.0F;
    options.seed = kSeed;
    return options;
}

Result<std::filesystem::path> make_directory() {
    std::error_code error;
    const auto parent = std::filesystem::temp_directory_path(error);
    std::string name = (parent / "stet-selftest-XXXXXX").native();
    if (error || ::mkdtemp(name.data()) == nullptr) {
        return Status(Code::io, fmt::format("cannot make a temporary directory in '{}'; set TMPDIR",
                                            parent.string()));
    }
    return std::filesystem::path(name);
}

}  // namespace

Result<std::unique_ptr<Subject>> Subject::load(const Path& path, model::StateTypes types) {
    std::unique_ptr<Subject> subject(new Subject());
    STET_ASSIGN(auto file, gguf::File::open(Env::posix(), path));
    const Hash256 fingerprint = gguf::compute_fingerprint(*file);
    engine::EngineOptions options;
    options.model.threads = 1;
    options.model.state_types = types;
    options.state_limit_bytes = kStateLimitBytes;
    STET_ASSIGN(subject->engine_, engine::Engine::create(std::move(file), options, true));
    const model::Config& config = subject->engine_->model().config;
    subject->length_max_ = std::min(subject->engine_->context(), kLengthMax);
    if (subject->length_max_ < kAnswerTokens * 2) {
        return Status(Code::unimplemented,
                      fmt::format("the model has a context of {} tokens, the checks need {}",
                                  subject->length_max_, kAnswerTokens * 2));
    }
    subject->identity_ =
        state::Identity::of(fingerprint, config.schema, types.k, types.v, config.name);
    STET_ASSIGN(subject->directory_, make_directory());
    return subject;
}

Subject::~Subject() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

std::vector<Token> Subject::tokens(std::uint32_t history, std::uint32_t begin,
                                   std::uint32_t end) const {
    std::mt19937 random(kSeed + history);
    random.discard(begin);
    std::vector<Token> tokens(end - begin);
    for (Token& token : tokens) token = static_cast<Token>(random() % engine_->vocabulary());
    return tokens;
}

state::Limits Subject::limits(std::uint32_t sequences_max) const {
    state::Limits limits = engine_->limits(sequences_max);
    limits.tokens_max = length_max_;
    return limits;
}

Context Subject::make_context(std::uint32_t sequences_max) {
    return {pool(), identity_, limits(sequences_max)};
}

Result<LogitRow> Subject::feed(state::Sequence& sequence, std::span<const Token> tokens) {
    const engine::Part part{&sequence, tokens, engine::Logits::last, true};
    STET_ASSIGN(const auto logits, engine_->run(std::span(&part, 1)));
    return LogitRow(logits.begin(), logits.end());
}

Result<LogitRow> Subject::feed(Context& context, SequenceId id, std::span<const Token> tokens) {
    STET_ASSIGN(const state::Sequence* live, context.find(id));
    state::Sequence next = *live;
    STET_ASSIGN(LogitRow logits, feed(next, tokens));
    STET_TRY(context.put(id, std::move(next)));
    return logits;
}

Result<std::vector<LogitRow>> Subject::feed_each(Context& context, SequenceId id,
                                                 std::span<const Token> tokens) {
    std::vector<LogitRow> rows;
    for (const Token& token : tokens) {
        STET_ASSIGN(rows.emplace_back(), feed(context, id, std::span(&token, 1)));
    }
    return rows;
}

Result<Baseline> Subject::make_baseline() {
    Baseline made;
    made.prompt = tokens(0, 0, std::min(kPromptTokens, length_max_ - kAnswerTokens));
    made.file = directory_ / "baseline";
    Context context = make_context(2);
    const std::span<const Token> prompt = made.prompt;
    STET_TRY(feed(context, 0, prompt.first(prompt.size() - 1)).status());
    STET_TRY(context.save_all_file(Env::posix(), made.file).status());
    STET_ASSIGN(LogitRow logits, feed(context, 0, prompt.last(1)));
    const std::uint64_t reserved_bytes = engine_->reserved_bytes();
    engine::Sampler sampler(plain_draw());
    while (made.answer.size() < kAnswerTokens) {
        made.answer.push_back(sampler.sample(logits));
        made.logits.push_back(std::move(logits));
        STET_ASSIGN(logits, feed(context, 0, std::span(&made.answer.back(), 1)));
    }
    // Without memory each step is over the whole history: no two have the same shape.
    if (!schema().groups.empty() && engine_->reserved_bytes() != reserved_bytes) {
        return failure(
            fmt::format("a step of one token needed {} bytes of buffers, {} had been "
                        "reserved",
                        engine_->reserved_bytes(), reserved_bytes));
    }
    return made;
}

Result<const Baseline*> Subject::baseline() {
    if (!baseline_) {
        STET_ASSIGN(Baseline made, make_baseline());
        for (const LogitRow& row : made.logits) {
            STET_TRY(expect_close(row, row, 0.0, "logits"));  // all of them numbers
        }
        baseline_ = std::make_unique<Baseline>(std::move(made));
    }
    return baseline_.get();
}

Status Subject::expect_baseline(Context& context, SequenceId id) {
    STET_ASSIGN(const Baseline* expected, baseline());
    STET_ASSIGN(const state::Sequence* restored, context.find(id));
    const std::span<const Token> prompt = expected->prompt;
    if (restored->position() != prompt.size() - 1) {
        return failure(
            fmt::format("restored {} tokens, saved {}", restored->position(), prompt.size() - 1));
    }
    STET_ASSIGN(LogitRow logits, feed(context, id, prompt.last(1)));
    for (std::size_t i = 0; i < expected->answer.size(); ++i) {
        STET_TRY(expect_close(expected->logits[i], logits, kAnswerLimit,
                              fmt::format("logits before token {} of the answer", i)));
        STET_ASSIGN(logits, feed(context, id, std::span(&expected->answer[i], 1)));
    }
    return {};
}

Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    STET_ASSIGN(const auto file, Env::posix().open(path, OpenMode::create));
    STET_TRY(file->truncate(0));
    return file->write_at(0, bytes);
}

Result<Bytes> save(const Context& context, SequenceId id) {
    STET_ASSIGN(const std::uint64_t size, context.encoded_size(id));
    Bytes bytes(size);
    STET_TRY(context.save(id, bytes).status());
    return bytes;
}

Result<Bytes> save_all(const Context& context) {
    Bytes bytes(context.encoded_size_all());
    STET_TRY(context.save_all(bytes).status());
    return bytes;
}

Status failure(std::string what) {
    return {Code::internal, std::move(what)};
}

Status expect_equal(std::span<const float> expected, std::span<const float> got,
                    std::string_view what) {
    if (expected.size() != got.size()) {
        return failure(
            fmt::format("{}: {} values, expected {}", what, got.size(), expected.size()));
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (std::memcmp(&expected[i], &got[i], sizeof(float)) == 0) continue;
        return failure(
            fmt::format("{}: value {} is {}, expected {}", what, i, got[i], expected[i]));
    }
    return {};
}

Status expect_equal(std::span<const std::byte> expected, std::span<const std::byte> got,
                    std::string_view what) {
    if (expected.size() != got.size()) {
        return failure(fmt::format("{}: {} bytes, expected {}", what, got.size(), expected.size()));
    }
    const auto differs = std::ranges::mismatch(expected, got).in1;
    if (differs == expected.end()) return {};
    return failure(fmt::format("{}: byte {} of {} differs", what, differs - expected.begin(),
                               expected.size()));
}

Status expect_close(std::span<const float> expected, std::span<const float> got, double limit,
                    std::string_view what) {
    if (expected.size() != got.size()) {
        return failure(
            fmt::format("{}: {} values, expected {}", what, got.size(), expected.size()));
    }
    double error = 0.0;
    double power = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!std::isfinite(got[i])) {
            return failure(fmt::format("{}: value {} is {}", what, i, got[i]));
        }
        const double difference = double{expected[i]} - double{got[i]};
        error += difference * difference;
        power += double{expected[i]} * double{expected[i]};
    }
    if (error <= limit * power) return {};
    return failure(
        fmt::format("{}: normalised error {:.1e}, limit {:.1e}", what, error / power, limit));
}

Status expect_refused(const Status& status, std::initializer_list<Code> codes,
                      std::string_view what) {
    if (status) return failure(fmt::format("{}: accepted", what));
    if (std::ranges::find(codes, status.code()) == codes.end()) {
        return failure(fmt::format("{}: refused as {}: {}", what, code_name(status.code()),
                                   status.to_string()));
    }
    if (status.message().empty()) return failure(fmt::format("{}: refused without a word", what));
    return {};
}

}  // namespace stet::selftest
