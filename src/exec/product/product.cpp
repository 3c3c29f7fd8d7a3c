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

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kQuads = kPackedColumns / 4;
inline constexpr std::size_t kQuadBytes = kPackedRows * 4;

// The f16 at `from`.
HWY_INLINE float half_at(const std::uint8_t* from) {
    const hn::CappedTag<float, 1> d;
    std::uint16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    const auto half = hn::BitCast(hn::Rebind<hwy::float16_t, decltype(d)>(),
                                  hn::Set(hn::Rebind<std::uint16_t, decltype(d)>(), bits));
    return hn::GetLane(hn::PromoteTo(d, half));
}

#if HWY_TARGET == HWY_SCALAR

inline constexpr std::size_t kTokensMax = 4;

template <PackedFormat kFormat>
HWY_INLINE int value_at(const std::uint8_t* block, std::size_t row, std::size_t column) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    const std::size_t quad = column / 4;
    const std::size_t byte = row * 4 + column % 4;
    if constexpr (kFormat == PackedFormat::q8_0) return block[quad * kQuadBytes + byte];
    const std::uint8_t both = block[quad % (kQuads / 2) * kQuadBytes + byte];
    int value = quad < kQuads / 2 ? both & 0x0F : both >> 4;
    if constexpr (kLayout.high_bytes != 0) {
        const std::uint8_t* high = block + kLayout.quad_bytes + quad * sizeof(std::uint64_t);
        value |= ((high[byte / 8] >> (byte % 8)) & 1) << 4;
    }
    return value;
}

template <PackedFormat kFormat, std::size_t kTokens>
void multiply_group(const std::uint8_t* group, std::size_t blocks, const RoundedBlock* x,
                    const float* bias, float* y, std::size_t y_stride) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    constexpr bool kHasMin = kLayout.scale_bytes > kPackedRows * 2;
    for (std::size_t t = 0; t < kTokens; ++t) {
        for (std::size_t row = 0; row < kPackedRows; ++row) {
            float sum = bias != nullptr ? bias[row] : 0.0F;
            const std::uint8_t* block = group;
            for (std::size_t b = 0; b < blocks; ++b, block += kLayout.block_bytes()) {
                const RoundedBlock& in = x[t * blocks + b];
                std::int32_t dot = -kLayout.offset * in.sum;
                for (std::size_t c = 0; c < kPackedColumns; ++c) {
                    dot += value_at<kFormat>(block, row, c) * in.values[c];
                }
                const std::uint8_t* scales = block + kLayout.quad_bytes + kLayout.high_bytes;
                sum += static_cast<float>(dot) * (half_at(scales + 2 * row) * in.scale);
                if (kHasMin) sum += half_at(scales + 2 * (kPackedRows + row)) * in.scaled_sum;
            }
            y[t * y_stride + row] = sum;
        }
    }
}

#else

// At most the rows of a group in a vector.
using DF = hn::CappedTag<float, kPackedRows>;
using DI = hn::RebindToSigned<DF>;
using DU8 = hn::Repartition<std::uint8_t, DF>;
using D16 = hn::Rebind<hwy::float16_t, DF>;
using DU16 = hn::Rebind<std::uint16_t, DF>;
using F = hn::Vec<DF>;
using I = hn::Vec<DI>;
using U8 = hn::Vec<DU8>;

inline constexpr std::size_t kLanes = hn::MaxLanes(DF());
inline constexpr std::size_t kPasses = kPackedRows / kLanes;  // vectors for the rows of a group
// Tokens that share one unpacking of the weights: what the vector registers hold.
inline constexpr std::size_t kTokensMax = kLanes == 16 ? 8 : 4;

#if HWY_TARGET <= HWY_AVX2 && HWY_TARGET > HWY_AVX3_DL && HWY_ARCH_X86

using DI16 = hn::Repartition<std::int16_t, DF>;
using I16 = hn::Vec<DI16>;

// Sums of neighbours' products: of 16-bit lanes, and of bytes, the first unsigned and small enough.
HWY_INLINE I pair_products(I16 a, I16 b) {
#if HWY_TARGET <= HWY_AVX3
    return I{_mm512_madd_epi16(a.raw, b.raw)};
#else
    return I{_mm256_madd_epi16(a.raw, b.raw)};
#endif
}

