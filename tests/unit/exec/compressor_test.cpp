// Compressed rows against their definition, and that prompts may be cut anywhere.
#include "exec/sparse/compressor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace stet::exec {
namespace {

constexpr std::uint32_t kSize = 21;
constexpr std::uint32_t kTokens = 23;

struct Made {
    explicit Made(bool overlaps) {
        compressor.size = kSize;
        compressor.ratio = 4;
        compressor.overlaps = overlaps;
        plane_floats = std::size_t{compressor.rows()} * compressor.features();
        compressor.scores_offset_bytes = plane_floats * sizeof(float);
        std::mt19937 random(overlaps ? 1 : 2);
        std::normal_distribution<float> normal;
        values.resize(std::size_t{kTokens} * compressor.features());
        scores.resize(values.size());
        for (float& value : values) value = normal(random);
        for (float& score : scores) score = 3.0F * normal(random);
    }

    // All tokens in steps that end before the tokens named, in turn on `threads` threads.
    std::vector<float> run(const std::vector<std::uint32_t>& ends, int threads) {
        std::vector<float> out(std::size_t{kTokens} * kSize, 1e30F);
        std::vector<float> base;
        std::uint32_t begin = 0;
        for (const std::uint32_t end : ends) {
            block.assign(2 * plane_floats, 1e30F);
            Segment segment;
            segment.position = begin;
            segment.token_begin = begin;
            segment.token_count = end - begin;
            segment.base_block =
                begin == 0 ? nullptr : reinterpret_cast<const std::byte*>(base.data());
            segment.new_block = reinterpret_cast<std::byte*>(block.data());
            const ConstRows value{values.data(), compressor.features()};
            const ConstRows score{scores.data(), compressor.features()};
            for (int thread = 0; thread < threads; ++thread) {
                compress(compressor, value, score, {out.data(), kSize}, {&segment, 1}, thread,
                         threads);
            }
            base = block;
            begin = end;
        }
        return out;
    }

    double expected(std::uint32_t end, std::uint32_t feature) const {
        double total = 0;
        double sum = 0;
        const auto add = [&](std::uint32_t token, std::uint32_t column) {
            const std::size_t place = std::size_t{token} * compressor.features() + column;
            const double weight = std::exp(double{scores[place]});
            total += weight;
            sum += weight * double{values[place]};
        };
        const std::uint32_t own = end - compressor.ratio;
        for (std::uint32_t token = own; token < end; ++token) {
            add(token, compressor.overlaps ? kSize + feature : feature);
        }
        if (compressor.overlaps && own != 0) {
            for (std::uint32_t token = own - compressor.ratio; token < own; ++token) {
                add(token, feature);
            }
        }
        return sum / total;
    }

    Compressor compressor;
    std::size_t plane_floats = 0;
    std::vector<float> values, scores, block;
};

class CompressorTest : public testing::TestWithParam<bool> {};

TEST_P(CompressorTest, RowsAreWeightedMeansOfTheirTokens) {
    Made made(GetParam());
    const auto out = made.run({kTokens}, 1);
    for (std::uint32_t token = 0; token < kTokens; ++token) {
        for (std::uint32_t feature = 0; feature < kSize; ++feature) {
            const float found = out[std::size_t{token} * kSize + feature];
            if ((token + 1) % 4 != 0) {
                ASSERT_EQ(found, 0.0F);
            } else {
                ASSERT_NEAR(double{found}, made.expected(token + 1, feature), 1e-5);
            }
        }
    }
}

TEST_P(CompressorTest, CutsAndThreadsChangeNoBit) {
    Made made(GetParam());
    const auto out = made.run({kTokens}, 1);
    const auto block = made.block;
    for (const auto& ends : std::vector<std::vector<std::uint32_t>>{
             {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23},
             {3, 17, 23},
             {4, 8, 21, 23},
             {22, 23}}) {
        for (const int threads : {1, 2, 5}) {
            EXPECT_EQ(made.run(ends, threads), out);
            EXPECT_EQ(made.block, block);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CompressorTest, testing::Bool());

}  // namespace
}  // namespace stet::exec
