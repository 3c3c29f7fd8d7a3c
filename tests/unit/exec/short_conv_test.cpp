#include "exec/recurrent/short_conv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recurrent_case.h"

namespace stet::exec {
namespace {

using test::Batch;
using test::Block;
using test::noise;
using test::Part;
using testing::FloatNear;
using testing::Pointwise;

constexpr std::size_t kOffset = 5;  // floats of other planes before the state

struct Case {
    std::uint32_t channels;
    std::uint32_t taps;
    bool has_bias;
};

std::size_t block_floats(const Case& c) {
    return kOffset + std::size_t{c.channels} * (c.taps - 1);
}

struct Result {
    std::vector<float> out;
    std::vector<Block> blocks;
};

Result run(const Case& c, const std::vector<float>& x, const std::vector<Part>& parts,
           int threads) {
    const std::vector<float> weight = noise(std::size_t{c.channels} * c.taps, 1);
    const std::vector<float> bias = noise(c.channels, 2);
    Batch batch(parts, block_floats(c));
    Result result{std::vector<float>(x.size()), {}};
    const ShortConv conv{.channels = c.channels,
                         .taps = c.taps,
                         .weight = weight.data(),
                         .bias = c.has_bias ? bias.data() : nullptr,
                         .offset_bytes = kOffset * sizeof(float)};
    test::on_threads(threads, [&](int thread, int count) {
        short_conv(conv, {x.data(), c.channels}, {result.out.data(), c.channels}, batch.segments,
                   thread, count);
    });
    result.blocks = batch.blocks;
    return result;
}

// The formula, for one sequence from position 0.
std::vector<float> formula(const Case& c, const std::vector<float>& x) {
    const std::vector<float> weight = noise(std::size_t{c.channels} * c.taps, 1);
    const std::vector<float> bias = noise(c.channels, 2);
    std::vector<float> out(x.size());
    for (std::size_t t = 0; t < x.size() / c.channels; ++t) {
        for (std::uint32_t channel = 0; channel < c.channels; ++channel) {
            double sum = c.has_bias ? bias[channel] : 0.0F;
            for (std::uint32_t k = 0; k < c.taps; ++k) {
                if (t + k + 1 < c.taps) continue;
                const std::size_t at = t + k + 1 - c.taps;
                sum += double{weight[channel * c.taps + k]} * x[at * c.channels + channel];
            }
            out[t * c.channels + channel] = static_cast<float>(sum);
        }
    }
    return out;
}

class ShortConvTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, ShortConvTest,
                         testing::Values(Case{200, 4, true}, Case{64, 4, false}, Case{3, 2, true},
                                         Case{65, 3, false}, Case{130, 32, true}));

TEST_P(ShortConvTest, FollowsTheFormula) {
    const Case c = GetParam();
    const std::vector<float> x = noise(std::size_t{c.channels} * 50, 3);
    const Result result = run(c, x, {{{}, 50}}, 1);
    EXPECT_THAT(result.out, Pointwise(FloatNear(1e-4F), formula(c, x)));
}

TEST_P(ShortConvTest, KeepsTheLastInputsOfEachChannel) {
    const Case c = GetParam();
    const std::size_t tokens = 50;
    const std::vector<float> x = noise(c.channels * tokens, 3);
    const Block block = run(c, x, {{{}, tokens}}, 2).blocks[0];
    for (std::uint32_t channel = 0; channel < c.channels; ++channel) {
        for (std::uint32_t k = 0; k + 1 < c.taps; ++k) {
            EXPECT_EQ(block[kOffset + channel * (c.taps - 1) + k],
                      x[(tokens + 1 + k - c.taps) * c.channels + channel]);
        }
    }
}

TEST_P(ShortConvTest, CutsAndNeighboursAndThreadsChangeNothing) {
    const Case c = GetParam();
    const std::vector<float> x = noise(std::size_t{c.channels} * 50, 3);
    const std::vector<float> other = noise(std::size_t{c.channels} * 9, 4);
    const Result whole = run(c, x, {{{}, 50}}, 1);
    for (const std::uint32_t cut : {1U, 2U, 3U, 20U, 49U}) {
        const auto middle = x.begin() + std::ptrdiff_t{cut} * c.channels;
        std::vector<float> first(x.begin(), middle);
        first.insert(first.end(), other.begin(), other.end());
        std::vector<float> second = other;
        second.insert(second.end(), middle, x.end());
        const Result before = run(c, first, {{{}, cut}, {{}, 9}}, 3);
        const Result after =
            run(c, second, {{before.blocks[1], 9}, {before.blocks[0], 50 - cut}}, 2);
        std::vector<float> out(before.out.begin(),
                               before.out.begin() + std::ptrdiff_t{cut} * c.channels);
        out.insert(out.end(), after.out.begin() + static_cast<std::ptrdiff_t>(other.size()),
                   after.out.end());
        EXPECT_EQ(out, whole.out) << cut;
        const auto state = [](const Block& block) {
            return std::vector<float>(block.begin() + kOffset, block.end());
        };
        EXPECT_EQ(state(after.blocks[1]), state(whole.blocks[0])) << cut;
    }
}

}  // namespace
}  // namespace stet::exec
