// Attention with a bias by distance against its definition in double precision.
#include "exec/relative_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "exec/kernel.h"

namespace stet::exec {
namespace {

using memory::ElementType;
using memory::kPageRows;

constexpr std::uint32_t kHeads = 3, kSize = 20, kBuckets = 32, kRows = 200;

std::vector<float> made(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

struct Case {
    std::vector<float> q = made(kRows * kHeads * kSize, 1);
    std::vector<float> k = made(kRows * kHeads * kSize, 2);
    std::vector<float> v = made(kRows * kHeads * kSize, 3);
    std::vector<float> bias = made(kBuckets * kHeads, 4);

    RelativeSpan span(std::uint32_t begin, std::uint32_t count) const {
        RelativeSpan span;
        span.token_begin = begin;
        span.token_count = count;
        span.position = begin;
        span.row_end = kRows;
        span.k = {k.data(), kHeads * kSize};
        span.v = {v.data(), kHeads * kSize};
        return span;
    }
    std::vector<float> run(const RelativeAttention& shape, const std::vector<RelativeSpan>& spans,
                           int threads) const {
        std::vector<float> out(q.size(), 7.0F);
        for (int thread = 0; thread < threads; ++thread) {
            relative_attention(shape, spans, {q.data(), kHeads * kSize},
                               {out.data(), kHeads * kSize}, thread, threads);
        }
        return out;
    }
    void expect(const RelativeAttention& shape, const RelativeSpan& span,
                const std::vector<float>& out) const {
        for (std::uint32_t t = 0; t < span.token_count; ++t) {
            for (std::uint32_t h = 0; h < kHeads; ++h) {
                const std::size_t at = (std::size_t{span.token_begin + t} * kHeads + h) * kSize;
                const std::uint64_t own = span.position + t;
                const std::uint64_t end = span.causal ? own + 1 : span.row_end;
                std::vector<double> sum(kSize);
                double total = 0;
                for (std::uint64_t row = span.row_begin; row < end; ++row) {
                    const std::size_t place = (row * kHeads + h) * kSize;
                    double score = 0;
                    for (std::uint32_t i = 0; i < kSize; ++i) {
                        score += double{q[at + i]} * double{k[place + i]};
                    }
                    if (shape.bias != nullptr) {
                        const std::int64_t distance =
                            static_cast<std::int64_t>(row) - static_cast<std::int64_t>(own);
                        score += double{
                            bias[relative_bucket(distance, kBuckets, shape.both_ways) * kHeads +
                                 h]};
                    }
                    total += std::exp(score);
                    for (std::uint32_t i = 0; i < kSize; ++i) {
                        sum[i] += std::exp(score) * double{v[place + i]};
                    }
                }
                for (std::uint32_t i = 0; i < kSize; ++i) {
                    ASSERT_NEAR(double{out[at + i]}, sum[i] / total, 2e-5) << t;
                }
            }
        }
    }
};

TEST(RelativeBucket, IsExactNearbyAndWiderBeyond) {
    EXPECT_EQ(relative_bucket(3, 32, false), 0U);  // later rows: as the query's own
    for (std::int64_t d = 0; d < 16; ++d) EXPECT_EQ(relative_bucket(-d, 32, false), d);
    EXPECT_EQ(relative_bucket(-16, 32, false), 16U);
    EXPECT_EQ(relative_bucket(-20, 32, false), 17U);
    EXPECT_EQ(relative_bucket(-127, 32, false), 31U);
    EXPECT_EQ(relative_bucket(-5000, 32, false), 31U);
    EXPECT_EQ(relative_bucket(-7, 32, true), 7U);
    EXPECT_EQ(relative_bucket(7, 32, true), 23U);
    EXPECT_EQ(relative_bucket(8, 32, true), 24U);
    EXPECT_EQ(relative_bucket(1000, 32, true), 31U);
    EXPECT_EQ(relative_bucket(-1000, 32, true), 15U);
}

TEST(RelativeAttention, BothWaysOverPlainRows) {
    const Case made;
    const RelativeAttention shape{kHeads, kSize, made.bias.data(), kBuckets, true};
    const auto span = made.span(0, kRows);
    const auto out = made.run(shape, {span}, 1);
    made.expect(shape, span, out);
    EXPECT_EQ(made.run(shape, {span}, 3), out);
}

TEST(RelativeAttention, CausalFromARowOnAndHoweverItIsCut) {
    const Case made;
    const RelativeAttention shape{kHeads, kSize, made.bias.data(), kBuckets, false};
    auto span = made.span(30, 170);
    span.row_begin = 30;
    span.causal = true;
    const auto out = made.run(shape, {span}, 2);
    made.expect(shape, span, out);
    std::vector<RelativeSpan> parts;
    for (const auto& [begin, end] : {std::pair{30U, 31U}, {31U, 90U}, {90U, 200U}}) {
        parts.push_back(made.span(begin, end - begin));
        parts.back().row_begin = 30;
        parts.back().causal = true;
    }
    EXPECT_EQ(made.run(shape, parts, 5), out);
}

TEST(RelativeAttention, CrossAttentionOverPages) {
    const Case made;
    const std::uint64_t row_bytes = memory::row_bytes(ElementType::f32, kHeads * kSize);
    std::vector<std::vector<std::byte>> data;
    std::vector<std::byte*> pages;
    for (std::uint32_t row = 0; row < kRows; ++row) {
        if (row % kPageRows == 0) {
            pages.push_back(data.emplace_back(2 * kPageRows * row_bytes).data());
        }
        std::byte* at = pages.back() + row % kPageRows * row_bytes;
        kernels().store_row(&made.k[row * kHeads * kSize], kHeads * kSize, ElementType::f32, at);
        kernels().store_row(&made.v[row * kHeads * kSize], kHeads * kSize, ElementType::f32,
                            at + kPageRows * row_bytes);
    }
    const RelativeAttention shape{kHeads, kSize, nullptr, 0, false};
    auto span = made.span(0, 9);
    span.row_end = 150;
    const auto plain = made.run(shape, {span}, 1);
    made.expect(shape, span, plain);
    span.pages = pages.data();
    span.k_plane = {0, row_bytes, ElementType::f32};
    span.v_plane = {kPageRows * row_bytes, row_bytes, ElementType::f32};
    EXPECT_EQ(made.run(shape, {span}, 2), plain);
    span.row_end = 0;
    const auto nothing = made.run(shape, {span}, 1);
    for (std::size_t i = 0; i < std::size_t{9} * kHeads * kSize; ++i) EXPECT_EQ(nothing[i], 0.0F);
}

}  // namespace
}  // namespace stet::exec
