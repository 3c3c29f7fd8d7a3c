#include "exec/recurrent/ssm_scan.h"

#include <algorithm>
#include <cmath>

#include "exec/recurrent/lanes.h"

namespace stet::exec {
namespace {

// Heads of one channel each are computed together, so that they share the lines of x and y.
constexpr std::uint32_t kSmallHeadRows = 16;

float softplus(float x) {
    return x > 20.0F ? x : std::log1p(std::exp(x));
}

// One channel and token: state[n] = before[n] * decay + dx * b[n]; answers state . c. With
// kByState, decay is exp(d * rates[n]). `before` is `state` or lies elsewhere.
template <bool kByState>
STET_INTO_CLONES float step(const float* before, float* state, const float* __restrict rates,
                            float d, float decay, float dx, const float* __restrict b,
                            const float* __restrict c, std::uint32_t states) {
    Lanes sum{};
    for (std::uint32_t n = 0; n < states; n += kLanes) {
        const std::uint32_t count = states - n;
        Lanes s;
        Lanes in;
        Lanes out;
        load(s, before + n, count);
        load(in, b + n, count);
        load(out, c + n, count);
        if constexpr (kByState) {
            Lanes kept;
            load(kept, rates + n, count);
            kept = kept * d;
            to_exp(kept);
            s = s * kept + in * dx;
        } else {
            s = s * decay + in * dx;
        }
        store(state + n, s, count);
        sum += s * out;
    }
    return total(sum);
}

// Heads [begin, end) of one segment, all tokens: the first reads the state in `base`, so that it
// need not be copied into `s` before.
template <bool kByState>
STET_INTO_CLONES void scan_heads(const SsmScan& scan, const SsmInputs& in, const Rows& y,
                                 const Segment& segment, const float* base, float* s,
                                 std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t heads_of_group = scan.heads / scan.groups;
    const std::uint64_t head_floats = std::uint64_t{scan.head_size} * scan.states;
    for (std::uint64_t t = segment.token_begin; t < segment.token_begin + segment.token_count;
         ++t) {
        const float* dt = in.dt.row(t);
        const float* before = t == segment.token_begin ? base : s;
        for (std::uint64_t h = begin; h < end; ++h) {
            const std::uint64_t group = h / heads_of_group * scan.states;
            const float d = softplus(dt[h]);
            const float* rates = scan.decay + (kByState ? h * scan.states : h);
            const float decay = kByState ? 0.0F : std::exp(d * *rates);
            for (std::uint64_t i = 0; i < scan.head_size; ++i) {
                const std::uint64_t channel = h * scan.head_size + i;
                const std::uint64_t at = h * head_floats + i * scan.states;
                y.row(t)[channel] =
                    step<kByState>(before + at, s + at, rates, d, decay, d * in.x.row(t)[channel],
                                   in.b.row(t) + group, in.c.row(t) + group, scan.states);
            }
        }
    }
}

STET_VECTOR_CLONES
void scan_by_state(const SsmScan& scan, const SsmInputs& in, const Rows& y, const Segment& segment,
                   const float* base, float* s, std::uint64_t begin, std::uint64_t end) {
    scan_heads<true>(scan, in, y, segment, base, s, begin, end);
}

STET_VECTOR_CLONES
void scan_by_head(const SsmScan& scan, const SsmInputs& in, const Rows& y, const Segment& segment,
                  const float* base, float* s, std::uint64_t begin, std::uint64_t end) {
    scan_heads<false>(scan, in, y, segment, base, s, begin, end);
}

}  // namespace

void ssm_scan(const SsmScan& scan, const SsmInputs& in, const Rows& y,
              std::span<const Segment> segments, int thread, int threads) {
    const std::uint64_t head_floats = std::uint64_t{scan.head_size} * scan.states;
    const std::uint64_t unit = scan.head_size == 1 ? kSmallHeadRows : 1;
    const Share share = share_of(scan.heads, unit, thread, threads);
    for (const Segment& segment : segments) {
        float* s = new_row(segment, scan.offset_bytes);
        const float* base = base_row(segment, scan.offset_bytes);
        // A unit at a time over all tokens: its state stays in the nearest cache.
        for (std::uint64_t begin = share.begin; begin < share.end; begin += unit) {
            const std::uint64_t end = std::min(begin + unit, share.end);
            const float* from = base;
            if (base == nullptr || segment.token_count == 0) {
                start_from(base, s, begin * head_floats, end * head_floats);
                from = s;
            }
            if (scan.decay_by_state) {
                scan_by_state(scan, in, y, segment, from, s, begin, end);
            } else {
                scan_by_head(scan, in, y, segment, from, s, begin, end);
            }
        }
    }
}

}  // namespace stet::exec
