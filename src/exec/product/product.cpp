// The code between the include of foreach_target.h and HWY_ONCE is compiled once for each target.
// Targets without a 4-way product of bytes of their own share what the next lower one has.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_WANT_AVX3_DL 1  // AVX-512 with VNNI: Ice Lake, Zen 4 and later
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/product/product.cpp"

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "exec/product/product.h"

#include "exec/product/parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

inline constexpr std::size_t kTokensMax = 4;

template <PackedFormat kFormat, std::size_t kTokens>
void multiply_group(const std::uint8_t* group, std::size_t parts, const RoundedBlock* x,
                    const float* bias, float* y, std::size_t y_stride) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    constexpr std::size_t kHalf = kPackedColumns / 2;
    for (std::size_t t = 0; t < kTokens; ++t) {
        for (std::size_t row = 0; row < kPackedRows; ++row) {
            float sum = bias != nullptr ? bias[row] : 0.0F;
            for (std::size_t p = 0; p < parts; ++p) {
                const std::uint8_t* block = group + p / kLayout.parts * kLayout.block_bytes();
                const std::size_t of_block = p % kLayout.parts;
                const std::uint8_t* part =
                    block + kLayout.scale_bytes + of_block * kLayout.part_bytes();
                const RowScales scales = row_scales<kFormat>(block, of_block, row);
                const RoundedBlock& in = x[t * parts + p];
                for (std::size_t half = 0; half < 2; ++half) {
                    std::int32_t dot = -kLayout.offset * in.half_sums[half];
                    for (std::size_t c = half * kHalf; c < (half + 1) * kHalf; ++c) {
                        dot += value_at<kFormat>(part, row, c) * in.values[c];
                    }
                    sum += static_cast<float>(dot) * (scales.d[half] * in.scale);
                }
                if (has_mins(kFormat)) sum += scales.min * in.scaled_sum;
            }
            y[t * y_stride + row] = sum;
        }
    }
}

#else

// One group of rows against kTokens tokens.
template <PackedFormat kFormat, std::size_t kTokens>
HWY_NOINLINE void multiply_group(const std::uint8_t* group, std::size_t parts,
                                 const RoundedBlock* x, const float* bias, float* y,
                                 std::size_t y_stride) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    for (std::size_t pass = 0; pass < kPasses; ++pass) {
        F sums[kTokens];
        const F start = bias != nullptr ? hn::LoadU(DF(), bias + pass * kLanes) : hn::Zero(DF());
        for (std::size_t t = 0; t < kTokens; ++t) sums[t] = start;
        const std::uint8_t* block = group;
        for (std::size_t first = 0; first < parts; first += kLayout.parts) {
            const BlockScales of_block = block_scales<kFormat>(block, pass);
            for (std::size_t p = 0; p < kLayout.parts; ++p) {
                U8 w[kQuads];
                unpack<kFormat>(block + kLayout.scale_bytes + p * kLayout.part_bytes(), pass, w);
                const PartScales scales = part_scales<kFormat>(block, p, pass, of_block);
                for (std::size_t t = 0; t < kTokens; ++t) {
                    const RoundedBlock& in = x[t * parts + first + p];
                    const I dot = part_dot<kFormat>(w, scales, in);
                    const F scaled = hn::Mul(scales.d, hn::Set(DF(), in.scale));
                    sums[t] = hn::MulAdd(hn::ConvertTo(DF(), dot), scaled, sums[t]);
                    if constexpr (has_mins(kFormat)) {
                        sums[t] = hn::MulAdd(scales.min, hn::Set(DF(), in.scaled_sum), sums[t]);
                    }
                }
            }
            block += kLayout.block_bytes();
        }
        for (std::size_t t = 0; t < kTokens; ++t) {
            hn::StoreU(sums[t], DF(), y + t * y_stride + pass * kLanes);
        }
    }
}

#endif

// Activations that are read again for each group stay in the second-level cache.
constexpr std::size_t kChunkBytes = 256 * 1024;

