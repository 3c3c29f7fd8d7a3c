// The value and its transaction against a plain model: what a sequence holds is, for every token,
// the row that was written for it, whatever was forked, cut, dropped or restored around it.
#include "state/sequence.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "state/extent.h"
#include "unit/state/plain_model.h"

namespace stet::state {
namespace {

using namespace state_test;

Sequence copied_by_extents(PagePool& pool, const Sequence& sequence,
                           const std::vector<std::uint64_t>& boundaries) {
    const Schema& schema = pool.schema();
    PrefixIds ids(root_id({}, schema, ""));
    Stage stage(pool, sequence.tokens);
    std::uint64_t begin = 0;
    for (const std::uint64_t end : boundaries) {
        for (const Extent& extent : extents_between(schema, ids, sequence.tokens, begin, end)) {
            const bool block = !schema.groups[extent.group].is_paged();
            if (block ? end != sequence.position() : !stage.needs(extent)) continue;
            std::vector<std::byte> payload(extent.size_bytes);
            gather(schema, sequence, extent, payload);
            const Status put = stage.put(extent, payload);
            EXPECT_TRUE(put) << put.to_string();
        }
        begin = end;
    }
    auto finished = std::move(stage).finish();
    EXPECT_TRUE(finished) << finished.status().to_string();
    return std::move(finished).value();
}

TEST(Append, DroppedAppendChangesNothing) {
    PagePool pool(all_lifetimes(70, 4), 1U << 22);
    const Sequence base = extended(pool, Sequence::empty(pool.schema()), some_tokens(100));
    const std::uint64_t pages = pool.stats().pages_in_use;
    {
        Append append = Append::begin(pool, base, some_tokens(50, 500)).value();
        write_rows(pool.schema(), append);
    }
    EXPECT_EQ(first_wrong_row(pool.schema(), base), "");
    EXPECT_EQ(pool.stats().pages_in_use, pages);
    // The rows are free again: no page is copied.
    const Sequence next = extended(pool, base, some_tokens(1));
    EXPECT_EQ(next.groups[0].pages.back(), base.groups[0].pages.back());
    EXPECT_EQ(first_wrong_row(pool.schema(), next), "");
}

TEST(Append, ForksThatDivergeDoNotSeeEachOther) {
    PagePool pool(all_lifetimes(70, 4), 1U << 22);
    const Sequence base = extended(pool, Sequence::empty(pool.schema()), some_tokens(100));
    const Sequence left = extended(pool, base, some_tokens(30, 500));
    const Sequence right = extended(pool, base, some_tokens(30, 900));
    for (const Sequence& sequence : {base, left, right}) {
        EXPECT_EQ(first_wrong_row(pool.schema(), sequence), "");
    }
    EXPECT_EQ(left.groups[0].pages.front(), right.groups[0].pages.front())
        << "full pages are shared";
    EXPECT_NE(left.groups[0].pages[1], right.groups[0].pages[1]);
}

TEST(Append, FullPoolFailsBeforeAnythingChanges) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 4 * schema.groups[0].page_bytes());
    const Sequence base = extended(pool, Sequence::empty(schema), some_tokens(10));
    const auto refused = Append::begin(pool, base, some_tokens(1000));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), Code::resource_exhausted);
    EXPECT_EQ(first_wrong_row(schema, base), "");
    EXPECT_EQ(first_wrong_row(schema, extended(pool, base, some_tokens(5))), "");
}

TEST(Sequence, WindowsForgetPagesLeftBehind) {
    PagePool pool(all_lifetimes(70, 4), 1U << 24);
    Sequence sequence = Sequence::empty(pool.schema());
    for (int i = 0; i < 20; ++i) sequence = extended(pool, sequence, some_tokens(64));
    EXPECT_LE(sequence.groups[1].pages.size(), 3U);
    EXPECT_EQ(sequence.groups[0].pages.size(), 20U);
    EXPECT_EQ(first_wrong_row(pool.schema(), sequence), "");
}

TEST(Extent, KeysNameContentNotHistory) {
    const Schema schema = all_lifetimes(70, 4);
    const std::vector<Token> tokens = some_tokens(200);
    PrefixIds ids(root_id({}, schema, "a"));
    PrefixIds same(root_id({}, schema, "a"));
    PrefixIds tenant(root_id({}, schema, "b"));
    EXPECT_EQ(extents_between(schema, ids, tokens, 0, 200),
              extents_between(schema, same, tokens, 0, 200));
    const auto ours = extents_between(schema, ids, tokens, 0, 200);
    const auto theirs = extents_between(schema, tenant, tokens, 0, 200);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NE(ours[i].key, theirs[i].key);
    // One changed token changes every key from there on, and none before.
    std::vector<Token> changed = tokens;
    changed[130] += 1;
    PrefixIds other(root_id({}, schema, "a"));
    const auto after = extents_between(schema, other, changed, 0, 200);
    for (std::size_t i = 0; i < ours.size(); ++i) {
        const Group& group = schema.groups[ours[i].group];
        const bool sees = !group.is_paged() || tokens_of_rows(group, ours[i].row_end) > 130;
        EXPECT_EQ(ours[i].key != after[i].key, sees) << i;
    }
}

