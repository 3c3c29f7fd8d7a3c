#include "exec/recurrent/short_conv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recurrent_case.h"

namespace stet::exec {
namespace {

using test::kTokens;
using test::noise;
using test::Tested;
using testing::FloatNear;
using testing::Pointwise;

struct Case {
    std::uint32_t channels;
    std::uint32_t taps;
    bool has_bias;
    std::uint32_t dilation = 1;
    std::vector<float> weight = noise(std::size_t{channels} * taps, 1);
    std::vector<float> bias = has_bias ? noise(channels, 2) : std::vector<float>(channels);

    Tested tested() const {
        return {.widths = {channels},
                .out_width = channels,
                .state_floats = std::size_t{channels} * (taps - 1) * dilation,
                .inputs =
                    [this](unsigned sequence, std::uint32_t tokens) {
                        return Tested::Inputs{noise(std::size_t{channels} * tokens, 10 + sequence)};
                    },
                .run =
                    [this](std::span<const ConstRows> in, const Rows& out,
                           std::span<const Segment> segments, int thread, int threads) {
                        const ShortConv conv{.channels = channels,
                                             .taps = taps,
                                             .dilation = dilation,
                                             .weight = weight.data(),
                                             .bias = has_bias ? bias.data() : nullptr,
                                             .offset_bytes = test::kOffsetBytes};
                        short_conv(conv, in[0], out, segments, thread, threads);
                    }};
    }
    std::vector<float> x() const { return tested().inputs(0, kTokens)[0]; }

    // The formula, for one sequence from position 0.
    std::vector<float> expected() const {
        const std::vector<float> values = x();
        std::vector<float> out(values.size());
        for (std::size_t t = 0; t < kTokens; ++t) {
            for (std::uint32_t channel = 0; channel < channels; ++channel) {
                double sum = bias[channel];
                for (std::uint32_t k = 0; k < taps; ++k) {
                    const std::size_t back = (taps - 1 - k) * dilation;
                    if (t < back) continue;
                    const std::size_t at = t - back;
                    sum += double{weight[channel * taps + k]} * values[at * channels + channel];
                }
                out[t * channels + channel] = static_cast<float>(sum);
            }
        }
        return out;
    }
};

class ShortConvTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, ShortConvTest,
                         testing::Values(Case{200, 4, true}, Case{64, 4, false}, Case{3, 2, true},
                                         Case{65, 3, false}, Case{130, 32, true},
                                         Case{70, 4, false, 3}, Case{5, 3, true, 8}));

TEST_P(ShortConvTest, FollowsTheFormula) {
    EXPECT_THAT(test::run_whole(GetParam().tested()).out[0],
                Pointwise(FloatNear(1e-4F), GetParam().expected()));
}

TEST_P(ShortConvTest, KeepsTheLastInputsOfEachChannel) {
    const Case& c = GetParam();
    const std::vector<float> x = c.x();
    const auto state = test::run_whole(c.tested()).states[0];
    for (std::uint32_t channel = 0; channel < c.channels; ++channel) {
        const std::uint32_t kept = (c.taps - 1) * c.dilation;
        for (std::uint32_t k = 0; k < kept; ++k) {
            EXPECT_EQ(state[channel * kept + k], x[(kTokens - kept + k) * c.channels + channel]);
        }
    }
}

TEST_P(ShortConvTest, CutsNeighboursAndThreadsChangeNothing) {
    test::expect_cuts_change_nothing(GetParam().tested());
}

}  // namespace
}  // namespace stet::exec
