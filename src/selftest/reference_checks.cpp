// The columns of the reference's state suite (test-save-load-state at b11434), with its steps. What
// it saves on a device is a value in memory here.
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "selftest/columns.h"

namespace stet::selftest {
namespace {

constexpr std::uint32_t kSharedTokens = 128;
constexpr std::uint32_t kDamagedPrompt = 24;
constexpr std::uint32_t kAfterDamage = 8;
// Damage from here on, where the state is long enough to have such a place.
constexpr std::size_t kDamageBegin = 4096;
constexpr std::size_t kDamagedStateMin = 12288;
// The neighbour's steps are the same ones: this is how far the reference lets them differ.
constexpr float kNeighbourLimit = 1e-6F;

// Two sequences whose tokens came by turns: 0 has 3 tokens, and 1 has 3.
Status interleave(Subject& subject, Context& context) {
    for (std::uint32_t i = 0; i < 3; ++i) {
        for (const SequenceId id : {0U, 1U}) {
            STET_TRY(subject.feed(context, id, subject.tokens(id, i, i + 1)).status());
        }
    }
    return {};
}

void damage(Bytes& bytes) {
    const bool is_long = bytes.size() >= kDamagedStateMin;
    const std::size_t begin = is_long ? kDamageBegin : bytes.size() / 3;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
              bytes.end() - static_cast<std::ptrdiff_t>(bytes.size() / 4), std::byte{0xff});
}

Result<std::vector<LogitRow>> feed_after_damage(Subject& subject, Context& context) {
    const auto tokens = subject.tokens(1, 0, kAfterDamage);
    return subject.feed_each(context, 1, tokens);
}

// What carries a sequence from one place to another.
enum class Carrier : std::uint8_t { bytes, value };

// Out of `from`, which then is empty, into `to`. Answers the size of the encoding.
Result<std::size_t> move(Context& context, SequenceId from, SequenceId to, Carrier carrier) {
    STET_ASSIGN(const Bytes bytes, save(context, from));
    STET_ASSIGN(const state::Snapshot snapshot, context.snapshot(from));
    STET_TRY(context.clear(from));
    STET_TRY(carrier == Carrier::bytes ? context.restore(to, bytes)
                                       : context.restore(to, snapshot));
    return bytes.size();
}

Result<std::string> check_copy(Subject& subject, Carrier carrier) {
    STET_ASSIGN(const Baseline* baseline, subject.baseline());
    Context context = subject.make_context(2);
    STET_TRY(context.restore_all_file(Env::posix(), baseline->file));
    STET_ASSIGN(const std::size_t size, move(context, 0, 1, carrier));
    STET_TRY(subject.expect_baseline(context, 1));
    return fmt::format("{} bytes", size);
}

Result<std::string> check_scattered(Subject& subject, Carrier carrier) {
    Context context = subject.make_context(2);
    STET_TRY(interleave(subject, context));
    STET_ASSIGN(const Bytes before, save(context, 1));
    STET_TRY(context.clear(0));
    STET_TRY(move(context, 1, 1, carrier).status());
    STET_ASSIGN(const Bytes after, save(context, 1));
    STET_TRY(expect_equal(before, after, "sequence 1 after its restore"));
    return fmt::format("{} bytes", after.size());
}

}  // namespace

Result<std::string> check_baseline(Subject& subject, const CheckOptions& /*options*/) {
    STET_ASSIGN(const Baseline* baseline, subject.baseline());
    return fmt::format("{} tokens of prompt, {} of answer", baseline->prompt.size(),
                       baseline->answer.size());
}

Result<std::string> check_removal(Subject& subject, const CheckOptions& /*options*/) {
    Context context = subject.make_context(2);
    const auto prompt = subject.tokens(0, 0, std::min(kSharedTokens, subject.length_max()));
    for (const SequenceId id : {0U, 1U}) {
        STET_TRY(subject.feed(context, id, prompt).status());
    }
    STET_ASSIGN(const Bytes before, save(context, 1));
    STET_TRY(context.clear(0));
    STET_ASSIGN(const Bytes after, save(context, 1));
    STET_TRY(expect_equal(before, after, "sequence 1 after sequence 0 was removed"));
    return fmt::format("{} bytes", after.size());
}

