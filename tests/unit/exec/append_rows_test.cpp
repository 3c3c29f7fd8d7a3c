#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "attention_case.h"

namespace stet::exec {
namespace {

using memory::ElementType;
using memory::kPageRows;

class AppendRowsTest : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { force_kernel_target(GetParam()); }
    void TearDown() override { force_kernel_target(""); }
};

INSTANTIATE_TEST_SUITE_P(Targets, AppendRowsTest, testing::ValuesIn(kernel_targets()),
                         [](const auto& target) { return target.param; });

std::vector<std::byte> stored(const std::vector<float>& row, ElementType type) {
    const std::size_t size = test::bytes_of(type, row.size());
    std::vector<std::byte> bytes(size);
    kernels().store_row(row.data(), static_cast<std::uint32_t>(row.size()), type, bytes.data());
    return bytes;
}

std::uint16_t stored_half(float value) {
    // 16 copies, so that the vector code takes part.
    const std::vector<std::byte> bytes = stored(std::vector<float>(17, value), ElementType::f16);
    std::uint16_t first;
    std::uint16_t last;
    std::memcpy(&first, bytes.data(), 2);
    std::memcpy(&last, bytes.data() + 32, 2);
    EXPECT_EQ(first, last) << value;
    return first;
}

TEST_P(AppendRowsTest, HalvesRoundToNearestEven) {
    EXPECT_EQ(stored_half(0.0F), 0x0000);
    EXPECT_EQ(stored_half(-0.0F), 0x8000);
    EXPECT_EQ(stored_half(1.0F), 0x3C00);
    EXPECT_EQ(stored_half(-2.0F), 0xC000);
    EXPECT_EQ(stored_half(1.0F + 1.0F / 2048), 0x3C00);  // tie, down to even
    EXPECT_EQ(stored_half(1.0F + 3.0F / 2048), 0x3C02);  // tie, up to even
    EXPECT_EQ(stored_half(1.0F + 1.001F / 2048), 0x3C01);
    EXPECT_EQ(stored_half(65504.0F), 0x7BFF);
    EXPECT_EQ(stored_half(65519.0F), 0x7BFF);
    EXPECT_EQ(stored_half(65520.0F), 0x7C00);
    EXPECT_EQ(stored_half(1e9F), 0x7C00);
    EXPECT_EQ(stored_half(std::ldexp(1.0F, -14)), 0x0400);
    EXPECT_EQ(stored_half(std::ldexp(1.0F, -24)), 0x0001);     // smallest subnormal
    EXPECT_EQ(stored_half(std::ldexp(1.0F, -25)), 0x0000);     // tie, down to even
    EXPECT_EQ(stored_half(std::ldexp(3.0F, -25)), 0x0002);     // tie, up to even
    EXPECT_EQ(stored_half(std::ldexp(2047.0F, -25)), 0x0400);  // up to the smallest normal
}

TEST_P(AppendRowsTest, HalvesAreNearestForAnyValue) {
    std::mt19937 random(7);
    for (int i = 0; i < 20000; ++i) {
        const float value = std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random),
                                       std::uniform_int_distribution<int>(-27, 14)(random));
        const std::uint16_t half = stored_half(value);
        const double error = std::abs(test::half_value(half) - static_cast<double>(value));
        for (const int step : {-1, 1}) {
            const auto other = static_cast<std::uint16_t>(half + step);
            if ((other & 0x7FFF) < 0x7C00 && (other ^ half) < 0x8000) {
                ASSERT_LE(error, std::abs(test::half_value(other) - static_cast<double>(value)));
            }
        }
    }
}

TEST_P(AppendRowsTest, BlocksKeepHalfAStep) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> row(96);
    for (float& value : row) {
        value = normal(random);
    }
    std::fill(row.begin() + 32, row.begin() + 64, 0.0F);
    const std::vector<std::byte> bytes = stored(row, ElementType::q8_0);
    ASSERT_EQ(bytes.size(), 3U * 34U);
    for (std::size_t e = 0; e < row.size(); ++e) {
        const double got = test::element_value(bytes.data(), ElementType::q8_0, e);
        double largest = 0;
        for (std::size_t i = e / 32 * 32; i < e / 32 * 32 + 32; ++i) {
            largest = std::max(largest, std::abs(static_cast<double>(row[i])));
        }
        // Half a step, and the rounding of the scale to f16.
        EXPECT_NEAR(got, static_cast<double>(row[e]), largest / 127 * 0.5 + largest / 2000) << e;
    }
}

TEST_P(AppendRowsTest, SameBytesOnEveryTarget) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> row(352);
    for (float& value : row) {
        value = normal(random);
    }
    for (const auto type : {ElementType::f16, ElementType::q8_0, ElementType::f32}) {
        const std::vector<std::byte> here = stored(row, type);
        force_kernel_target("");
        EXPECT_EQ(stored(row, type), here);
        force_kernel_target(GetParam());
    }
}

TEST_P(AppendRowsTest, WritesOnlyTheNewRowsWhateverTheThreads) {
    constexpr std::uint32_t kElements = 40;
    const PlaneView plane{64, 2 * kElements + 6, ElementType::f16};
    const std::size_t page_bytes = plane.offset_bytes + kPageRows * plane.row_bytes;
    std::vector<float> rows(100 * 50);
    std::iota(rows.begin(), rows.end(), -2000.0F);
    for (int threads = 1; threads <= 3; ++threads) {
        std::vector<std::vector<std::byte>> pages(5, std::vector<std::byte>(page_bytes));
        std::byte* first[] = {pages[0].data(), pages[1].data(), pages[2].data()};
        std::byte* second[] = {pages[3].data(), pages[4].data()};
        // The second has its first two pages dropped.
        const std::vector<Segment> segments = {{first, 0, 60, 0, 70}, {second, 128, 190, 70, 3}};
        for (int thread = 0; thread < threads; ++thread) {
            append_rows(rows.data(), 50, kElements, plane, segments, thread, threads);
        }
        for (std::uint64_t row = 0; row < 5 * kPageRows; ++row) {
            const bool in_first = row >= 60 && row < 130;
            const bool in_second = row >= 3 * kPageRows + 62 && row < 3 * kPageRows + 65;
            const std::byte* at = pages[row / kPageRows].data() + plane.offset_bytes +
                                  row % kPageRows * plane.row_bytes;
            const std::uint64_t token = in_first    ? row - 60
                                        : in_second ? 70 + row - (3 * kPageRows + 62)
                                                    : 0;
            for (std::uint32_t e = 0; e < kElements; ++e) {
                const double want =
                    in_first || in_second ? static_cast<double>(rows[token * 50 + e]) : 0.0;
                ASSERT_EQ(test::element_value(at, ElementType::f16, e), want) << row << ' ' << e;
            }
            for (std::size_t i = 2 * kElements; i < plane.row_bytes; ++i) {
                ASSERT_EQ(at[i], std::byte{0});
            }
        }
    }
}

}  // namespace
}  // namespace stet::exec
