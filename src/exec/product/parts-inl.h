// Per-target helpers of the products: dots of four bytes, the parts of a block unpacked, their
// scales. Included once for each target, by product.cpp alone.
#if defined(STET_EXEC_PRODUCT_PARTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STET_EXEC_PRODUCT_PARTS_INL_H
#undef STET_EXEC_PRODUCT_PARTS_INL_H
#else
#define STET_EXEC_PRODUCT_PARTS_INL_H
#endif

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

constexpr bool has_fifth_bits(PackedFormat format) {
    return packed_layout(format).upper_bytes == kQuads * sizeof(std::uint64_t);
}
constexpr bool has_mins(PackedFormat format) {
    return format == PackedFormat::q4_1 || format == PackedFormat::q5_1 ||
           format == PackedFormat::q4_k || format == PackedFormat::q5_k;
}
// Two scales a part, one for each half of its columns.
constexpr bool has_half_scales(PackedFormat format) {
    return format == PackedFormat::q6_k;
}
constexpr bool has_table(PackedFormat format) {
    return format == PackedFormat::iq4_nl || format == PackedFormat::iq4_xs;
}

#if HWY_TARGET == HWY_SCALAR

// Plain C++: the integer value of a row and column of a part.
template <PackedFormat kFormat>
HWY_INLINE int value_at(const std::uint8_t* part, std::size_t row, std::size_t column) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    const std::size_t quad = column / 4;
    const std::size_t byte = row * 4 + column % 4;
    if constexpr (kFormat == PackedFormat::q8_0) return part[quad * kQuadBytes + byte];
    const std::uint8_t both = part[quad % (kQuads / 2) * kQuadBytes + byte];
    int value = quad < kQuads / 2 ? both & 0x0F : both >> 4;
    if constexpr (has_table(kFormat)) value = kIq4Values[value];
    const std::uint8_t* upper = part + kLayout.quad_bytes;
    if constexpr (has_fifth_bits(kFormat)) {
        const std::uint8_t* bits = upper + quad * sizeof(std::uint64_t);
        value |= ((bits[byte / 8] >> (byte % 8)) & 1) << 4;
    } else if constexpr (kLayout.upper_bytes != 0) {
        value |= ((upper[quad / 4 * kQuadBytes + byte] >> (2 * (quad % 4))) & 3) << 4;
    }
    return value;
}

struct RowScales {
    float d[2];  // of the halves of a part
    float min;
};

template <PackedFormat kFormat>
HWY_INLINE RowScales row_scales(const std::uint8_t* block, std::size_t part, std::size_t row) {
    const float d = half_at(block + 2 * row);
    const float min = has_mins(kFormat) ? half_at(block + 2 * (kPackedRows + row)) : 0.0F;
    if constexpr (packed_layout(kFormat).parts == 1) return {{d, d}, min};
    const std::uint8_t* bytes = block + (has_mins(kFormat) ? 4 : 2) * kPackedRows + row;
    const auto at = [&](std::size_t number) { return int{bytes[number * kPackedRows]}; };
    if constexpr (has_half_scales(kFormat)) {
        const auto scale = [&](std::size_t number) {
            return d * static_cast<float>(static_cast<std::int8_t>(at(number)));
        };
        return {{scale(2 * part), scale(2 * part + 1)}, 0.0F};
    } else if constexpr (has_mins(kFormat)) {
        const int upper = at(8 + part / 2) >> (part % 2 * 4);
        const float scaled = d * static_cast<float>((at(part) & 15) | (upper & 3) << 4);
        return {{scaled, scaled},
                -min * static_cast<float>(at(part) >> 4 | ((upper >> 2) & 3) << 4)};
    } else {
        const int upper = at(4 + part / 4) >> (part % 4 * 2);
        const int lower = at(part / 2) >> (part % 2 * 4);
        const float scaled = d * static_cast<float>(((lower & 15) | (upper & 3) << 4) - 32);
        return {{scaled, scaled}, 0.0F};
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

using DU32 = hn::Repartition<std::uint32_t, DF>;
using DI8 = hn::Rebind<std::int8_t, DF>;  // as many bytes as rows
using DRowU8 = hn::Rebind<std::uint8_t, DF>;

// The quads of a part for the rows of one pass.
template <PackedFormat kFormat>
HWY_INLINE void unpack(const std::uint8_t* part, std::size_t pass, U8* HWY_RESTRICT w) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    const std::uint8_t* quads = part + pass * kLanes * 4;
    if constexpr (kFormat == PackedFormat::q8_0) {
        for (std::size_t q = 0; q < kQuads; ++q) w[q] = hn::LoadU(DU8(), quads + q * kQuadBytes);
        return;
    }
    const hn::Repartition<std::uint16_t, DF> d16;
    const U8 low = hn::Set(DU8(), 0x0F);
    for (std::size_t q = 0; q < kQuads / 2; ++q) {
        const U8 both = hn::LoadU(DU8(), quads + q * kQuadBytes);
        w[q] = hn::And(both, low);
        w[q + kQuads / 2] =
            hn::And(hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(d16, both))), low);
    }
    if constexpr (has_table(kFormat)) {
        const U8 table = hn::LoadDup128(DU8(), kIq4Values);
        for (std::size_t q = 0; q < kQuads; ++q) w[q] = hn::TableLookupBytes(table, w[q]);
    }
    const std::uint8_t* upper = part + kLayout.quad_bytes;
    if constexpr (has_fifth_bits(kFormat)) {
        const std::uint8_t* bits = upper + pass * kLanes / 2;
        for (std::size_t q = 0; q < kQuads; ++q) {
            const auto mask = hn::LoadMaskBits(DU8(), bits + q * sizeof(std::uint64_t));
            w[q] = hn::Or(w[q], hn::IfThenElseZero(mask, hn::Set(DU8(), 16)));
        }
    } else if constexpr (kLayout.upper_bytes != 0) {
        const U8 pair = hn::Set(DU8(), 0x30);
        for (std::size_t half = 0; half < 2; ++half) {
            const auto bits =
                hn::BitCast(d16, hn::LoadU(DU8(), upper + half * kQuadBytes + pass * kLanes * 4));
            U8* to = w + half * kQuads / 2;
            const auto put = [&](std::size_t q, auto shifted) HWY_ATTR {
                to[q] = hn::OrAnd(to[q], hn::BitCast(DU8(), shifted), pair);
            };
            put(0, hn::ShiftLeft<4>(bits));
            put(1, hn::ShiftLeft<2>(bits));
            put(2, bits);
            put(3, hn::ShiftRight<2>(bits));
        }
    }
}