template <PackedFormat kFormat>
void multiply_format(const PackedMatrix& weights, const RoundedBlock* x, std::size_t tokens,
                     std::uint64_t group_begin, std::uint64_t group_end, const float* bias,
                     float* y, std::size_t y_stride) {
    const std::size_t parts = weights.parts();
    const std::size_t chunk = std::max(
        kTokensMax, kChunkBytes / (parts * sizeof(RoundedBlock)) / kTokensMax * kTokensMax);
    for (std::size_t chunk_begin = 0; chunk_begin < tokens; chunk_begin += chunk) {
        const std::size_t chunk_end = std::min(tokens, chunk_begin + chunk);
        for (std::uint64_t g = group_begin; g < group_end; ++g) {
            const std::size_t row = g * kPackedRows;
            std::size_t t = chunk_begin;
            const auto run = [&]<std::size_t kTokens>() {
                for (; t + kTokens <= chunk_end; t += kTokens) {
                    multiply_group<kFormat, kTokens>(weights.group(g), parts, x + t * parts,
                                                     bias == nullptr ? nullptr : bias + row,
                                                     y + t * y_stride + row, y_stride);
                }
            };
            run.template operator()<kTokensMax>();
            run.template operator()<4>();
            run.template operator()<2>();
            run.template operator()<1>();
        }
    }
}

void multiply_target(const PackedMatrix& weights, const RoundedBlock* x, std::size_t tokens,
                     std::uint64_t group_begin, std::uint64_t group_end, const float* bias,
                     float* y, std::size_t y_stride) {
    const auto run = [&](auto function) {
        function(weights, x, tokens, group_begin, group_end, bias, y, y_stride);
    };
    switch (weights.format()) {
        case PackedFormat::q4_0:
            return run(multiply_format<PackedFormat::q4_0>);
        case PackedFormat::q4_1:
            return run(multiply_format<PackedFormat::q4_1>);
        case PackedFormat::q5_0:
            return run(multiply_format<PackedFormat::q5_0>);
        case PackedFormat::q5_1:
            return run(multiply_format<PackedFormat::q5_1>);
        case PackedFormat::q8_0:
            return run(multiply_format<PackedFormat::q8_0>);
        case PackedFormat::iq4_nl:
            return run(multiply_format<PackedFormat::iq4_nl>);
        case PackedFormat::q4_k:
            return run(multiply_format<PackedFormat::q4_k>);
        case PackedFormat::q5_k:
            return run(multiply_format<PackedFormat::q5_k>);
        case PackedFormat::q6_k:
            return run(multiply_format<PackedFormat::q6_k>);
        case PackedFormat::iq4_xs:
            return run(multiply_format<PackedFormat::iq4_xs>);
    }
}

// One row of Q8_0 blocks by one token. Lanes hold partial sums: products of bytes fit 16 bits,
// pairs of them are added in 32 bits.
HWY_INLINE float q8_row_dot(const std::uint8_t* row, std::size_t blocks, const RoundedBlock* x) {
    const hn::CappedTag<std::int16_t, kPackedColumns> d16;
    const hn::Rebind<std::int8_t, decltype(d16)> d8;
    const hn::Repartition<std::int32_t, decltype(d16)> d32;
    const hn::Repartition<float, decltype(d16)> df;
    constexpr std::size_t kStep = hn::MaxLanes(d16);
    constexpr std::size_t kBlockBytes = 2 + kPackedColumns;
    auto sum = hn::Zero(df);
    for (std::size_t b = 0; b < blocks; ++b, row += kBlockBytes) {
        auto dot = hn::Zero(d32);
        auto other = hn::Zero(d32);
        for (std::size_t i = 0; i < kPackedColumns; i += kStep) {
            const auto w = hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(row + 2 + i));
            const auto v = hn::LoadU(d8, x[b].values + i);
            dot = hn::ReorderWidenMulAccumulate(d32, hn::PromoteTo(d16, w), hn::PromoteTo(d16, v),
                                                dot, other);
        }
        const float scale = half_at(row) * x[b].scale;
        sum = hn::MulAdd(hn::ConvertTo(df, hn::Add(dot, other)), hn::Set(df, scale), sum);
    }
    return hn::GetLane(hn::SumOfLanes(df, sum));
}

