#include "exec/product/product.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "exec/kernel.h"

namespace stet::exec {
namespace {

struct Format {
    PackedFormat packed;
    ggml_type type;
};
constexpr Format kFormats[] = {
    {PackedFormat::q4_0, GGML_TYPE_Q4_0}, {PackedFormat::q4_1, GGML_TYPE_Q4_1},
    {PackedFormat::q5_0, GGML_TYPE_Q5_0}, {PackedFormat::q5_1, GGML_TYPE_Q5_1},
    {PackedFormat::q8_0, GGML_TYPE_Q8_0}, {PackedFormat::iq4_nl, GGML_TYPE_IQ4_NL},
    {PackedFormat::q4_k, GGML_TYPE_Q4_K}, {PackedFormat::q5_k, GGML_TYPE_Q5_K},
    {PackedFormat::q6_k, GGML_TYPE_Q6_K}, {PackedFormat::iq4_xs, GGML_TYPE_IQ4_XS},
};
constexpr int kFormatCount = static_cast<int>(std::size(kFormats));

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> values;
    std::vector<float> result(count);
    for (float& value : result) value = values(random);
    return result;
}

std::vector<RoundedBlock> rounded(const std::vector<float>& x) {
    std::vector<RoundedBlock> blocks(x.size() / kPackedColumns);
    round_activations(x.data(), blocks.size(), blocks.data());
    return blocks;
}

// Weights of a format: as ggml writes them, and what they mean.
struct Weights {
    std::vector<std::byte> bytes;
    std::vector<float> values;

    Weights(const Format& format, std::size_t rows, std::size_t columns, std::uint32_t seed)
        : bytes(rows * ggml_row_size(format.type, static_cast<std::int64_t>(columns))),
          values(rows * columns) {
        const std::vector<float> exact = random_values(rows * columns, seed);
        ggml_quantize_chunk(format.type, exact.data(), bytes.data(), 0,
                            static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
                            nullptr);
        ggml_get_type_traits(format.type)
            ->to_float(bytes.data(), values.data(), static_cast<std::int64_t>(values.size()));
    }
};

class ProductTest : public testing::TestWithParam<std::tuple<std::string, int>> {
  protected:
    void SetUp() override { force_kernel_target(std::get<0>(GetParam())); }
    void TearDown() override { force_kernel_target(""); }
    const Format& format() const { return kFormats[std::get<1>(GetParam())]; }
    std::size_t block() const { return packed_layout(format().packed).columns(); }
    bool wide() const { return block() > kPackedColumns; }

