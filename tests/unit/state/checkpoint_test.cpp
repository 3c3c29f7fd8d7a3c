// Going back: every position that a value says it can be cut to is one whose rows are all right.
#include "state/checkpoint.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>

#include "unit/state/plain_model.h"

namespace stet::state {
namespace {

using namespace state_test;

// Extends in steps that end at multiples of the spacing, as the engine's do.
Sequence fed(PagePool& pool, Sequence sequence, const std::vector<Token>& tokens) {
    std::size_t done = 0;
    while (done < tokens.size()) {
        const std::size_t room = kCheckpointSpacing - sequence.position() % kCheckpointSpacing;
        const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(done);
        const auto count = static_cast<std::ptrdiff_t>(std::min(room, tokens.size() - done));
        sequence = extended(pool, sequence, {begin, begin + count});
        done += static_cast<std::size_t>(count);
    }
    return sequence;
}

std::vector<std::uint64_t> positions(const Sequence& sequence) {
    std::vector<std::uint64_t> all;
    for (const auto& kept : sequence.checkpoints) all.push_back(kept->position);
    return all;
}

TEST(Checkpoint, TokenRowsAreCutAnywhereWithoutAny) {
    const Schema schema = some_lifetimes(1 | 4, 70, 4);
    PagePool pool(schema, 1U << 24);
    const Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(1300));
    EXPECT_TRUE(sequence.checkpoints.empty());
    for (const std::uint64_t at : {0U, 1U, 63U, 64U, 65U, 512U, 1299U, 1300U}) {
        const Truncated cut = truncate(schema, sequence, at).value();
        EXPECT_EQ(cut.sequence.position(), at);
        EXPECT_EQ(cut.recompute_tokens, 0U);
        EXPECT_EQ(first_wrong_row(schema, cut.sequence), "");
    }
    EXPECT_EQ(truncate(schema, sequence, 1301).status().code(), Code::invalid_argument);
}

TEST(Checkpoint, FixedBlocksGoBackToTheNearestOne) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 1U << 24);
    Sequence sequence = fed(pool, Sequence::empty(schema), some_tokens(600));
    checkpoint(schema, sequence);
    sequence = fed(pool, sequence, some_tokens(1000, 900));
    EXPECT_EQ(positions(sequence), (std::vector<std::uint64_t>{512, 600, 1024, 1536}));
    const auto reached = [&](std::uint64_t wanted) {
        const Truncated cut = truncate(schema, sequence, wanted).value();
        EXPECT_EQ(first_wrong_row(schema, cut.sequence), "") << wanted;
        EXPECT_EQ(cut.sequence.position() + cut.recompute_tokens, wanted);
        return cut.sequence.position();
    };
    EXPECT_EQ(reached(1600), 1600U);
    EXPECT_EQ(reached(1599), 1536U);
    EXPECT_EQ(reached(1024), 1024U);
    EXPECT_EQ(reached(1023), 600U);
    EXPECT_EQ(reached(599), 512U);
    EXPECT_EQ(reached(511), 0U);
    EXPECT_EQ(rollback(schema, sequence, 600).value().position(), 600U);
    const auto refused = rollback(schema, sequence, 601);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), Code::unavailable);
    EXPECT_NE(refused.status().message().find("600"), std::string_view::npos);
}

TEST(Checkpoint, WindowsComeBackWithTheirRows) {
    const Schema schema = some_lifetimes(1 | 2, 70, 4);
    PagePool pool(schema, 1U << 24);
    // One long step: windows have every position on the way.
    const Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(2000));
    EXPECT_EQ(positions(sequence), (std::vector<std::uint64_t>{512, 1024, 1536}));
    EXPECT_LE(sequence.groups[1].pages.size(), 3U) << "the live value keeps the window only";
    for (std::uint64_t wanted = 0; wanted <= 2000; ++wanted) {
        const Truncated cut = truncate(schema, sequence, wanted).value();
        ASSERT_EQ(first_wrong_live_row(schema, cut.sequence), "") << wanted;
        ASSERT_EQ(validate(schema, cut.sequence).to_string(), Status().to_string());
        ASSERT_LE(cut.recompute_tokens, kCheckpointSpacing);
    }
    // Rows that the window's page holds anyway are no loss.
    const std::uint64_t oldest = sequence.groups[1].first_row + 69;
    EXPECT_EQ(reachable_position(schema, sequence, oldest), oldest);
    EXPECT_EQ(reachable_position(schema, sequence, oldest - 1), 1536U);
    EXPECT_EQ(reachable_position(schema, sequence, 1535), 1535U);
}

