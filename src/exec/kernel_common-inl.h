// Per-target helpers of the attention kernels: rows of each type as f32 vectors, exp2, transposes.
// Included once for each target, by kernel.cpp alone.
#if defined(STET_EXEC_KERNEL_COMMON_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STET_EXEC_KERNEL_COMMON_INL_H
#undef STET_EXEC_KERNEL_COMMON_INL_H
#else
#define STET_EXEC_KERNEL_COMMON_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using memory::ElementType;
using memory::kPageRows;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using DI = hn::RebindToSigned<D>;
using D16 = hn::Rebind<hwy::float16_t, D>;
using DU16 = hn::Rebind<std::uint16_t, D>;
using D8 = hn::Rebind<std::int8_t, D>;

inline constexpr std::size_t kLanes = hn::MaxLanes(D());
// AVX-512 has 32 vector registers, the others 16.
inline constexpr bool kManyRegisters = kLanes == 16;

inline constexpr std::size_t kBlock = 32;       // elements of a q8_0 block
inline constexpr std::size_t kBlockBytes = 34;  // f16 scale, then the elements

HWY_INLINE std::size_t round_up(std::size_t a, std::size_t b) {
    return (a + b - 1) / b * b;
}

// To the second-level cache: rows are often a power of two apart, and would push each other out of
// the first. Any address may be asked for; what lies outside of a page is of no use, but harmless.
HWY_INLINE void prefetch(const std::uint8_t* at) {
    __builtin_prefetch(at, 0, 2);
}

HWY_INLINE V load_f16(const std::uint8_t* from) {
    const DU16 du16;
    return hn::PromoteTo(
        D(), hn::BitCast(D16(), hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from))));
}

// The first `count` < kLanes elements, zeros after them. Never reads past them.
HWY_INLINE V load_f16_tail(const std::uint8_t* from, std::size_t count) {
    HWY_ALIGN std::uint8_t buffer[2 * kLanes] = {};
    std::memcpy(buffer, from, 2 * count);
    return load_f16(buffer);
}

HWY_INLINE V load_f32_tail(const float* from, std::size_t count) {
    HWY_ALIGN float buffer[kLanes] = {};
    std::memcpy(buffer, from, count * sizeof(float));
    return hn::Load(D(), buffer);
}

// The scale of a q8_0 block in every lane.
HWY_INLINE V load_scale(const std::uint8_t* block) {
    std::uint16_t bits;
    std::memcpy(&bits, block, sizeof(bits));
    return hn::PromoteTo(D(), hn::BitCast(D16(), hn::Set(DU16(), bits)));
}

HWY_INLINE V load_q8(const std::uint8_t* block, std::size_t element) {
    const auto bytes = hn::LoadU(D8(), reinterpret_cast<const std::int8_t*>(block + 2 + element));
    return hn::Mul(hn::ConvertTo(D(), hn::PromoteTo(DI(), bytes)), load_scale(block));
}

// Rows of one K/V head in a page, from some row on. load() needs kLanes elements from `element` on;
// load_tail() answers the `count` from there, then zeros.
struct RowsF32 {
    const std::uint8_t* base;
    std::size_t row_bytes;

    HWY_INLINE V load(std::size_t row, std::size_t element) const {
        return hn::LoadU(D(), row_floats(row) + element);
    }
    HWY_INLINE V load_tail(std::size_t row, std::size_t element, std::size_t count) const {
        return load_f32_tail(row_floats(row) + element, count);
    }
    HWY_INLINE const float* row_floats(std::size_t row) const {
        return reinterpret_cast<const float*>(base + row * row_bytes);
    }
};

struct RowsF16 {
    const std::uint8_t* base;
    std::size_t row_bytes;

    HWY_INLINE V load(std::size_t row, std::size_t element) const {
        return load_f16(base + row * row_bytes + 2 * element);
    }
    HWY_INLINE V load_tail(std::size_t row, std::size_t element, std::size_t count) const {
        return load_f16_tail(base + row * row_bytes + 2 * element, count);
    }
};

// `offset`: of the head in the row, in elements; a multiple of kLanes.
struct RowsQ8 {
    const std::uint8_t* base;
    std::size_t row_bytes;
    std::size_t offset;

    HWY_INLINE const std::uint8_t* block(std::size_t row, std::size_t element) const {
        return base + row * row_bytes + (offset + element) / kBlock * kBlockBytes;
    }
    HWY_INLINE V load(std::size_t row, std::size_t element) const {
        return load_q8(block(row, element), (offset + element) % kBlock);
    }
    HWY_INLINE V load_tail(std::size_t row, std::size_t element, std::size_t count) const {
        // A vector never leaves its block, so the whole of it may be read.
        HWY_ALIGN float buffer[kLanes];
        hn::Store(load(row, element), D(), buffer);
        return load_f32_tail(buffer, count);
    }
};