HWY_INLINE I16 pair_products(U8 a, U8 b) {
#if HWY_TARGET <= HWY_AVX3
    return I16{_mm512_maddubs_epi16(a.raw, b.raw)};
#else
    return I16{_mm256_maddubs_epi16(a.raw, b.raw)};
#endif
}

#endif

// sum + w0 x0 + w1 x1 + w2 x2 + w3 x3 in each lane: its four bytes of w, unsigned, and the four
// bytes at x, signed, of all lanes. kBits: how large w can be.
template <int kBits>
HWY_INLINE I add_dot4(I sum, U8 w, const std::int8_t* x) {
    using Quad = std::int8_t[4];
#if HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86
    // The target has the instruction, but Highway does not tell the compiler so.
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum.raw)
        : "v"(w.raw), "m"(*reinterpret_cast<const Quad*>(x)));
    return sum;
#elif HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
    std::int32_t quad;
    std::memcpy(&quad, x, sizeof(Quad));
    const I all = hn::Set(DI(), quad);
    const DI16 d16;
    // Pairs of products of up to 5 bits fit 16 bits, those of 8 bits don't.
    if constexpr (kBits < 8) {
        const I16 pairs = pair_products(w, hn::BitCast(DU8(), all));
        return hn::Add(sum, pair_products(pairs, hn::Set(d16, 1)));
    } else {
        const I16 both = hn::BitCast(d16, w);
        const I16 x_both = hn::BitCast(d16, all);
        const I16 even = hn::And(both, hn::Set(d16, 0xFF));
        const I16 odd = hn::And(hn::ShiftRight<8>(both), hn::Set(d16, 0xFF));
        const I16 x_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(x_both));
        sum = hn::Add(sum, pair_products(even, x_even));
        return hn::Add(sum, pair_products(odd, hn::ShiftRight<8>(x_both)));
    }
#else
    const I bytes = hn::BitCast(DI(), w);
    const I low = hn::Set(DI(), 0xFF);
    sum = hn::Add(sum, hn::Mul(hn::And(bytes, low), hn::Set(DI(), x[0])));
    sum = hn::Add(sum, hn::Mul(hn::And(hn::ShiftRight<8>(bytes), low), hn::Set(DI(), x[1])));
    sum = hn::Add(sum, hn::Mul(hn::And(hn::ShiftRight<16>(bytes), low), hn::Set(DI(), x[2])));
    return hn::Add(sum, hn::Mul(hn::And(hn::ShiftRight<24>(bytes), low), hn::Set(DI(), x[3])));
#endif
}

HWY_INLINE F load_half(const std::uint8_t* from) {
    return hn::PromoteTo(
        DF(), hn::BitCast(D16(), hn::LoadU(DU16(), reinterpret_cast<const std::uint16_t*>(from))));
}

// 16 in each byte whose bit is set. The bits of one vector's bytes, lowest first.
HWY_INLINE U8 fifth_bits(const std::uint8_t* bits) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    std::uint64_t mask;
    std::memcpy(&mask, bits, sizeof(mask));
    return U8{_mm512_maskz_set1_epi8(mask, 16)};
#else
    HWY_ALIGN std::uint8_t bytes[kLanes * 4];
    for (std::size_t i = 0; i < kLanes * 4; ++i) {
        bytes[i] = static_cast<std::uint8_t>(((bits[i / 8] >> (i % 8)) & 1U) << 4);
    }
    return hn::Load(DU8(), bytes);
#endif
}

