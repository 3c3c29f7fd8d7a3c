#include "exec/recurrent/ssm_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "exec/recurrent/lanes.h"
#include "recurrent_case.h"

namespace stet::exec {
namespace {

using test::kTokens;
using test::noise;
using test::Tested;
using testing::FloatNear;
using testing::Pointwise;

std::vector<float> decays(std::size_t count) {
    std::vector<float> values = noise(count, 1);
    for (float& value : values) value = -std::exp(value);
    return values;
}

struct Case {
    std::uint32_t heads;
    std::uint32_t head_size;
    std::uint32_t states;
    std::uint32_t groups;
    bool by_state;
    std::vector<float> decay = decays(std::size_t{heads} * (by_state ? states : 1));

    Tested tested() const {
        const std::uint32_t channels = heads * head_size;
        const std::uint32_t shared = groups * states;
        return {
            .widths = {channels, heads, shared, shared},
            .out_width = channels,
            .state_floats = std::size_t{channels} * states,
            .inputs =
                [this, channels, shared](unsigned sequence, std::uint32_t tokens) {
                    // Steps of all sizes: the largest are past softplus' straight part.
                    return Tested::Inputs{noise(std::size_t{channels} * tokens, 10 + sequence),
                                          noise(std::size_t{heads} * tokens, 20 + sequence, 8.0F),
                                          noise(std::size_t{shared} * tokens, 30 + sequence),
                                          noise(std::size_t{shared} * tokens, 40 + sequence)};
                },
            .run =
                [this](std::span<const ConstRows> in, const Rows& out,
                       std::span<const Segment> segments, int thread, int threads) {
                    const SsmScan scan{.heads = heads,
                                       .head_size = head_size,
                                       .states = states,
                                       .groups = groups,
                                       .decay = decay.data(),
                                       .decay_by_state = by_state,
                                       .offset_bytes = test::kOffsetBytes};
                    ssm_scan(scan, {in[0], in[1], in[2], in[3]}, out, segments, thread, threads);
                }};
    }

    // The formula in double precision; the final s goes to `state`.
    std::vector<float> expected(std::vector<float>& state) const {
        const auto in = tested().inputs(0, kTokens);
        const std::size_t channels = std::size_t{heads} * head_size;
        std::vector<double> s(channels * states);
        std::vector<float> out;
        for (std::size_t t = 0; t < kTokens; ++t) {
            for (std::size_t channel = 0; channel < channels; ++channel) {
                const std::size_t h = channel / head_size;
                const std::size_t g = h / (heads / groups);
                const double d = std::log1p(std::exp(double{in[1][t * heads + h]}));
                double y = 0.0;
                for (std::size_t n = 0; n < states; ++n) {
                    const double rate = by_state ? decay[h * states + n] : decay[h];
                    const std::size_t shared = (t * groups + g) * states + n;
                    double& value = s[channel * states + n];
                    value = value * std::exp(d * rate) +
                            d * in[0][t * channels + channel] * in[2][shared];
                    y += value * in[3][shared];
                }
                out.push_back(static_cast<float>(y));
            }
        }
        state.assign(s.begin(), s.end());
        return out;
    }
};

class SsmScanTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, SsmScanTest,
                         testing::Values(Case{100, 1, 16, 1, true}, Case{7, 1, 5, 1, true},
                                         Case{8, 64, 128, 1, false}, Case{6, 10, 33, 3, false},
                                         Case{4, 8, 16, 2, true}));

TEST_P(SsmScanTest, FollowsTheFormula) {
    std::vector<float> state;
    const std::vector<float> expected = GetParam().expected(state);
    const test::Outcome outcome = test::run_whole(GetParam().tested());
    EXPECT_THAT(outcome.out[0], Pointwise(FloatNear(1e-3F), expected));
    EXPECT_THAT(outcome.states[0], Pointwise(FloatNear(1e-4F), state));
}

TEST_P(SsmScanTest, CutsNeighboursAndThreadsChangeNothing) {
    test::expect_cuts_change_nothing(GetParam().tested());
}

float exp_of(float x) {
    Lanes lanes = Lanes{} + x;
    to_exp(lanes);
    return lanes[kLanes - 1];
}

TEST(LanesTest, ExpIsCloseAndNeverNegativeOrInfinite) {
    for (float x = -86.0F; x < 88.0F; x += 0.0137F) {
        EXPECT_NEAR(exp_of(x) / std::exp(double{x}), 1.0, 3e-7) << x;
    }
    EXPECT_EQ(exp_of(0.0F), 1.0F);
    for (const float x : {-88.0F, -1e4F, -std::numeric_limits<float>::infinity()}) {
        EXPECT_GE(exp_of(x), 0.0F) << x;
        EXPECT_LT(exp_of(x), 1e-37F) << x;
    }
    EXPECT_TRUE(std::isfinite(exp_of(1e9F)));
}

TEST(LanesTest, PartsOfAVectorTouchNothingElse) {
    const std::vector<float> from = {1.0F, 2.0F, 3.0F};
    Lanes lanes;
    load(lanes, from.data(), 3);
    EXPECT_EQ(total(lanes), 6.0F);
    std::vector<float> to(4, 9.0F);
    store(to.data(), lanes, 3);
    EXPECT_EQ(to, (std::vector<float>{1.0F, 2.0F, 3.0F, 9.0F}));
}

}  // namespace
}  // namespace stet::exec