// exp2(x) for x <= 0, 3e-8 relative; 0 below -126.
HWY_INLINE V exp2_negative(V x) {
    const D d;
    const DI di;
    const V whole = hn::Round(x);
    const V r = hn::Sub(x, whole);
    V p = hn::Set(d, 1.55000193e-4F);
    p = hn::MulAdd(p, r, hn::Set(d, 1.339737953e-3F));
    p = hn::MulAdd(p, r, hn::Set(d, 9.617953718e-3F));
    p = hn::MulAdd(p, r, hn::Set(d, 5.550336783e-2F));
    p = hn::MulAdd(p, r, hn::Set(d, 2.402265143e-1F));
    p = hn::MulAdd(p, r, hn::Set(d, 6.931472005e-1F));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
    const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, hn::Max(whole, hn::Set(d, -126.0F))));
    const V scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
    return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -126.0F)), scaled);
}

// A score after soft-cap, in base 2. The cap divided q already.
HWY_INLINE V soft_cap(V score, float softcap) {
    return hn::Mul(hn::Set(D(), softcap * kLog2E), hn::Tanh(D(), score));
}

// What q is multiplied with, so that its products are scores in base 2 (or the argument of tanh).
HWY_INLINE float query_factor(const AttentionShape& shape) {
    return shape.softcap > 0.0F ? shape.scale / shape.softcap : shape.scale * kLog2E;
}

// kCount vectors (a power of two up to kLanes) to one: each vector's lanes are summed down to
// kLanes / kCount partial sums, in the order of the vectors.
template <std::size_t kCount>
HWY_INLINE V add_lanes(const V* v) {
    static_assert((kCount & (kCount - 1)) == 0);
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kCount > 1) {
        const V low = add_lanes<kCount / 2>(v);
        const V high = add_lanes<kCount / 2>(v + kCount / 2);
        return hn::Add(hn::ConcatEven(D(), high, low), hn::ConcatOdd(D(), high, low));
    }
#endif
    return v[0];
}

// Writes the transpose of the kLanes x kLanes block in v.
HWY_INLINE void store_transposed(V* v, float* to, std::size_t to_stride) {
    const D d;
#if HWY_TARGET != HWY_SCALAR
    V w[kLanes];
    // Each step moves the lowest bit of the lane number to the top of the row number.
    for (std::size_t step = 1; step < kLanes; step *= 2) {
        for (std::size_t i = 0; i < kLanes / 2; ++i) {
            w[i] = hn::ConcatEven(d, v[2 * i + 1], v[2 * i]);
            w[i + kLanes / 2] = hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]);
        }
        for (std::size_t i = 0; i < kLanes; ++i) {
            v[i] = w[i];
        }
    }
#endif
    for (std::size_t i = 0; i < kLanes; ++i) {
        hn::StoreU(v[i], d, to + i * to_stride);
    }
}

template <class Rows>
HWY_INLINE void copy_rows(const Rows& rows, std::size_t count, std::size_t size, float* to,
                          std::size_t to_stride) {
    const std::size_t whole = size / kLanes * kLanes;
    for (std::size_t row = 0; row < count; ++row, to += to_stride) {
        for (std::size_t e = 0; e < whole; e += kLanes) {
            hn::Store(rows.load(row, e), D(), to + e);
        }
        if (whole < size) {
            hn::Store(rows.load_tail(row, whole, size - whole), D(), to + whole);
        }
    }
}

// q8_0 heads that start inside a vector: element by element.
inline void copy_rows_q8_slow(const RowsQ8& rows, std::size_t count, std::size_t size, float* to,
                              std::size_t to_stride) {
    for (std::size_t row = 0; row < count; ++row, to += to_stride) {
        for (std::size_t e = 0; e < size; ++e) {
            const std::uint8_t* block = rows.block(row, e);
            const auto value = static_cast<std::int8_t>(block[2 + (rows.offset + e) % kBlock]);
            to[e] = static_cast<float>(value) * hn::GetLane(load_scale(block));
        }
    }
}

// Converts `count` rows of one head to f32, `to_stride` (a multiple of kLanes) apart.
inline void convert_rows(ElementType type, const std::uint8_t* base, std::size_t row_bytes,
                         std::size_t offset, std::size_t count, std::size_t size, float* to,
                         std::size_t to_stride) {
    switch (type) {
        case ElementType::f32:
            copy_rows(RowsF32{base + 4 * offset, row_bytes}, count, size, to, to_stride);
            break;
        case ElementType::f16:
            copy_rows(RowsF16{base + 2 * offset, row_bytes}, count, size, to, to_stride);
            break;
        case ElementType::q8_0:
            if (offset % kLanes == 0) {
                copy_rows(RowsQ8{base, row_bytes, offset}, count, size, to, to_stride);
            } else {
                copy_rows_q8_slow(RowsQ8{base, row_bytes, offset}, count, size, to, to_stride);
            }
            break;
    }
}

// Rows from `first` on that lie in one page.
struct PagePiece {
    const std::uint8_t* page;
    std::size_t row;    // in the page
    std::size_t count;  // > 0
};

HWY_INLINE PagePiece page_piece(const Segment& segment, RowRange rows, std::uint64_t first) {
    const std::uint64_t index = first - segment.first_row;
    PagePiece piece;
    piece.page = reinterpret_cast<const std::uint8_t*>(segment.pages[index / kPageRows]);
    piece.row = static_cast<std::size_t>(index % kPageRows);
    piece.count =
        static_cast<std::size_t>(std::min<std::uint64_t>(kPageRows - piece.row, rows.end - first));
    return piece;
}

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