// The quads of a block for the rows of one pass.
template <PackedFormat kFormat>
HWY_INLINE void unpack(const std::uint8_t* block, std::size_t pass, U8* HWY_RESTRICT w) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    const std::uint8_t* quads = block + pass * kLanes * 4;
    if constexpr (kFormat == PackedFormat::q8_0) {
        for (std::size_t q = 0; q < kQuads; ++q) w[q] = hn::LoadU(DU8(), quads + q * kQuadBytes);
        return;
    }
    const U8 low = hn::Set(DU8(), 0x0F);
    for (std::size_t q = 0; q < kQuads / 2; ++q) {
        const U8 both = hn::LoadU(DU8(), quads + q * kQuadBytes);
        w[q] = hn::And(both, low);
        w[q + kQuads / 2] = hn::And(
            hn::BitCast(DU8(),
                        hn::ShiftRight<4>(hn::BitCast(hn::Repartition<std::uint16_t, DF>(), both))),
            low);
    }
    if constexpr (kLayout.high_bytes != 0) {
        const std::uint8_t* high = block + kLayout.quad_bytes + pass * kLanes / 2;
        for (std::size_t q = 0; q < kQuads; ++q) {
            w[q] = hn::Or(w[q], fifth_bits(high + q * sizeof(std::uint64_t)));
        }
    }
}

// One group of rows against kTokens tokens.
template <PackedFormat kFormat, std::size_t kTokens>
HWY_NOINLINE void multiply_group(const std::uint8_t* group, std::size_t blocks,
                                 const RoundedBlock* x, const float* bias, float* y,
                                 std::size_t y_stride) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    constexpr bool kHasMin = kLayout.scale_bytes > kPackedRows * 2;
    constexpr int kBits = kFormat == PackedFormat::q8_0 ? 8 : 5;
    for (std::size_t pass = 0; pass < kPasses; ++pass) {
        F sums[kTokens];
        const F start = bias != nullptr ? hn::LoadU(DF(), bias + pass * kLanes) : hn::Zero(DF());
        for (std::size_t t = 0; t < kTokens; ++t) sums[t] = start;
        const std::uint8_t* block = group;
        for (std::size_t b = 0; b < blocks; ++b, block += kLayout.block_bytes()) {
            U8 w[kQuads];
            unpack<kFormat>(block, pass, w);
            const std::uint8_t* scales =
                block + kLayout.quad_bytes + kLayout.high_bytes + pass * kLanes * 2;
            const F d = load_half(scales);
            const F m = kHasMin ? load_half(scales + kPackedRows * 2) : hn::Zero(DF());
            for (std::size_t t = 0; t < kTokens; ++t) {
                const RoundedBlock& in = x[t * blocks + b];
                I dot =
                    kLayout.offset == 0 ? hn::Zero(DI()) : hn::Set(DI(), -kLayout.offset * in.sum);
                for (std::size_t q = 0; q < kQuads; ++q) {
                    dot = add_dot4<kBits>(dot, w[q], in.values + 4 * q);
                }
                const F scaled = hn::Mul(d, hn::Set(DF(), in.scale));
                sums[t] = hn::MulAdd(hn::ConvertTo(DF(), dot), scaled, sums[t]);
                if constexpr (kHasMin) {
                    sums[t] = hn::MulAdd(m, hn::Set(DF(), in.scaled_sum), sums[t]);
                }
            }
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
    const std::size_t blocks = weights.blocks();
    const std::size_t chunk = std::max(
        kTokensMax, kChunkBytes / (blocks * sizeof(RoundedBlock)) / kTokensMax * kTokensMax);
    for (std::size_t chunk_begin = 0; chunk_begin < tokens; chunk_begin += chunk) {
        const std::size_t chunk_end = std::min(tokens, chunk_begin + chunk);
        for (std::uint64_t g = group_begin; g < group_end; ++g) {
            const std::size_t row = g * kPackedRows;
            std::size_t t = chunk_begin;
            const auto run = [&]<std::size_t kTokens>() {
                for (; t + kTokens <= chunk_end; t += kTokens) {
                    multiply_group<kFormat, kTokens>(weights.group(g), blocks, x + t * blocks,
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
        std::int32_t sum = 0;
        for (std::size_t i = 0; i < kPackedColumns; ++i) {
            const float scaled = is_finite ? from[i] * inverse : 0.0F;
            const auto value = static_cast<std::int32_t>((scaled + kRounder) - kRounder);
            block.values[i] = static_cast<std::int8_t>(value);
            sum += value;
        }
        block.sum = sum;
        block.scaled_sum = block.scale * static_cast<float>(sum);
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