    PackedMatrix pack(const Weights& weights, std::size_t rows, std::size_t columns) {
        auto packed = PackedMatrix::create(format().packed, rows, columns);
        EXPECT_TRUE(packed) << packed.status().to_string();
        packed->fill(weights.bytes, 0, packed->groups() / 2);
        packed->fill(weights.bytes, packed->groups() / 2, packed->groups());
        return std::move(packed).value();
    }
};

INSTANTIATE_TEST_SUITE_P(Targets, ProductTest,
                         testing::Combine(testing::ValuesIn(product_targets()),
                                          testing::Range(0, kFormatCount)),
                         [](const auto& parameter) {
                             return std::get<0>(parameter.param) + "_" +
                                    ggml_type_name(kFormats[std::get<1>(parameter.param)].type);
                         });

// What the products must give, and how much is summed up to get there.
struct Expected {
    double value = 0;
    double size = 0;
};

Expected exact_product(const Weights& weights, std::size_t row, const RoundedBlock* x,
                       std::size_t columns, double bias) {
    Expected expected{bias, std::abs(bias)};
    for (std::size_t c = 0; c < columns; ++c) {
        const RoundedBlock& block = x[c / kPackedColumns];
        const double term = static_cast<double>(weights.values[row * columns + c]) * block.scale *
                            block.values[c % kPackedColumns];
        expected.value += term;
        expected.size += std::abs(term);
    }
    return expected;
}

TEST_P(ProductTest, EqualsTheSumOverRoundedActivations) {
    for (const std::size_t blocks : {1, 3, 18}) {
        const std::size_t columns = std::min<std::size_t>(blocks, wide() ? 3 : 18) * block();
        for (const std::size_t tokens : {1, 2, 3, 4, 7, 8, 9, 23, 40}) {
            SCOPED_TRACE(testing::Message() << columns << " columns, " << tokens << " tokens");
            constexpr std::size_t kRows = 48;
            const Weights weights(format(), kRows, columns, 7);
            const PackedMatrix packed = pack(weights, kRows, columns);
            const std::vector<RoundedBlock> x = rounded(random_values(tokens * columns, 8));
            const std::vector<float> bias = random_values(kRows, 9);
            std::vector<float> y(tokens * kRows, std::numeric_limits<float>::quiet_NaN());
            multiply(packed, x.data(), tokens, 0, 1, bias.data(), y.data(), kRows);
            multiply(packed, x.data(), tokens, 1, kRows / kPackedRows, bias.data(), y.data(),
                     kRows);
            for (std::size_t t = 0; t < tokens; ++t) {
                for (std::size_t r = 0; r < kRows; ++r) {
                    const auto [expected, size] =
                        exact_product(weights, r, x.data() + t * packed.parts(), columns, bias[r]);
                    ASSERT_NEAR(y[t * kRows + r], expected, 2e-6 * size + 1e-6) << t << " " << r;
                }
            }
        }
    }
}

// Any bits but those of f16 scales: the largest and smallest codes, scales and mins, and zeros.
TEST_P(ProductTest, ExtremeCodesAndScales) {
    constexpr std::size_t kRows = 16;
    constexpr std::size_t kTokens = 9;
    const std::size_t columns = 2 * block();
    const auto* traits = ggml_get_type_traits(format().type);
    for (const int fill : {0x00, 0xFF, 0x7F, 0x80, 0xA5, -1}) {
        SCOPED_TRACE(testing::Message() << "bytes of " << fill);
        Weights weights(format(), kRows, columns, 7);
        std::mt19937 random(3);
        for (std::byte& byte : weights.bytes) {
            byte = static_cast<std::byte>(fill < 0 ? random() : static_cast<unsigned>(fill));
        }
        // The f16 of each block: 0.75, and -0.5 where there are two.
        const std::size_t size = ggml_type_size(format().type);
        const bool is_last = format().packed == PackedFormat::q6_k;
        const PackedFormat packed_format = format().packed;
        const bool has_two =
            packed_format == PackedFormat::q4_1 || packed_format == PackedFormat::q5_1 ||
            packed_format == PackedFormat::q4_k || packed_format == PackedFormat::q5_k;
        constexpr ggml_fp16_t kHalves[] = {0x3A00, 0xB800};
        for (std::size_t at = 0; at < weights.bytes.size(); at += size) {
            std::memcpy(weights.bytes.data() + at + (is_last ? size - 2 : 0), kHalves,
                        has_two ? 4 : 2);
        }
        traits->to_float(weights.bytes.data(), weights.values.data(),
                         static_cast<std::int64_t>(weights.values.size()));
        const PackedMatrix packed = pack(weights, kRows, columns);
        std::vector<float> values = random_values(kTokens * columns, 8);
        std::fill(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(columns), -3.0F);
        const std::vector<RoundedBlock> x = rounded(values);
        std::vector<float> y(kTokens * kRows, std::numeric_limits<float>::quiet_NaN());
        multiply(packed, x.data(), kTokens, 0, 1, nullptr, y.data(), kRows);
        for (std::size_t t = 0; t < kTokens; ++t) {
            for (std::size_t r = 0; r < kRows; ++r) {
                const auto [expected, sum] =
                    exact_product(weights, r, x.data() + t * packed.parts(), columns, 0.0);
                ASSERT_NEAR(y[t * kRows + r], expected, 4e-6 * sum + 1e-6) << t << " " << r;
            }
        }
    }
}

TEST_P(ProductTest, RowsOfTheFileGiveTheSame) {
    if (format().packed != PackedFormat::q8_0) return;  // the one format with such a kernel
    for (const std::size_t columns : {32, 64, 640}) {
        constexpr std::size_t kRows = 37;
        constexpr std::size_t kTokens = 3;
        const Weights weights(format(), kRows, columns, 5);
        const std::vector<RoundedBlock> x = rounded(random_values(kTokens * columns, 6));
        std::vector<float> y(kTokens * kRows, std::numeric_limits<float>::quiet_NaN());
        const std::size_t blocks = columns / kPackedColumns;
        const auto* rows = reinterpret_cast<const std::uint8_t*>(weights.bytes.data());
        multiply_q8_rows(rows, blocks, x.data(), kTokens, 0, 5, y.data(), kRows);
        multiply_q8_rows(rows, blocks, x.data(), kTokens, 5, kRows, y.data(), kRows);
        for (std::size_t t = 0; t < kTokens; ++t) {
            for (std::size_t r = 0; r < kRows; ++r) {
                const auto [expected, size] =
                    exact_product(weights, r, x.data() + t * blocks, columns, 0.0);
                ASSERT_NEAR(y[t * kRows + r], expected, 2e-6 * size + 1e-6) << t << " " << r;
            }
        }
    }
}

TEST_P(ProductTest, ATokenDoesNotDependOnItsNeighbours) {
    constexpr std::size_t kRows = 32;
    const std::size_t kColumns = 3 * block();
    constexpr std::size_t kTokens = 15;
    const Weights weights(format(), kRows, kColumns, 1);
    const PackedMatrix packed = pack(weights, kRows, kColumns);
    const std::vector<RoundedBlock> x = rounded(random_values(kTokens * kColumns, 2));
    std::vector<float> together(kTokens * kRows);
    multiply(packed, x.data(), kTokens, 0, 2, nullptr, together.data(), kRows);
    for (std::size_t t = 0; t < kTokens; ++t) {
        std::vector<float> alone(kRows);
        multiply(packed, x.data() + t * packed.parts(), 1, 0, 2, nullptr, alone.data(), kRows);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                               together.begin() + static_cast<std::ptrdiff_t>(t * kRows)));
    }
}

