// The code between the include of foreach_target.h and HWY_ONCE is compiled once for each target
// (as in exec/kernel.cpp).
#define HWY_DISABLED_TARGETS \
    (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/recurrent/linear_attention.cpp"

#include "exec/recurrent/linear_attention.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Rows of S that are worked on together, so that k, q and decay are loaded once for all of them.
inline constexpr std::size_t kRows = 4;

// What the rows of one head need of one token.
struct TokenRows {
    const float* q;
    const float* k;
    const float* v;      // at the first of the rows
    const float* decay;  // of all columns, or one
    float beta;
    float* out;  // at the first of the rows
};

// Calls work(column, count, is_whole) for whole vectors, then for the rest of a row.
template <typename Work>
HWY_INLINE void for_columns(std::size_t size, const Work& work) {
    const std::size_t lanes = hn::Lanes(D());
    std::size_t column = 0;
    for (; column + lanes <= size; column += lanes) work(column, lanes, true);
    if (column < size) work(column, size - column, false);
}

// Never touches what lies past `count`.
HWY_INLINE V load(const float* from, std::size_t count, bool is_whole) {
    if (is_whole) return hn::LoadU(D(), from);
    HWY_ALIGN float buffer[hn::MaxLanes(D())] = {};
    std::memcpy(buffer, from, count * sizeof(float));
    return hn::Load(D(), buffer);
}

HWY_INLINE void store(V v, float* to, std::size_t count, bool is_whole) {
    if (is_whole) {
        hn::StoreU(v, D(), to);
        return;
    }
    HWY_ALIGN float buffer[hn::MaxLanes(D())];
    hn::Store(v, D(), buffer);
    std::memcpy(to, buffer, count * sizeof(float));
}

// S = S * decay; answers S k of the decayed rows.
template <std::size_t kCount, bool kColumnDecay>
HWY_INLINE void decay_rows(const TokenRows& token, float* state, std::size_t size, float* dots) {
    const D d;
    V sums[kCount];
    for (V& sum : sums) sum = hn::Zero(d);
    for_columns(size, [&](std::size_t c, std::size_t count, bool is_whole) HWY_ATTR {
        const V k = load(token.k + c, count, is_whole);
        const V decay =
            kColumnDecay ? load(token.decay + c, count, is_whole) : hn::Set(d, *token.decay);
        for (std::size_t r = 0; r < kCount; ++r) {
            float* s = state + r * size + c;
            const V decayed = hn::Mul(load(s, count, is_whole), decay);
            store(decayed, s, count, is_whole);
            sums[r] = hn::MulAdd(decayed, k, sums[r]);
        }
    });
    for (std::size_t r = 0; r < kCount; ++r) dots[r] = hn::GetLane(hn::SumOfLanes(d, sums[r]));
}

// S = S * decay + u k^T; answers S q.
template <std::size_t kCount>
HWY_INLINE void add_rows(const TokenRows& token, float decay, const float* u, float* state,
                         std::size_t size, float* dots) {
    const D d;
    const V all_decay = hn::Set(d, decay);
    V changes[kCount];
    V sums[kCount];
    for (std::size_t r = 0; r < kCount; ++r) {
        changes[r] = hn::Set(d, u[r]);
        sums[r] = hn::Zero(d);
    }
    for_columns(size, [&](std::size_t c, std::size_t count, bool is_whole) HWY_ATTR {
        const V k = load(token.k + c, count, is_whole);
        const V q = load(token.q + c, count, is_whole);
        for (std::size_t r = 0; r < kCount; ++r) {
            float* s = state + r * size + c;
            const V old = hn::Mul(load(s, count, is_whole), all_decay);
            const V next = hn::MulAdd(changes[r], k, old);
            store(next, s, count, is_whole);
            sums[r] = hn::MulAdd(next, q, sums[r]);
        }
    });
    for (std::size_t r = 0; r < kCount; ++r) dots[r] = hn::GetLane(hn::SumOfLanes(d, sums[r]));
}

template <std::size_t kCount>
HWY_INLINE void step_rows(const LinearAttentionShape& shape, const TokenRows& token, float* state) {
    float u[kCount];
    float dots[kCount];
    float decay = 1.0F;
    if (shape.delta_rule) {
        if (shape.column_decay) {
            decay_rows<kCount, true>(token, state, shape.size, dots);
        } else {
            decay_rows<kCount, false>(token, state, shape.size, dots);
        }
        for (std::size_t r = 0; r < kCount; ++r) u[r] = token.beta * (token.v[r] - dots[r]);
    } else {
        decay = *token.decay;
        std::copy_n(token.v, kCount, u);
    }
    add_rows<kCount>(token, decay, u, state, shape.size, dots);
    for (std::size_t r = 0; r < kCount; ++r) token.out[r] = shape.scale * dots[r];
}

const float* rows_of(const HeadRows& rows, std::uint64_t token, std::uint64_t head) {
    return rows.data + token * rows.token_stride + head * rows.head_stride;
}

// Rows [first, first + kCount) of head `head`, from the base block through all of the segment.
template <std::size_t kCount>
void run_rows(const LinearAttentionCall& call, const Segment& segment, std::size_t head,
              std::size_t first) {
    const LinearAttentionShape& shape = *call.shape;
    const LinearAttentionInputs& inputs = *call.inputs;
    const std::size_t size = shape.size;
    const std::size_t offset =
        shape.state_offset_bytes + (head * size + first) * size * sizeof(float);
    auto* state = reinterpret_cast<float*>(segment.new_block + offset);
    if (segment.base_block != nullptr) {
        std::memcpy(state, segment.base_block + offset, kCount * size * sizeof(float));
    } else {
        std::fill_n(state, kCount * size, 0.0F);
    }
    const std::size_t key_head = shape.key_order == KeyHeads::grouped
                                     ? head / (shape.heads / shape.key_heads)
                                     : head % shape.key_heads;
    for (std::uint64_t i = 0; i < segment.token_count; ++i) {
        const std::uint64_t t = segment.token_begin + i;
        TokenRows token;
        token.q = rows_of(inputs.q, t, key_head);
        token.k = rows_of(inputs.k, t, key_head);
        token.v = rows_of(inputs.v, t, head) + first;
        token.decay = rows_of(inputs.decay, t, head);
        token.beta = shape.delta_rule ? *rows_of(inputs.beta, t, head) : 0.0F;
        token.out = call.out + (t * shape.heads + head) * size + first;
        step_rows<kCount>(shape, token, state);
    }
}

// Rows [begin, end) of all heads together.
void run_range(const LinearAttentionCall& call, const Segment& segment, std::size_t begin,
               std::size_t end) {
    const std::size_t size = call.shape->size;
    while (begin < end) {
        const std::size_t head = begin / size;
        const std::size_t first = begin % size;
        if (std::min(end - begin, size - first) >= kRows) {
            run_rows<kRows>(call, segment, head, first);
            begin += kRows;
        } else {
            run_rows<1>(call, segment, head, first);
            begin += 1;
        }
    }
}

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stet::exec {

HWY_EXPORT(run_range);

void linear_attention(const LinearAttentionShape& shape, const LinearAttentionInputs& inputs,
                      std::span<const Segment> segments, float* out, int thread, int threads) {
    const LinearAttentionCall call = {&shape, &inputs, out};
    // Whole groups of rows, so that threads differ little in what they do.
    const std::uint64_t rows = std::uint64_t{shape.heads} * shape.size;
    const auto share = [&](int index) {
        return rows * static_cast<std::uint64_t>(index) / static_cast<std::uint64_t>(threads) / 4 *
               4;
    };
    const std::uint64_t begin = share(thread);
    const std::uint64_t end = thread + 1 == threads ? rows : share(thread + 1);
    for (const Segment& segment : segments) {
        HWY_DYNAMIC_DISPATCH(run_range)(call, segment, begin, end);
    }
}

}  // namespace stet::exec
#endif  // HWY_ONCE
