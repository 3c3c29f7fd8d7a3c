#include "exec/attention_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace stet::exec {
namespace {

constexpr std::uint32_t kVectorLanes = 16;

AttentionShape shape_of(std::uint32_t group) {
    AttentionShape shape;
    shape.kv_heads = 3;
    shape.heads = 3 * group;
    shape.key_size = shape.value_size = shape.v_head_stride = 64;
    return shape;
}

Segment segment_of(std::uint64_t position, std::uint32_t begin, std::uint32_t count) {
    Segment segment;
    segment.position = position;
    segment.token_begin = begin;
    segment.token_count = count;
    return segment;
}

// With few heads on a K/V head (row by row) and with many (tiles).
TEST(AttentionPlan, RowsOfSequencesThatDecodeAreReadTogether) {
    for (const std::uint32_t group : {3U, 16U}) {
        const std::vector<Segment> segments{segment_of(2000, 0, 1), segment_of(1500, 1, 1),
                                            segment_of(2100, 2, 1)};
        Plan plan;
        plan.build(shape_of(group), segments, kVectorLanes);
        std::uint64_t at = 0;
        std::size_t in_step = 0;  // items that follow one of the same rows
        for (const WorkItem& item : plan.items) {
            EXPECT_GE(item.rows.begin, at);
            if (item.rows.begin == at) ++in_step;
            at = item.rows.begin;
        }
        EXPECT_GT(in_step, plan.items.size() / 2);
    }
}

// What a prompt beside them does keeps its order, and comes first.
TEST(AttentionPlan, PromptsComeFirstAsTheyAre) {
    const AttentionShape shape = shape_of(3);
    const Segment prompt = segment_of(0, 1, 512);
    Plan alone;
    alone.build(shape, std::vector{prompt}, kVectorLanes);
    Plan mixed;
    mixed.build(shape, std::vector{segment_of(700, 0, 1), prompt, segment_of(700, 513, 1)},
                kVectorLanes);
    ASSERT_GT(mixed.items.size(), alone.items.size());
    for (std::size_t i = 0; i < alone.items.size(); ++i) {
        const WorkItem& item = mixed.items[i];
        EXPECT_EQ(mixed.units[item.unit].segment, 1U);
        EXPECT_EQ(item.rows.begin, alone.items[i].rows.begin);
        EXPECT_EQ(item.rows.end, alone.items[i].rows.end);
        EXPECT_EQ(mixed.units[item.unit].lane_begin, alone.units[alone.items[i].unit].lane_begin);
    }
}

}  // namespace
}  // namespace stet::exec