TEST(Checkpoint, GoingOnAfterwardsTouchesNeitherSide) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 1U << 24);
    const Sequence sequence = fed(pool, Sequence::empty(schema), some_tokens(1400));
    const Sequence back = rollback(schema, sequence, 1024).value();
    const Sequence other = fed(pool, back, some_tokens(700, 3000));
    for (const Sequence& value : {sequence, back, other}) {
        EXPECT_EQ(first_wrong_row(schema, value), "");
    }
    EXPECT_EQ(positions(back), (std::vector<std::uint64_t>{512, 1024}));
    EXPECT_EQ(positions(other), (std::vector<std::uint64_t>{512, 1024, 1536}));
}

TEST(Checkpoint, TheirNumberIsBoundedAndTheyStaySpread) {
    const Schema schema = some_lifetimes(8, 1, 1);
    PagePool pool(schema, 1U << 24);
    Sequence sequence = Sequence::empty(schema);
    std::vector<Token> step = some_tokens(kCheckpointSpacing);
    for (int i = 0; i < 200; ++i) {
        sequence = extended(pool, sequence, step);
        ASSERT_LE(sequence.checkpoints.size(), checkpoints_max(schema));
    }
    const auto kept = positions(sequence);
    ASSERT_EQ(kept.size(), checkpoints_max(schema));
    EXPECT_EQ(kept.back(), 200 * kCheckpointSpacing);
    EXPECT_EQ(kept[kept.size() - 2], 199 * kCheckpointSpacing) << "dense near the end";
    for (std::size_t i = 0; i + 1 < kept.size(); ++i) {
        const std::uint64_t age = sequence.position() - kept[i];
        EXPECT_LE(kept[i + 1] - kept[i], std::max(age, 2 * kCheckpointSpacing)) << "and never far";
    }
    EXPECT_LE(pool.stats().pages_in_use, checkpoints_max(schema) + 1);
}

TEST(Checkpoint, ThoseAskedForOutlastTheOthers) {
    const Schema schema = some_lifetimes(8, 1, 1);
    PagePool pool(schema, 1U << 24);
    Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(5000));
    checkpoint(schema, sequence);
    for (int i = 0; i < 40; ++i) sequence = fed(pool, sequence, some_tokens(kCheckpointSpacing));
    EXPECT_EQ(rollback(schema, sequence, 5000).value().position(), 5000U);
}

TEST(Checkpoint, OfEvenOnesThoseAskedForAreKept) {
    const Schema schema = some_lifetimes(8, 1, 1);
    PagePool pool(schema, 1U << 24);
    Sequence sequence = Sequence::empty(schema);
    for (int i = 0; i < 40; ++i) {  // by turns, and equally far apart
        sequence = fed(pool, sequence, some_tokens(kCheckpointSpacing / 2));
        checkpoint(schema, sequence);
        sequence = fed(pool, sequence, some_tokens(kCheckpointSpacing / 2));
    }
    const auto asked = std::ranges::count_if(sequence.checkpoints,
                                             [](const auto& kept) { return kept->is_asked_for; });
    const auto others = static_cast<std::ptrdiff_t>(sequence.checkpoints.size()) - asked;
    EXPECT_GT(asked, 2 * others) << asked << " beside " << others;
}

TEST(Checkpoint, FewerWhenEachIsLarge) {
    const Schema small = some_lifetimes(8, 1, 1);
    Schema large = small;
    large.groups[0].planes[0] = plane("s", 3, 16U << 20);  // 64 MiB
    EXPECT_EQ(checkpoints_max(small), 16U);
    EXPECT_EQ(checkpoints_max(large), 4U);
}

TEST(Checkpoint, AskedForTwiceIsOne) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 1U << 24);
    Sequence sequence = Sequence::empty(schema);
    checkpoint(schema, sequence);
    EXPECT_TRUE(sequence.checkpoints.empty()) << "nothing is there to keep at 0";
    sequence = extended(pool, sequence, some_tokens(512));
    ASSERT_EQ(sequence.checkpoints.size(), 1U);
    EXPECT_FALSE(sequence.checkpoints[0]->is_asked_for);
    checkpoint(schema, sequence);
    checkpoint(schema, sequence);
    ASSERT_EQ(sequence.checkpoints.size(), 1U);
    EXPECT_TRUE(sequence.checkpoints[0]->is_asked_for);
}

TEST(Checkpoint, BringsTheSamplerBackAndForgetsTheLogits) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 1U << 24);
    Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(30));
    sequence.sampler = std::make_shared<const std::vector<std::byte>>(3, std::byte{7});
    sequence.logits = std::make_shared<const std::vector<float>>(5, 1.0F);
    checkpoint(schema, sequence);
    const Sequence next = extended(pool, sequence, some_tokens(10));
    EXPECT_EQ(next.sampler, nullptr) << "a step makes both stale";
    EXPECT_EQ(next.logits, nullptr);
    const Sequence back = rollback(schema, next, 30).value();
    EXPECT_EQ(back.sampler, sequence.sampler);
    EXPECT_EQ(back.logits, nullptr);
    EXPECT_EQ(rollback(schema, sequence, 30).value().logits, sequence.logits) << "nothing was cut";
}