TEST(Stage, RefusesWhatDoesNotFit) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 1U << 24);
    const Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(100));
    PrefixIds ids(root_id({}, schema, ""));
    const auto extents = extents_between(schema, ids, sequence.tokens, 0, 100);
    const auto payload_of = [&](const Extent& extent) {
        std::vector<std::byte> payload(extent.size_bytes);
        gather(schema, sequence, extent, payload);
        return payload;
    };
    Stage stage(pool, sequence.tokens);
    const auto payload = payload_of(extents[0]);
    const auto refused = [&](auto change) {
        Extent extent = extents[0];
        change(extent);
        return stage.put(extent, payload).code() == Code::corruption;
    };
    EXPECT_TRUE(refused([](Extent& e) { e.group = 99; }));
    EXPECT_TRUE(refused([](Extent& e) { e.group = 3; }));
    EXPECT_TRUE(refused([](Extent& e) { e.row_end = 65; }));
    EXPECT_TRUE(refused([](Extent& e) { e.row_begin = 1; }));
    EXPECT_TRUE(refused([](Extent& e) { e.row_end = e.row_begin; }));
    EXPECT_TRUE(refused([](Extent& e) { e.row_end = ~0ULL; }));
    EXPECT_TRUE(refused([](Extent& e) { e.row_begin = 64, e.row_end = 128; }));
    ASSERT_TRUE(stage.put(extents[0], payload));
    EXPECT_EQ(stage.put(extents[0], payload).code(), Code::corruption) << "rows come twice";
    const auto incomplete = std::move(stage).finish();
    ASSERT_FALSE(incomplete);
    EXPECT_EQ(incomplete.status().code(), Code::corruption);
    EXPECT_EQ(first_wrong_row(schema, sequence), "");
}

TEST(Stage, NamesTheRowThatIsMissing) {
    const Schema schema = some_lifetimes(1, 9, 4);
    PagePool pool(schema, 1U << 24);
    const Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(100));
    PrefixIds ids(root_id({}, schema, ""));
    Stage stage(pool, sequence.tokens);
    for (const Extent& extent : extents_between(schema, ids, sequence.tokens, 0, 70)) {
        std::vector<std::byte> payload(extent.size_bytes);
        gather(schema, sequence, extent, payload);
        ASSERT_TRUE(stage.put(extent, payload));
    }
    const auto incomplete = std::move(stage).finish();
    ASSERT_FALSE(incomplete);
    EXPECT_NE(incomplete.status().to_string().find("row 70 is missing"), std::string::npos);
}

TEST(Stage, WhatWasLoadedGoesOnInItsOwnPages) {
    const Schema schema = some_lifetimes(1, 9, 4);
    PagePool pool(schema, 1U << 24);
    const Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(100));
    const Sequence loaded = copied_by_extents(pool, sequence, {100});
    const Sequence next = extended(pool, loaded, some_tokens(5));
    EXPECT_EQ(next.groups[0].pages.at(1), loaded.groups[0].pages.at(1)) << "not in a copy";
}

RC_GTEST_PROP(Sequence, RandomHistoriesEqualAPlainModel, ()) {
    const Schema schema = all_lifetimes(*rc::gen::inRange(1, 200), *rc::gen::inRange(1, 9));
    PagePool pool(schema, 1U << 26);
    pool.set_poison(std::byte{0xff});
    std::vector<Sequence> values = {Sequence::empty(schema)};
    std::vector<std::vector<std::uint64_t>> boundaries = {{}};
    const auto steps = *rc::gen::inRange(1, 24);
    for (int i = 0; i < steps; ++i) {
        const auto index = *rc::gen::inRange<std::size_t>(0, values.size());
        const auto count = *rc::gen::inRange<std::size_t>(1, 150);
        const auto first = *rc::gen::inRange<Token>(0, 4000);
        switch (*rc::gen::inRange(0, 4)) {
            case 0: {  // a step that fails
                Append append =
                    Append::begin(pool, values[index], some_tokens(count, first)).value();
                if (*rc::gen::arbitrary<bool>()) write_rows(schema, append);
                break;
            }
            case 1: {  // save and restore
                if (values[index].position() == 0) break;
                values.push_back(copied_by_extents(pool, values[index], boundaries[index]));
                boundaries.push_back(boundaries[index]);
                break;
            }
            default: {  // fork and extend
                values.push_back(extended(pool, values[index], some_tokens(count, first)));
                boundaries.push_back(boundaries[index]);
                boundaries.back().push_back(values.back().position());
            }
        }
        if (values.size() > 6) {
            values.erase(values.begin() + 1);
            boundaries.erase(boundaries.begin() + 1);
        }
        for (const Sequence& value : values) RC_ASSERT(first_wrong_row(schema, value) == "");
    }
}

}  // namespace
}  // namespace stet::state
