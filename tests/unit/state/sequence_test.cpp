// The value and its transaction against a plain model: what a sequence holds is, for every token,
// the row that was written for it, whatever was forked, cut, dropped or restored around it.
#include "state/sequence.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>

#include "state/extent.h"

namespace stet::state {
namespace {

using memory::ElementType;
using memory::Group;
using memory::kPageRows;
using memory::Lifetime;
using memory::PagePool;
using memory::Plane;
using memory::Schema;

Plane plane(const char* name, std::int32_t layer, std::uint32_t elements) {
    return {name, layer, ElementType::f32, elements, memory::row_bytes(ElementType::f32, elements)};
}

Schema all_lifetimes(std::uint32_t window, std::uint32_t ratio) {
    return {{Group{"attention", Lifetime::tokens, 0, {plane("k", 0, 2), plane("v", 0, 1)}},
             Group{"window", Lifetime::window, window, {plane("k", 1, 1), plane("v", 1, 2)}},
             Group{"compressed", Lifetime::every, ratio, {plane("c", 2, 1)}},
             Group{"recurrent", Lifetime::fixed, 0, {plane("s", 3, 3)}}}};
}

// What row `row` of a plane must hold after this history: a digest of everything it depends on.
float row_value(const std::vector<Token>& tokens, std::uint64_t end, std::size_t group,
                std::size_t plane_index) {
    std::uint32_t hash = static_cast<std::uint32_t>(group * 31 + plane_index + 1);
    for (std::uint64_t i = 0; i < end; ++i) {
        hash = hash * 16777619U ^ static_cast<std::uint32_t>(tokens[i] + 1);
    }
    return static_cast<float>(hash & 0xffffff);
}

std::uint64_t tokens_of_rows(const Group& group, std::uint64_t rows) {
    return group.lifetime == Lifetime::every ? rows * group.parameter : rows;
}

// Plays the model: writes the new rows of every group.
void write_rows(const Schema& schema, Append& append) {
    const Sequence& next = append.next();
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            const std::uint64_t elements = group.planes[p].elements;
            if (!group.is_paged()) {
                auto* block = reinterpret_cast<float*>(append.new_block(g).data() + group.plane_offset(p));
                std::fill_n(block, elements, row_value(next.tokens, next.position(), g, p));
                continue;
            }
            const GroupState& state = next.groups[g];
            for (std::uint64_t row = group.rows_at(append.base_position()); row < state.rows; ++row) {
                std::byte* page = append.block_table(g)[(row - state.first_row) / kPageRows];
                auto* data = reinterpret_cast<float*>(page + group.plane_offset(p)) +
                             row % kPageRows * elements;
                std::fill_n(data, elements,
                            row_value(next.tokens, tokens_of_rows(group, row + 1), g, p));
            }
        }
    }
}

// Empty when every row that the next token may look at is right.
std::string first_wrong_row(const Schema& schema, const Sequence& sequence) {
    if (const Status status = validate(schema, sequence); !status) return status.to_string();
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        const GroupState& state = sequence.groups[g];
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            const std::uint64_t elements = group.planes[p].elements;
            if (!group.is_paged()) {
                if (sequence.position() == 0) continue;
                const auto* block = reinterpret_cast<const float*>(state.block.data().data() + group.plane_offset(p));
                if (block[elements - 1] != row_value(sequence.tokens, sequence.position(), g, p)) {
                    return group.name + " block";
                }
                continue;
            }
            for (std::uint64_t row = group.first_needed_row(sequence.position()); row < state.rows; ++row) {
                const auto page = state.pages[(row - state.first_row) / kPageRows].data();
                const auto* data = reinterpret_cast<const float*>(page.data() + group.plane_offset(p)) +
                                   row % kPageRows * elements;
                if (data[elements - 1] != row_value(sequence.tokens, tokens_of_rows(group, row + 1), g, p)) {
                    return group.name + " row " + std::to_string(row);
                }
            }
        }
    }
    return "";
}

Sequence extended(PagePool& pool, const Sequence& base, const std::vector<Token>& tokens) {
    Append append = Append::begin(pool, base, tokens).value();
    write_rows(pool.schema(), append);
    return std::move(append).commit();
}

std::vector<Token> some_tokens(std::size_t count, Token first = 1) {
    std::vector<Token> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<Token>(i % 97);
    return tokens;
}

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
    EXPECT_EQ(left.groups[0].pages.front(), right.groups[0].pages.front()) << "full pages are shared";
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

TEST(Sequence, TruncatesOnlyWhereEveryGroupCanFollow) {
    const Schema schema = all_lifetimes(70, 4);
    PagePool pool(schema, 1U << 24);
    const Sequence sequence = extended(pool, Sequence::empty(schema), some_tokens(300));
    EXPECT_EQ(truncatable_position(schema, sequence, 300), 300U);
    EXPECT_EQ(truncatable_position(schema, sequence, 299), 0U) << "the recurrent block is at 300";
    EXPECT_FALSE(truncate(schema, sequence, 299));
    EXPECT_EQ(truncate(schema, sequence, 0).value().position(), 0U);
    EXPECT_FALSE(truncate(schema, sequence, 301));

    Schema paged = schema;
    paged.groups.pop_back();
    PagePool paged_pool(paged, 1U << 24);
    const Sequence rows = extended(paged_pool, Sequence::empty(paged), some_tokens(300));
    const std::uint64_t oldest = rows.groups[1].first_row + 69;
    EXPECT_EQ(truncatable_position(paged, rows, oldest), oldest);
    EXPECT_EQ(truncatable_position(paged, rows, oldest - 1), 0U) << "rows of the window are gone";
    const Sequence cut = truncate(paged, rows, 270).value();
    EXPECT_EQ(first_wrong_row(paged, cut), "");
    EXPECT_EQ(first_wrong_row(paged, extended(paged_pool, cut, some_tokens(200, 700))), "");
    EXPECT_EQ(first_wrong_row(paged, rows), "");
}

TEST(Extent, KeysNameContentNotHistory) {
    const Schema schema = all_lifetimes(70, 4);
    const std::vector<Token> tokens = some_tokens(200);
    PrefixIds ids(root_id({}, schema, "a"));
    PrefixIds same(root_id({}, schema, "a"));
    PrefixIds tenant(root_id({}, schema, "b"));
    EXPECT_EQ(extents_between(schema, ids, tokens, 0, 200), extents_between(schema, same, tokens, 0, 200));
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
                Append append = Append::begin(pool, values[index], some_tokens(count, first)).value();
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
