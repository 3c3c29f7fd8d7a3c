// Pooled keys against their definition, over pages in f32 and f16.
#include "exec/sparse/pooled_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "exec/kernel.h"

namespace stet::exec {
namespace {

using memory::ElementType;
using memory::kPageRows;

constexpr std::uint32_t kSize = 37;
constexpr std::uint32_t kRatio = 5;  // doesn't divide a page
constexpr std::uint32_t kTokens = 200;

// Keys and gates of a sequence in pages, and as the pages hold them.
struct Rows2 {
    explicit Rows2(ElementType type, unsigned seed) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        const std::uint64_t row_bytes = memory::row_bytes(type, kSize);
        key = {0, row_bytes, type};
        gate = {kPageRows * row_bytes, row_bytes, type};
        const std::size_t pages_count = (kTokens + kPageRows - 1) / kPageRows;
        data.assign(pages_count, std::vector<std::byte>(2 * kPageRows * row_bytes));
        for (auto& page : data) pages.push_back(page.data());
        for (auto* values : {&keys, &gates}) {
            values->resize(std::size_t{kTokens} * kSize);
            for (float& value : *values) value = 2.0F * normal(random);
        }
        AlignedRow row;
        for (std::uint32_t t = 0; t < kTokens; ++t) {
            for (const auto& [values, plane] : {std::pair{&keys, &key}, {&gates, &gate}}) {
                std::byte* at =
                    pages[t / kPageRows] + plane->offset_bytes + t % kPageRows * row_bytes;
                float* mine = values->data() + std::size_t{t} * kSize;
                kernels().store_row(mine, kSize, type, at);
                kernels().load_rows(at, row_bytes, type, 1, kSize, row.values, 48);
                std::copy_n(row.values, kSize, mine);
            }
        }
    }
    struct alignas(64) AlignedRow {
        float values[48];
    };

    Segment segment(std::uint64_t position, std::uint32_t count, std::uint32_t begin) const {
        Segment segment;
        segment.pages = pages.data();
        segment.position = position;
        segment.token_count = count;
        segment.token_begin = begin;
        return segment;
    }
    // Feature f of the key that ends with token `last`.
    double expected(std::uint32_t last, std::uint32_t f, const float* bias) const {
        double total = 0;
        double sum = 0;
        for (std::uint32_t i = 0; i < kRatio; ++i) {
            const std::size_t place = std::size_t{last + 1 - kRatio + i} * kSize + f;
            const double weight =
                bias == nullptr ? 1.0
                                : std::exp(double{gates[place]} + double{bias[i * kSize + f]});
            total += weight;
            sum += weight * double{keys[place]};
        }
        return sum / total;
    }

    PlaneView key, gate;
    std::vector<std::vector<std::byte>> data;
    std::vector<std::byte*> pages;
    std::vector<float> keys, gates;
};

std::vector<float> pooled(const PooledKeys& shape, const std::vector<Segment>& segments,
                          std::uint32_t tokens, int threads) {
    std::vector<float> out(std::size_t{tokens} * kSize, 1e30F);
    for (int thread = 0; thread < threads; ++thread) {
        pool_keys(shape, {out.data(), kSize}, segments, thread, threads);
    }
    return out;
}

struct Case {
    ElementType type;
    bool gated;
};
class PooledKeysTest : public testing::TestWithParam<Case> {
  protected:
    PooledKeysTest() {
        std::mt19937 random(5);
        std::normal_distribution<float> normal;
        bias_.resize(kRatio * kSize);
        for (float& value : bias_) value = normal(random);
        shape_.size = kSize;
        shape_.ratio = kRatio;
        shape_.key = rows_.key;
        if (GetParam().gated) {
            shape_.gate = rows_.gate;
            shape_.bias = bias_.data();
        }
    }

    Rows2 rows_{GetParam().type, 1};
    Rows2 others_{GetParam().type, 2};
    std::vector<float> bias_;
    PooledKeys shape_;
};

TEST_P(PooledKeysTest, AreMeansOfTheirTokens) {
    const auto out = pooled(shape_, {rows_.segment(0, kTokens, 0)}, kTokens, 1);
    for (std::uint32_t token = 0; token < kTokens; ++token) {
        for (std::uint32_t f = 0; f < kSize; ++f) {
            const float found = out[std::size_t{token} * kSize + f];
            if ((token + 1) % kRatio != 0) {
                ASSERT_EQ(found, 0.0F);
            } else {
                const float* bias = GetParam().gated ? bias_.data() : nullptr;
                ASSERT_NEAR(double{found}, rows_.expected(token, f, bias), 1e-5);
            }
        }
    }
}

TEST_P(PooledKeysTest, CutsNeighboursAndThreadsChangeNoBit) {
    const auto whole = pooled(shape_, {rows_.segment(0, kTokens, 0)}, kTokens, 1);
    for (const std::uint32_t begin : {1U, 4U, 63U, 126U}) {
        for (const int threads : {1, 2, 5}) {
            const std::uint32_t count = 71;
            const auto out = pooled(
                shape_, {others_.segment(50, 9, 0), rows_.segment(begin, count, 9)}, 80, threads);
            const std::vector<float> mine(out.begin() + 9 * kSize, out.end());
            const auto from = whole.begin() + std::ptrdiff_t{begin} * kSize;
            EXPECT_EQ(mine, std::vector<float>(from, from + std::ptrdiff_t{count} * kSize));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, PooledKeysTest,
                         testing::Values(Case{ElementType::f32, true},
                                         Case{ElementType::f32, false},
                                         Case{ElementType::f16, true},
                                         Case{ElementType::f16, false}));

}  // namespace
}  // namespace stet::exec
