// Going back, aside and on: each way comes to where a run that never turned would be, bit for bit.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "base/try.h"
#include "engine/sampler.h"
#include "selftest/columns.h"
#include "state/checkpoint.h"

namespace stet::selftest {
namespace {

constexpr std::uint32_t kForkAt = 41;  // not at a page's end
constexpr std::uint32_t kForkTokens = 6;
constexpr std::uint32_t kTokensAfter = 3;
// A step over several tokens rounds otherwise than single ones do.
constexpr double kRecomputedLimit = 1e-5;

Status expect_rows(const std::vector<LogitRow>& expected, const std::vector<LogitRow>& got,
                   std::string_view what) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        STET_TRY(expect_equal(expected[i], got[i], fmt::format("{}, logits {}", what, i)));
    }
    return {};
}

Status expect_same_state(const Context& expected, SequenceId expected_id, const Context& got,
                         SequenceId got_id, std::string_view what) {
    STET_ASSIGN(const Bytes expected_bytes, save(expected, expected_id));
    STET_ASSIGN(const Bytes got_bytes, save(got, got_id));
    return expect_equal(expected_bytes, got_bytes, what);
}

// Where something ends or begins: pages, windows and chunks, blocks of compressed rows, and pages
// of those. Ascending.
std::set<std::uint32_t> boundaries(const memory::Schema& schema) {
    std::set<std::uint32_t> found = {memory::kPageRows};
    for (const memory::Group& group : schema.groups) {
        if (group.parameter == 0) continue;
        found.insert(group.parameter);
        if (group.lifetime == memory::Lifetime::every && group.parameter < 1U << 16) {
            found.insert(group.parameter * memory::kPageRows);
        }
    }
    return found;
}

// A run that never goes back: what follows each of `positions` when kTokensAfter tokens of another
// history come next. Checkpoints are asked for at each.
class Fresh {
  public:
    static Result<Fresh> run(Subject& subject, Context& context,
                             const std::vector<std::uint32_t>& positions) {
        Fresh fresh;
        std::uint32_t position = 0;
        for (const std::uint32_t next : positions) {
            STET_TRY(subject.feed(context, 0, subject.tokens(50, position, next)).status());
            STET_TRY(context.checkpoint(0));
            STET_TRY(context.fork(0, 1));
            STET_ASSIGN(fresh.rows_[next],
                        subject.feed_each(context, 1, subject.tokens(51, 0, kTokensAfter)));
            position = next;
        }
        return fresh;
    }

    Status expect_same(Subject& subject, Context& context, SequenceId id, std::uint32_t position,
                       std::string_view what) const {
        STET_ASSIGN(const auto rows,
                    subject.feed_each(context, id, subject.tokens(51, 0, kTokensAfter)));
        return expect_rows(rows_.at(position), rows, fmt::format("{} {}", what, position));
    }

    const LogitRow& first_after(std::uint32_t position) const { return rows_.at(position).front(); }

  private:
    std::map<std::uint32_t, std::vector<LogitRow>> rows_;
};

// To positions between checkpoints: as near as there is, and what is missing is computed again.
Result<std::size_t> truncate_between(Subject& subject, Context& context, const Fresh& fresh,
                                     const std::vector<std::uint32_t>& positions) {
    std::size_t recomputed = 0;
    for (std::size_t i = 1; i < positions.size(); ++i) {
        const std::uint32_t wanted = positions[i] - 1;
        STET_TRY(context.fork(0, 1));
        STET_ASSIGN(const auto cut, context.truncate(1, wanted));
        if (cut.position + cut.recompute_tokens != wanted || cut.position < positions[i - 1]) {
            return failure(fmt::format("truncated to {} instead of {}, with {} to compute again",
                                       cut.position, wanted, cut.recompute_tokens));
        }
        recomputed += cut.recompute_tokens;
        const auto begin = static_cast<std::uint32_t>(cut.position);
        STET_TRY(subject.feed(context, 1, subject.tokens(50, begin, wanted + 1)).status());
        STET_ASSIGN(const LogitRow row, subject.feed(context, 1, subject.tokens(51, 0, 1)));
        STET_TRY(expect_close(fresh.first_after(positions[i]), row, kRecomputedLimit,
                              fmt::format("logits after truncation to {}", wanted)));
    }
    return recomputed;
}

engine::SamplerOptions warm() {
    engine::SamplerOptions options;
    options.repeat_penalty = 1.1F;
    options.seed = 77;
    return options;
}

// The restored sequence draws what the saved one would, from kept logits: no token is fed again.
Status expect_same_draw(Context& context, SequenceId id, const engine::Sampler& saved) {
    STET_ASSIGN(const state::Sequence* restored, context.find(id));
    if (!restored->sampler || !restored->logits) return failure("sampler or logits are lost");
    STET_ASSIGN(engine::Sampler sampler, engine::Sampler::decode(*restored->sampler, warm()));
    engine::Sampler expected = saved;
    const Token want = expected.sample(*restored->logits);
    const Token got = sampler.sample(*restored->logits);
    if (want == got) return {};
    return failure(fmt::format("draws token {} after its restore, {} before", got, want));
}

