#include "exec/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention_case.h"

namespace stet::exec {
namespace {

using test::Call;
using test::Case;
using test::make_case;

constexpr double kTolerance = 1e-5;

// Every instruction set that this machine can run.
class AttentionTest : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { force_kernel_target(GetParam()); }
    void TearDown() override { force_kernel_target(""); }

    void check(const Case& c) {
        const Call call(c);
        const std::vector<float> got = call.run();
        EXPECT_LE(call.error(got), kTolerance);
    }
};

INSTANTIATE_TEST_SUITE_P(Targets, AttentionTest, testing::ValuesIn(kernel_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(AttentionTest, OneTokenAtTheFirstPosition) {
    check(make_case(4, 2, 64, 64, {{0, 1}}));
}

TEST_P(AttentionTest, OneTokenAtEveryDepthAroundPageBoundaries) {
    for (const std::uint64_t position : {1, 15, 16, 62, 63, 64, 65, 126, 127, 128, 300, 777}) {
        SCOPED_TRACE(position);
        check(make_case(9, 3, 64, 64, {{position, 1}}));
    }
}

TEST_P(AttentionTest, PromptLengthsAroundPagesAndTiles) {
    for (const std::uint32_t count : {2, 3, 5, 17, 48, 63, 64, 65, 100, 145}) {
        SCOPED_TRACE(count);
        check(make_case(6, 2, 64, 64, {{0, count}}));
        check(make_case(6, 2, 64, 64, {{70, count}}));
    }
}

TEST_P(AttentionTest, OddHeadSizes) {
    for (const std::uint32_t key_size : {1, 7, 40, 65, 80, 96, 100}) {
        for (const std::uint32_t value_size : {1, 5, 33, 64, 80}) {
            SCOPED_TRACE(testing::Message() << key_size << " x " << value_size);
            check(make_case(4, 2, key_size, value_size, {{97, 1}, {40, 30}}));
        }
    }
}

TEST_P(AttentionTest, LargeHeads) {
    for (const std::uint32_t size : {128, 192, 256}) {
        SCOPED_TRACE(size);
        check(make_case(4, 1, size, size, {{300, 1}, {10, 40}}));
    }
}

TEST_P(AttentionTest, GroupsOfEverySize) {
    for (std::uint32_t group = 1; group <= 17; ++group) {
        SCOPED_TRACE(group);
        check(make_case(2 * group, 2, 32, 32, {{130, 1}, {33, 3}}));
    }
}

TEST_P(AttentionTest, ElementTypes) {
    for (const auto type : {memory::ElementType::f32, memory::ElementType::q8_0}) {
        // 48-element heads start inside a block, 20-element heads inside a vector.
        for (const std::uint32_t size : {64, 48, 20}) {
            SCOPED_TRACE(testing::Message() << memory::element_type_name(type) << ' ' << size);
            Case c = make_case(16, 8, size, size, {{200, 1}, {30, 50}, {5, 2}});
            c.type = type;
            check(c);
        }
    }
}

TEST_P(AttentionTest, LatentAttentionSharesOnePlane) {
    Case c = make_case(16, 1, 576, 512, {{150, 1}, {0, 9}});
    c.shared_plane = true;
    check(c);
    c.type = memory::ElementType::q8_0;
    check(c);
    c = make_case(3, 1, 70, 57, {{150, 1}, {0, 70}});
    c.shared_plane = true;
    check(c);
}

TEST_P(AttentionTest, WindowsAroundPageBoundaries) {
    for (const Window kind : {Window::sliding, Window::chunked}) {
        for (const std::uint32_t window : {1, 5, 63, 64, 65, 128, 200}) {
            for (const std::uint64_t position : {0, 63, 64, 127, 128, 191, 255, 300}) {
                SCOPED_TRACE(testing::Message() << int(kind) << ' ' << window << ' ' << position);
                Case c = make_case(6, 2, 32, 32, {{position, 1}, {position, 30}, {position, 2}});
                c.shape.window_kind = kind;
                c.shape.window = window;
                check(c);
            }
        }
    }
}

TEST_P(AttentionTest, WindowWithPagesDroppedInFront) {
    Case c = make_case(6, 2, 32, 32, {{500, 1}, {500, 40}});
    c.shape.window_kind = Window::sliding;
    c.shape.window = 100;
    Call call(c);
    for (Segment& segment : call.segments()) {
        segment.pages += 6;
        segment.first_row = 6 * memory::kPageRows;
    }
    const std::vector<float> got = call.run();
    for (Segment& segment : call.segments()) {
        segment.pages -= 6;
        segment.first_row = 0;
    }
    EXPECT_LE(call.error(got), kTolerance);
}

TEST_P(AttentionTest, Alibi) {
    for (const std::uint32_t heads : {4, 6, 12}) {
        SCOPED_TRACE(heads);
        Case c = make_case(heads, 2, 32, 32, {{300, 1}, {70, 60}, {3, 2}});
        c.shape.max_alibi_bias = 8.0F;
        check(c);
    }
}

TEST_P(AttentionTest, SoftCap) {
    Case c = make_case(4, 2, 64, 64, {{300, 1}, {70, 60}});
    c.shape.softcap = 2.0F;
    c.shape.scale = 0.5F;
    check(c);
}

TEST_P(AttentionTest, Sinks) {
    Case c = make_case(6, 2, 64, 64, {{0, 1}, {400, 1}, {0, 50}, {7, 3}});
    c.sinks = true;
    check(c);
}

TEST_P(AttentionTest, WithoutCausalLimit) {
    Case c = make_case(6, 2, 64, 64, {{0, 70}, {100, 5}, {64, 2}, {0, 1}});
    c.shape.causal = false;
    check(c);
    c.shape.max_alibi_bias = 8.0F;
    check(c);
}

TEST_P(AttentionTest, EverythingAtOnce) {
    Case c = make_case(14, 7, 72, 40, {{300, 1}, {0, 0}, {129, 33}, {64, 2}, {250, 150}, {63, 1}});
    c.shape.softcap = 3.0F;
    c.shape.max_alibi_bias = 8.0F;
    c.shape.window_kind = Window::sliding;
    c.shape.window = 130;
    c.sinks = true;
    check(c);
}

TEST_P(AttentionTest, LargeScoresStayExact) {
    Case c = make_case(4, 2, 64, 64, {{300, 1}, {0, 40}});
    c.shape.scale = 12.0F;  // scores of several hundred: nearly all weight on one row
    const Call call(c);
    EXPECT_LE(call.error(call.run()), 2e-4);
}

TEST_P(AttentionTest, ThreadsDoNotChangeBits) {
    Case c = make_case(9, 3, 64, 64, {{1500, 1}, {600, 70}, {40, 3}, {0, 5}});
    c.sinks = true;
    const Call call(c);
    AttentionJob job;
    const std::vector<float> one = call.run(1, job);
    EXPECT_LE(call.error(one), kTolerance);
    for (int threads = 2; threads <= 4; ++threads) {
        for (int repeat = 0; repeat < 5; ++repeat) {
            EXPECT_EQ(call.run(threads, job), one) << threads << " threads";
        }
    }
}

TEST_P(AttentionTest, OtherSegmentsDoNotChangeBits) {
    const Case both = make_case(9, 3, 64, 64, {{700, 1}, {100, 60}});
    const Case alone = make_case(9, 3, 64, 64, {{700, 1}});
    Call both_call(both);
    const std::vector<float> together = both_call.run();
    both_call.segments().pop_back();
    const std::vector<float> single = both_call.run();
    const std::size_t count = 9 * 64;
    EXPECT_TRUE(std::equal(together.begin(), together.begin() + count, single.begin()));
}

TEST_P(AttentionTest, OneJobServesCallsOfAnySize) {
    AttentionJob job;
    for (const std::uint64_t position : {900, 3, 2000, 64}) {
        const Call call(make_case(6, 2, 64, 64, {{position, 1}, {position, 20}}));
        EXPECT_EQ(call.run(2, job), call.run(1));
    }
}

TEST(AttentionPathTest, NamesTheBestPath) {
    EXPECT_THAT(kernel_path(), testing::AnyOf(testing::StrEq("avx512"), testing::StrEq("avx2"),
                                              testing::StrEq("portable")));
}

}  // namespace
}  // namespace stet::exec