Result<std::string> check_context_file(Subject& subject, const CheckOptions& /*options*/) {
    STET_ASSIGN(const Baseline* baseline, subject.baseline());
    Context context = subject.make_context(3);
    STET_TRY(context.restore_all_file(Env::posix(), baseline->file));
    STET_TRY(subject.expect_baseline(context, 0));
    return std::string("goes on with the same logits");
}

Result<std::string> check_copy_by_bytes(Subject& subject, const CheckOptions& /*options*/) {
    return check_copy(subject, Carrier::bytes);
}

Result<std::string> check_copy_by_value(Subject& subject, const CheckOptions& /*options*/) {
    return check_copy(subject, Carrier::value);
}

Result<std::string> check_scattered_by_bytes(Subject& subject, const CheckOptions& /*options*/) {
    return check_scattered(subject, Carrier::bytes);
}

Result<std::string> check_scattered_by_value(Subject& subject, const CheckOptions& /*options*/) {
    return check_scattered(subject, Carrier::value);
}

Result<std::string> check_round_trip(Subject& subject, const CheckOptions& /*options*/) {
    STET_ASSIGN(const Baseline* baseline, subject.baseline());
    Context context = subject.make_context(1);
    STET_TRY(subject.feed(context, 0, baseline->prompt).status());
    STET_ASSIGN(const Bytes before, save(context, 0));
    STET_TRY(context.clear(0));
    STET_TRY(context.restore(0, before));
    STET_ASSIGN(const Bytes after, save(context, 0));
    STET_TRY(expect_equal(before, after, "the second save"));
    return fmt::format("{} bytes", after.size());
}

Result<std::string> check_restore_failure(Subject& subject, const CheckOptions& /*options*/) {
    Context empty = subject.make_context(4);
    STET_ASSIGN(const auto expected, feed_after_damage(subject, empty));
    const auto path = subject.directory() / "damaged";
    for (const bool is_file : {false, true}) {
        Context context = subject.make_context(4);
        STET_TRY(subject.feed(context, 0, subject.tokens(0, 0, kDamagedPrompt)).status());
        STET_ASSIGN(Bytes bytes, save(context, 0));
        STET_TRY(context.clear(0));
        damage(bytes);
        if (is_file) STET_TRY(write_file(path, bytes));
        const Status status =
            is_file ? context.restore_file(0, Env::posix(), path) : context.restore(0, bytes);
        STET_TRY(expect_refused(status, {Code::corruption}, is_file ? "file" : "buffer"));
        STET_ASSIGN(const state::Sequence* target, context.find(0));
        if (target->position() != 0) return failure("the target is not empty any more");
        STET_ASSIGN(const auto logits, feed_after_damage(subject, context));
        for (std::size_t i = 0; i < logits.size(); ++i) {
            for (std::size_t j = 0; j < logits[i].size(); ++j) {
                if (std::abs(logits[i][j] - expected[i][j]) <= kNeighbourLimit) continue;
                return failure(fmt::format("logit {} after token {} is {}, expected {}", j, i,
                                           logits[i][j], expected[i][j]));
            }
        }
    }
    return std::string("refused from a buffer and from a file");
}

Result<std::string> check_quantized_rows(Subject& subject, const CheckOptions& /*options*/) {
    using memory::ElementType;
    auto loaded = Subject::load(subject.engine().model().file->path(),
                                {ElementType::q8_0, ElementType::q8_0});
    if (!loaded && loaded.status().code() == Code::invalid_argument) {
        return "no q8_0 rows: " + loaded.status().to_string();  // rows that blocks don't divide
    }
    if (!loaded) return loaded.status();
    Subject& quantized = **loaded;
    Context context = quantized.make_context(2);
    STET_TRY(quantized.feed(context, 0, quantized.tokens(0, 0, 1)).status());
    STET_ASSIGN(const Bytes bytes, save(context, 0));
    STET_TRY(context.restore(1, bytes));
    STET_ASSIGN(const Bytes again, save(context, 1));
    STET_TRY(expect_equal(bytes, again, "q8_0 state after its restore"));
    Context other = subject.make_context(1);
    STET_TRY(expect_refused(other.restore(0, bytes), {Code::incompatible},
                            "q8_0 state in an f16 context"));
    return fmt::format("{} bytes; refused by an f16 context", bytes.size());
}

}  // namespace stet::selftest
