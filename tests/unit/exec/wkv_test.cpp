#include "exec/recurrent/wkv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "exec/recurrent/token_shift.h"
#include "recurrent_case.h"

namespace stet::exec {
namespace {

using test::kTokens;
using test::noise;
using test::Tested;
using testing::FloatNear;
using testing::Pointwise;

enum class Kind : std::uint8_t { wkv7, wkv6, gated };

struct Case {
    Kind kind;
    std::uint32_t heads;
    std::uint32_t head_size;
    std::uint32_t width = heads * head_size;
    std::vector<float> first = noise(width, 1);

    // r, w, k, v and for wkv7 a, b; decays are in (0, 1), and a, b small: the products stay
    // bounded.
    Tested::Inputs inputs(unsigned sequence, std::uint32_t tokens) const {
        Tested::Inputs in;
        for (unsigned i = 0; i < (kind == Kind::wkv7 ? 6U : 4U); ++i) {
            in.push_back(
                noise(std::size_t{width} * tokens, 10 * (i + 1) + sequence, i < 4 ? 1.0F : 0.2F));
        }
        for (float& w : in[1]) w = std::exp(-std::exp(w));
        return in;
    }

    Tested tested() const {
        return {.widths = std::vector<std::uint32_t>(kind == Kind::wkv7 ? 6 : 4, width),
                .out_width = width,
                .state_floats = std::size_t{width} * head_size,
                .inputs = [this](unsigned sequence,
                                 std::uint32_t tokens) { return inputs(sequence, tokens); },
                .run =
                    [this](std::span<const ConstRows> in, const Rows& out,
                           std::span<const Segment> segments, int thread, int threads) {
                        const Wkv shape{heads, head_size, test::kOffsetBytes};
                        if (kind == Kind::wkv7) {
                            wkv7(shape, {in[0], in[1], in[2], in[3], in[4], in[5]}, out, segments,
                                 thread, threads);
                            return;
                        }
                        const bool gated = kind == Kind::gated;
                        wkv6(shape,
                             {in[0], in[1], in[2], in[3], gated ? nullptr : first.data(),
                              gated ? 0.25F : 1.0F},
                             out, segments, thread, threads);
                    }};
    }

    // One head of one token, in double precision: S is [head_size][head_size].
    void step(const Tested::Inputs& in, std::size_t at, double* s, const float* u,
              std::vector<float>& out) const {
        const std::size_t size = head_size;
        const auto of = [&](std::size_t input, std::size_t j) { return double{in[input][at + j]}; };
        if (kind == Kind::wkv7) {
            for (std::size_t i = 0; i < size; ++i) {
                double along = 0.0;
                double y = 0.0;
                for (std::size_t j = 0; j < size; ++j) along += s[i * size + j] * of(4, j);
                for (std::size_t j = 0; j < size; ++j) {
                    s[i * size + j] =
                        s[i * size + j] * of(1, j) + of(3, i) * of(2, j) + along * of(5, j);
                    y += s[i * size + j] * of(0, j);
                }
                out.push_back(static_cast<float>(y));
            }
            return;
        }
        for (std::size_t j = 0; j < size; ++j) {
            double y = 0.0;
            for (std::size_t i = 0; i < size; ++i) {
                const double kv = of(2, i) * of(3, j);
                const double before = s[i * size + j];
                s[i * size + j] = before * of(1, i) + kv;
                y += of(0, i) * (kind == Kind::gated ? 0.25 * s[i * size + j] : before + u[i] * kv);
            }
            out.push_back(static_cast<float>(y));
        }
    }

    std::vector<float> expected(std::vector<float>& state) const {
        const Tested::Inputs in = inputs(0, kTokens);
        const std::size_t floats = std::size_t{head_size} * head_size;
        std::vector<double> s(floats * heads);
        std::vector<float> out;
        for (std::size_t t = 0; t < kTokens; ++t) {
            for (std::size_t h = 0; h < heads; ++h) {
                step(in, t * width + h * head_size, s.data() + h * floats,
                     first.data() + h * head_size, out);
            }
        }
        state.assign(s.begin(), s.end());
        return out;
    }
};

class WkvTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, WkvTest,
                         testing::Values(Case{Kind::wkv7, 4, 64}, Case{Kind::wkv7, 3, 20},
                                         Case{Kind::wkv6, 4, 64}, Case{Kind::wkv6, 5, 11},
                                         Case{Kind::gated, 4, 64}, Case{Kind::gated, 2, 17}));

TEST_P(WkvTest, FollowsTheFormula) {
    std::vector<float> state;
    const std::vector<float> expected = GetParam().expected(state);
    const test::Outcome outcome = test::run_whole(GetParam().tested());
    EXPECT_THAT(outcome.out[0], Pointwise(FloatNear(1e-3F), expected));
    EXPECT_THAT(outcome.states[0], Pointwise(FloatNear(1e-3F), state));
}

TEST_P(WkvTest, CutsNeighboursAndThreadsChangeNothing) {
    test::expect_cuts_change_nothing(GetParam().tested());
}

Tested shift_of(std::uint32_t width) {
    return {.widths = {width},
            .out_width = width,
            .state_floats = width,
            .inputs =
                [=](unsigned sequence, std::uint32_t tokens) {
                    return Tested::Inputs{noise(std::size_t{width} * tokens, 10 + sequence)};
                },
            .run =
                [=](std::span<const ConstRows> in, const Rows& out,
                    std::span<const Segment> segments, int thread, int threads) {
                    token_shift(width, test::kOffsetBytes, in[0], out, segments, thread, threads);
                }};
}

TEST(TokenShiftTest, AnswersTheTokenBefore) {
    const Tested tested = shift_of(130);
    const std::vector<float> x = tested.inputs(0, kTokens)[0];
    std::vector<float> expected(130);
    expected.insert(expected.end(), x.begin(), x.end() - 130);
    const test::Outcome outcome = test::run_whole(tested);
    EXPECT_EQ(outcome.out[0], expected);
    EXPECT_EQ(outcome.states[0], std::vector<float>(x.end() - 130, x.end()));
}

TEST(TokenShiftTest, CutsNeighboursAndThreadsChangeNothing) {
    test::expect_cuts_change_nothing(shift_of(130));
}

}  // namespace
}  // namespace stet::exec