TEST(Checkpoint, PositionExtensionsFollowTheTokens) {
    const Schema schema = some_lifetimes(1, 1, 1);
    PagePool pool(schema, 1U << 24);
    const Sequence text = extended(pool, Sequence::empty(schema), some_tokens(2));
    EXPECT_TRUE(text.extensions.empty());
    const std::vector<PositionExtension> image = {{2, 2, 2}, {2, 2, 3}, {2, 3, 2}, {2, 3, 3}};
    Append append = Append::begin(pool, text, some_tokens(4), image).value();
    write_rows(schema, append);
    Sequence mixed = std::move(append).commit();
    mixed = extended(pool, mixed, some_tokens(1));
    ASSERT_EQ(mixed.extensions.size(), 7U);
    EXPECT_EQ(mixed.extensions[1], (PositionExtension{1, 1, 1}));
    EXPECT_EQ(mixed.extensions[3], (PositionExtension{2, 2, 3}));
    EXPECT_EQ(mixed.extensions[6], (PositionExtension{4, 4, 4}))
        << "after the greatest of the image";
    EXPECT_EQ(rollback(schema, mixed, 4).value().extensions.size(), 4U);
    EXPECT_EQ(Append::begin(pool, mixed, some_tokens(3), image).status().code(),
              Code::invalid_argument);
}

TEST(Checkpoint, ValidateSeesWhatIsWrong) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 1U << 24);
    const Sequence good = fed(pool, Sequence::empty(schema), some_tokens(1100));
    ASSERT_EQ(good.checkpoints.size(), 2U);
    const auto refused = [&](auto change) {
        Sequence bad = good;
        auto kept = std::make_shared<Checkpoint>(*bad.checkpoints[0]);
        change(bad, *kept);
        bad.checkpoints[0] = kept;
        return validate(schema, bad).code() == Code::internal;
    };
    EXPECT_FALSE(refused([](Sequence&, Checkpoint&) {}));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.position = 0; }));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.position = 513; }));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.position = 1024; }));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.position = 2000; }));
    EXPECT_TRUE(refused([](Sequence& s, Checkpoint&) {
        s.checkpoints.push_back(s.checkpoints[1]);
    })) << "one twice";
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.groups.pop_back(); }));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.groups[3].block = {}; }));
    EXPECT_TRUE(refused([](Sequence& s, Checkpoint& c) { c.groups[0] = s.groups[0]; }));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.groups[1].pages.pop_back(); }));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.groups[1].first_row += 64; }));
    EXPECT_TRUE(refused([](Sequence&, Checkpoint& c) { c.groups[1].rows += 1; }));
    EXPECT_TRUE(
        refused([](Sequence& s, Checkpoint&) { s.groups[3].block = s.groups[1].pages[0]; }));
    EXPECT_TRUE(
        refused([](Sequence& s, Checkpoint&) { s.groups[1].pages[0] = s.groups[0].pages[0]; }));
    EXPECT_TRUE(refused([](Sequence& s, Checkpoint&) { s.groups[0].rows -= 1; }));
    EXPECT_TRUE(refused([](Sequence& s, Checkpoint&) { s.extensions.resize(3); }));
    EXPECT_TRUE(refused([](Sequence& s, Checkpoint&) { s.tokens.pop_back(); }));
}

RC_GTEST_PROP(Checkpoint, EveryPositionLeadsToARightValue, ()) {
    const auto lifetimes = *rc::gen::inRange(0U, 16U);
    const Schema schema =
        some_lifetimes(lifetimes, *rc::gen::inRange(1U, 700U), *rc::gen::inRange(1U, 9U));
    PagePool pool(schema, 1U << 26);
    pool.set_poison(std::byte{0xff});
    Sequence sequence = Sequence::empty(schema);
    const auto steps = *rc::gen::inRange(1, 8);
    for (int i = 0; i < steps; ++i) {
        sequence = fed(pool, sequence, some_tokens(*rc::gen::inRange<std::size_t>(1, 600), 31 * i));
        if (*rc::gen::arbitrary<bool>()) checkpoint(schema, sequence);
        const auto wanted = *rc::gen::inRange<std::uint64_t>(0, sequence.position() + 1);
        const Truncated cut = truncate(schema, sequence, wanted).value();
        RC_ASSERT(first_wrong_row(schema, cut.sequence) == "");
        RC_ASSERT(cut.sequence.position() + cut.recompute_tokens == wanted);
        // Nothing later than what was reached would have done.
        for (const auto& kept : sequence.checkpoints) {
            RC_ASSERT(kept->position > wanted || kept->position <= cut.sequence.position());
        }
        if (*rc::gen::arbitrary<bool>()) sequence = cut.sequence;
    }
}

}  // namespace
}  // namespace stet::state