// What a block says of the rows of one pass, and what it says of one of its parts.
struct BlockScales {
    F d;
    F min;
};
struct PartScales {
    F d;
    F min;            // added, times the sum of the activations
    I first, second;  // has_half_scales(): of the halves; d counts beside
};

template <PackedFormat kFormat>
HWY_INLINE BlockScales block_scales(const std::uint8_t* block, std::size_t pass) {
    BlockScales scales;
    scales.d = load_half(block + pass * kLanes * 2);
    scales.min = hn::Zero(DF());
    if constexpr (has_mins(kFormat)) {
        scales.min = load_half(block + (kPackedRows + pass * kLanes) * 2);
        if constexpr (packed_layout(kFormat).parts > 1) scales.min = hn::Neg(scales.min);
    }
    return scales;
}

// Bytes of the rows of a pass, from those of all rows.
HWY_INLINE I row_bytes(const std::uint8_t* from, std::size_t pass) {
    return hn::PromoteTo(DI(), hn::LoadU(DRowU8(), from + pass * kLanes));
}

template <PackedFormat kFormat>
HWY_INLINE PartScales part_scales(const std::uint8_t* block, std::size_t part, std::size_t pass,
                                  const BlockScales& of_block) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    PartScales scales;
    scales.d = of_block.d;
    scales.min = of_block.min;
    scales.first = scales.second = hn::Zero(DI());
    if constexpr (kLayout.parts == 1) return scales;
    const std::uint8_t* bytes = block + (has_mins(kFormat) ? 4 : 2) * kPackedRows;
    if constexpr (has_half_scales(kFormat)) {
        const auto* signed_bytes =
            reinterpret_cast<const std::int8_t*>(bytes + 2 * part * kPackedRows + pass * kLanes);
        scales.first = hn::PromoteTo(DI(), hn::LoadU(DI8(), signed_bytes));
        scales.second = hn::PromoteTo(DI(), hn::LoadU(DI8(), signed_bytes + kPackedRows));
        return scales;
    }
    const I four = hn::Set(DI(), 0x0F);
    const I two = hn::Set(DI(), 0x30);
    if constexpr (has_mins(kFormat)) {
        const I lower = row_bytes(bytes + part * kPackedRows, pass);
        const I upper = hn::ShiftRightSame(row_bytes(bytes + (8 + part / 2) * kPackedRows, pass),
                                           static_cast<int>(part % 2 * 4));
        const I scale = hn::OrAnd(hn::And(lower, four), hn::ShiftLeft<4>(upper), two);
        const I min = hn::OrAnd(hn::ShiftRight<4>(lower), hn::ShiftLeft<2>(upper), two);
        scales.d = hn::Mul(of_block.d, hn::ConvertTo(DF(), scale));
        scales.min = hn::Mul(of_block.min, hn::ConvertTo(DF(), min));
    } else {
        const I lower = hn::ShiftRightSame(row_bytes(bytes + part / 2 * kPackedRows, pass),
                                           static_cast<int>(part % 2 * 4));
        const I upper = hn::ShiftRightSame(row_bytes(bytes + (4 + part / 4) * kPackedRows, pass),
                                           static_cast<int>(part % 4 * 2));
        const I scale = hn::OrAnd(hn::And(lower, four), hn::ShiftLeft<4>(upper), two);
        scales.d = hn::Mul(of_block.d, hn::ConvertTo(DF(), hn::Sub(scale, hn::Set(DI(), 32))));
    }
    return scales;
}

// The integer sum of a part and one token's activations, offsets included.
template <PackedFormat kFormat>
HWY_INLINE I part_dot(const U8* HWY_RESTRICT w, const PartScales& scales, const RoundedBlock& in) {
    constexpr int kOffset = packed_layout(kFormat).offset;
    constexpr int kBits = kFormat == PackedFormat::q8_0 || has_table(kFormat) ? 8 : 6;
    if constexpr (has_half_scales(kFormat)) {
        I first = hn::Set(DI(), -kOffset * in.half_sums[0]);
        I second = hn::Set(DI(), -kOffset * in.half_sums[1]);
        for (std::size_t q = 0; q < kQuads / 2; ++q) {
            first = add_dot4<kBits>(first, w[q], in.values + 4 * q);
            second = add_dot4<kBits>(second, w[q + kQuads / 2], in.values + 4 * q + 16);
        }
        return hn::Add(hn::Mul(first, scales.first), hn::Mul(second, scales.second));
    } else {
        I dot = kOffset == 0 ? hn::Zero(DI()) : hn::Set(DI(), -kOffset * in.sum());
        for (std::size_t q = 0; q < kQuads; ++q) {
            dot = add_dot4<kBits>(dot, w[q], in.values + 4 * q);
        }
        return dot;
    }
}

#endif  // HWY_SCALAR

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
