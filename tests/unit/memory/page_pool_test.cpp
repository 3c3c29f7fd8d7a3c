#include "memory/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace stet::memory {
namespace {

Plane plane(const char* name, std::int32_t layer, ElementType type, std::uint32_t elements) {
    return {name, layer, type, elements, row_bytes(type, elements)};
}

Schema two_groups() {
    return {{Group{"attention",
                   Lifetime::tokens,
                   0,
                   {plane("k", 0, ElementType::f16, 8), plane("v", 0, ElementType::f32, 4)}},
             Group{"recurrent", Lifetime::fixed, 0, {plane("s", 1, ElementType::f32, 10)}}}};
}

TEST(Schema, SizesAndOffsets) {
    const Schema schema = two_groups();
    EXPECT_EQ(schema.groups[0].row_bytes(), 32U);
    EXPECT_EQ(schema.groups[0].page_bytes(), 32U * kPageRows);
    EXPECT_EQ(schema.groups[0].plane_offset(1), 16U * kPageRows);
    EXPECT_EQ(schema.groups[1].page_bytes(), 40U);
    EXPECT_EQ(row_bytes(ElementType::q8_0, 64), 68U);
    EXPECT_EQ(row_bytes(ElementType::q8_0, 33), 0U);
}

TEST(Schema, RowsByLifetime) {
    const Group window{"w", Lifetime::window, 8, {}};
    EXPECT_EQ(window.rows_at(20), 20U);
    EXPECT_EQ(window.first_needed_row(7), 0U);
    EXPECT_EQ(window.first_needed_row(8), 1U);
    EXPECT_EQ(window.first_needed_row(20), 13U);
    const Group every{"e", Lifetime::every, 4, {}};
    EXPECT_EQ(every.rows_at(3), 0U);
    EXPECT_EQ(every.rows_at(9), 2U);
}

TEST(Schema, HashSeesEveryField) {
    const Hash256 base = two_groups().hash();
    const auto differs = [&](auto change) {
        Schema schema = two_groups();
        change(schema);
        return schema.hash() != base;
    };
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].name = "other"; }));
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].lifetime = Lifetime::window; }));
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].parameter = 1; }));
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].planes[0].name = "q"; }));
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].planes[0].layer = 5; }));
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].planes[0].type = ElementType::f32; }));
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].planes[0].elements = 9; }));
    EXPECT_TRUE(differs([](Schema& s) { s.groups[0].planes.pop_back(); }));
    EXPECT_TRUE(differs([](Schema& s) { std::swap(s.groups[0], s.groups[1]); }));
    EXPECT_FALSE(differs([](Schema&) {}));
}

TEST(PagePool, LimitIsHardAndComesBack) {
    const Schema schema = two_groups();
    const std::uint64_t page = schema.groups[0].page_bytes();
    PagePool pool(schema, 3 * page);
    std::vector<PageRef> pages;
    for (int i = 0; i < 3; ++i) {
        auto allocated = pool.allocate(0);
        ASSERT_TRUE(allocated);
        pages.push_back(*allocated);
    }
    const auto refused = pool.allocate(0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), Code::resource_exhausted);
    EXPECT_EQ(pool.stats().bytes_in_use, 3 * page);
    const PageRef shared = pages.back();
    pages.pop_back();
    EXPECT_FALSE(pool.allocate(0));  // still referenced
    pages.pop_back();
    EXPECT_TRUE(pool.allocate(0));
}

TEST(PagePool, ReusedPagesAreCleared) {
    PagePool pool(two_groups(), 1U << 20);
    const std::byte* address = nullptr;
    {
        PageRef page = pool.allocate(0).value();
        address = page.data().data();
        std::ranges::fill(page.writable_data(), std::byte{0x5a});
    }
    const PageRef again = pool.allocate(0).value();
    ASSERT_EQ(again.data().data(), address) << "expected the free page to be reused";
    EXPECT_TRUE(std::ranges::all_of(again.data(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(PagePool, PoisonMarksUnwrittenRows) {
    PagePool pool(two_groups(), 1U << 20);
    pool.set_poison(std::byte{0xff});
    const PageRef page = pool.allocate(0).value();
    EXPECT_TRUE(std::ranges::all_of(page.data(), [](std::byte b) { return b == std::byte{0xff}; }));
}

TEST(PagePool, ARowIsClaimedOnce) {
    PagePool pool(two_groups(), 1U << 20);
    PageRef page = pool.allocate(0).value();
    PageRef other = page;
    EXPECT_TRUE(page.claim(0, 10));
    EXPECT_FALSE(other.claim(0, 5)) << "rows 0 to 10 are taken";
    EXPECT_FALSE(other.claim(5, 12));
    EXPECT_TRUE(other.claim(10, 12));
    page.unclaim(0, 10);
    EXPECT_FALSE(page.claim(0, 10)) << "a later claim keeps the earlier one";
    other.unclaim(10, 12);
    EXPECT_TRUE(page.claim(10, 64));
}

TEST(PagePool, CopyTakesTheFirstRowsOfEveryPlane) {
    const Schema schema = two_groups();
    PagePool pool(schema, 1U << 20);
    PageRef source = pool.allocate(0).value();
    std::ranges::fill(source.writable_data(), std::byte{7});
    PageRef copy = pool.copy(0, source, 3).value();
    const auto data = copy.data();
    for (std::size_t p = 0; p < 2; ++p) {
        const std::uint64_t row = schema.groups[0].planes[p].row_bytes;
        const std::uint64_t offset = schema.groups[0].plane_offset(p);
        EXPECT_EQ(data[offset + 3 * row - 1], std::byte{7});
        EXPECT_EQ(data[offset + 3 * row], std::byte{0});
    }
    EXPECT_FALSE(copy.claim(0, 1));
    EXPECT_TRUE(copy.claim(3, 4));
}

TEST(PagePool, ManyThreads) {
    PagePool pool(two_groups(), 1U << 20);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&pool] {
            std::vector<PageRef> mine;
            for (int i = 0; i < 500; ++i) {
                if (auto page = pool.allocate(static_cast<std::size_t>(i % 2)))
                    mine.push_back(*page);
                if (mine.size() > 5) mine.erase(mine.begin());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.stats().pages_in_use, 0U);
    EXPECT_EQ(pool.stats().bytes_in_use, 0U);
}

}  // namespace
}  // namespace stet::memory