TEST_P(ProductTest, PackedWeightsTakeNoMoreThanTheFile) {
    const Weights weights(format(), 112, 2 * block(), 3);
    EXPECT_EQ(pack(weights, 112, 2 * block()).size_bytes(), weights.bytes.size());
}

TEST_P(ProductTest, ActivationsAreRoundedToTheNearest) {
    const std::vector<float> x = random_values(kPackedColumns * 5, 4);
    const std::vector<RoundedBlock> blocks = rounded(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const RoundedBlock& block = blocks[i / kPackedColumns];
        EXPECT_NEAR(x[i], block.scale * block.values[i % kPackedColumns], 0.501F * block.scale);
    }
    for (const RoundedBlock& block : blocks) {
        int sum = 0;
        for (const std::int8_t value : block.values) sum += value;
        EXPECT_EQ(block.sum(), sum);
    }
}

TEST_P(ProductTest, ZerosStayZerosAndNaNStaysNaN) {
    std::vector<float> x(2 * kPackedColumns, 0.0F);
    x[kPackedColumns + 3] = std::numeric_limits<float>::infinity();
    const std::vector<RoundedBlock> blocks = rounded(x);
    EXPECT_EQ(blocks[0].scale, 0.0F);
    EXPECT_EQ(blocks[0].sum(), 0);
    EXPECT_TRUE(std::isnan(blocks[1].scale));
}

}  // namespace
}  // namespace stet::exec