void multiply_q8_rows_target(const std::uint8_t* weights, std::size_t blocks, const RoundedBlock* x,
                             std::size_t tokens, std::uint64_t row_begin, std::uint64_t row_end,
                             float* y, std::size_t y_stride) {
    const std::size_t row_bytes = blocks * (2 + kPackedColumns);
    for (std::uint64_t row = row_begin; row < row_end; ++row) {
        for (std::size_t t = 0; t < tokens; ++t) {
            y[t * y_stride + row] = q8_row_dot(weights + row * row_bytes, blocks, x + t * blocks);
        }
    }
}

// Plain loops: the compiler makes vectors of them for each target.
void round_target(const float* from, std::size_t count, RoundedBlock* to) {
    constexpr float kLargest = 127.0F;
    // Adding and subtracting it rounds to the nearest integer, ties to even.
    constexpr float kRounder = 12582912.0F;
    constexpr std::size_t kHalf = kPackedColumns / 2;
    for (std::size_t b = 0; b < count; ++b, from += kPackedColumns) {
        RoundedBlock& block = to[b];
        float largest = 0.0F;
        float check = 0.0F;
        for (std::size_t i = 0; i < kPackedColumns; ++i) {
            const float magnitude = std::abs(from[i]);
            largest = magnitude > largest ? magnitude : largest;
            check += magnitude * 0.0F;  // NaN if a value isn't finite
        }
        const bool is_finite = check == 0.0F;
        block.scale = is_finite ? largest / kLargest : std::numeric_limits<float>::quiet_NaN();
        const float inverse = is_finite && largest > 0.0F ? kLargest / largest : 0.0F;
        for (std::size_t half = 0; half < 2; ++half) {
            std::int32_t sum = 0;
            for (std::size_t i = half * kHalf; i < (half + 1) * kHalf; ++i) {
                const float scaled = is_finite ? from[i] * inverse : 0.0F;
                const auto value = static_cast<std::int32_t>((scaled + kRounder) - kRounder);
                block.values[i] = static_cast<std::int8_t>(value);
                sum += value;
            }
            block.half_sums[half] = static_cast<std::int16_t>(sum);
        }
        block.scaled_sum = block.scale * static_cast<float>(block.sum());
    }
}

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stet::exec {

HWY_EXPORT(multiply_target);
HWY_EXPORT(multiply_q8_rows_target);
HWY_EXPORT(round_target);

void round_activations(const float* from, std::size_t count, RoundedBlock* to) {
    HWY_DYNAMIC_DISPATCH(round_target)(from, count, to);
}

void multiply(const PackedMatrix& weights, const RoundedBlock* x, std::size_t tokens,
              std::uint64_t group_begin, std::uint64_t group_end, const float* bias, float* y,
              std::size_t y_stride) {
    HWY_DYNAMIC_DISPATCH(multiply_target)
    (weights, x, tokens, group_begin, group_end, bias, y, y_stride);
}

void multiply_q8_rows(const std::uint8_t* weights, std::size_t blocks, const RoundedBlock* x,
                      std::size_t tokens, std::uint64_t row_begin, std::uint64_t row_end, float* y,
                      std::size_t y_stride) {
    HWY_DYNAMIC_DISPATCH(multiply_q8_rows_target)
    (weights, blocks, x, tokens, row_begin, row_end, y, y_stride);
}

std::vector<std::string> product_targets() {
    std::vector<std::string> names;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
        names.emplace_back(hwy::TargetName(target));
    }
    return names;
}

}  // namespace stet::exec
#endif  // HWY_ONCE