// Saves sequence 0 where it is, restores it as 1, and lets copies of both go on.
Status check_position(Subject& subject, Context& context, engine::Sampler& sampler) {
    STET_ASSIGN(const state::Sequence* live, context.find(0));
    state::Sequence dressed = *live;
    sampler.accept(dressed.tokens.back());
    dressed.sampler = std::make_shared<const std::vector<std::byte>>(sampler.encode());
    STET_TRY(context.put(0, std::move(dressed)));
    STET_ASSIGN(const Bytes bytes, save(context, 0));
    STET_TRY(context.fork(0, 2));
    STET_TRY(context.restore(1, bytes));
    STET_TRY(expect_same_draw(context, 1, sampler));
    const auto tokens = subject.tokens(61, 0, kTokensAfter);
    STET_ASSIGN(const auto expected, subject.feed_each(context, 2, tokens));
    STET_ASSIGN(const auto rows, subject.feed_each(context, 1, tokens));
    return expect_rows(expected, rows, "restored");
}

}  // namespace

Result<std::string> check_fork(Subject& subject, const CheckOptions& /*options*/) {
    const std::uint32_t begin = std::min(kForkAt, subject.length_max() / 2);
    const auto prompt = subject.tokens(0, 0, begin);
    Context context = subject.make_context(3);
    STET_TRY(subject.feed(context, 0, prompt).status());
    STET_TRY(context.fork(0, 1));
    std::array<std::vector<LogitRow>, 2> rows;
    for (std::uint32_t i = 0; i < kForkTokens; ++i) {  // by turns, on a page that both began with
        for (const SequenceId id : {0U, 1U}) {
            STET_ASSIGN(rows[id].emplace_back(),
                        subject.feed(context, id, subject.tokens(id + 1, i, i + 1)));
        }
    }
    for (const SequenceId id : {0U, 1U}) {
        Context fresh = subject.make_context(1);
        STET_TRY(subject.feed(fresh, 0, prompt).status());
        STET_ASSIGN(const auto expected,
                    subject.feed_each(fresh, 0, subject.tokens(id + 1, 0, kForkTokens)));
        STET_TRY(expect_rows(expected, rows[id], id == 0 ? "the forked" : "the fork"));
        STET_TRY(expect_same_state(fresh, 0, context, id, "state beside a fresh run's"));
    }
    STET_TRY(context.fork(1, 2));  // over nothing, and from a fork
    STET_TRY(context.clear(1));
    STET_TRY(subject.feed(context, 2, subject.tokens(3, 0, 1)).status());
    return fmt::format("two ways from token {}", begin);
}

Result<std::string> check_rollback(Subject& subject, const CheckOptions& /*options*/) {
    std::vector<std::uint32_t> positions;
    for (const std::uint32_t position : {9U, 33U, 64U, 101U, 130U, 193U}) {
        if (position + kTokensAfter < subject.length_max()) positions.push_back(position);
    }
    Context context = subject.make_context(2);
    STET_ASSIGN(const Fresh fresh, Fresh::run(subject, context, positions));
    STET_ASSIGN(const auto usage, context.usage(0));
    if (state::needs_checkpoints(subject.schema()) && usage.checkpoints.size() < positions.size()) {
        return failure(fmt::format("{} of {} checkpoints were kept", usage.checkpoints.size(),
                                   positions.size()));
    }
    for (auto back = positions.rbegin(); back != positions.rend(); ++back) {
        STET_TRY(context.fork(0, 1));
        STET_TRY(context.rollback(1, *back));
        STET_TRY(fresh.expect_same(subject, context, 1, *back, "back to"));
    }
    STET_ASSIGN(const std::size_t recomputed, truncate_between(subject, context, fresh, positions));
    for (auto back = positions.rbegin(); back != positions.rend(); ++back) {
        STET_TRY(context.rollback(0, *back));  // one after the other, in one sequence
    }
    STET_TRY(fresh.expect_same(subject, context, 0, positions.front(), "back, step by step, to"));
    return fmt::format("{} checkpoints; {} tokens computed again between them", positions.size(),
                       recomputed);
}

Result<std::string> check_boundaries(Subject& subject, const CheckOptions& /*options*/) {
    std::set<std::uint32_t> positions = {1, 2};
    for (const std::uint32_t k : boundaries(subject.schema())) {
        for (const std::uint32_t position : {k - 1, k, k + 1, 2 * k + 1}) {
            if (position > 0 && position + kTokensAfter < subject.length_max()) {
                positions.insert(position);
            }
        }
    }
    Context context = subject.make_context(3);
    engine::Sampler sampler(warm());
    std::uint32_t begin = 0;
    for (const std::uint32_t position : positions) {
        STET_TRY(subject.feed(context, 0, subject.tokens(60, begin, position)).status());
        begin = position;
        const Status status = check_position(subject, context, sampler);
        if (!status) return status.with_context(fmt::format("at {} tokens", position));
    }
    return fmt::format("{} positions up to {}", positions.size(), begin);
}

}  // namespace stet::selftest
