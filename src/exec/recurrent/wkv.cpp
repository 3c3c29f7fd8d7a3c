#include "exec/recurrent/wkv.h"

#include <algorithm>

#include "exec/recurrent/lanes.h"

namespace stet::exec {
namespace {

// Pointers to one head's inputs of one token.
struct Head7 {
    const float *r, *w, *k, *v, *a, *b;
};

STET_INTO_CLONES float dot(const float* __restrict x, const float* __restrict y,
                           std::uint32_t size) {
    Lanes sum{};
    for (std::uint32_t j = 0; j < size; j += kLanes) {
        Lanes a;
        Lanes b;
        load(a, x + j, size - j);
        load(b, y + j, size - j);
        sum += a * b;
    }
    return total(sum);
}

STET_VECTOR_CLONES
void step7(const Head7& in, std::uint32_t size, float* __restrict s, float* __restrict y) {
    for (std::uint32_t i = 0; i < size; ++i, s += size) {
        const float along = dot(s, in.a, size);
        const float value = in.v[i];
        Lanes sum{};
        for (std::uint32_t j = 0; j < size; j += kLanes) {
            const std::uint32_t count = size - j;
            Lanes row;
            Lanes w;
            Lanes k;
            Lanes b;
            Lanes r;
            load(row, s + j, count);
            load(w, in.w + j, count);
            load(k, in.k + j, count);
            load(b, in.b + j, count);
            load(r, in.r + j, count);
            row = row * w + k * value + b * along;
            store(s + j, row, count);
            sum += row * r;
        }
        y[i] = total(sum);
    }
}

// Pointers to one head's inputs of one token.
struct Head6 {
    const float *r, *w, *k, *v, *first;
    float scale;
};

STET_VECTOR_CLONES
void step6(const Head6& in, std::uint32_t size, float* __restrict s, float* __restrict y) {
    const float* __restrict v = in.v;
    std::fill_n(y, size, 0.0F);
    for (std::uint32_t i = 0; i < size; ++i, s += size) {
        const float k = in.k[i];
        const float w = in.w[i];
        const float r = in.r[i] * in.scale;
        if (in.first == nullptr) {
            for (std::uint32_t j = 0; j < size; ++j) {
                s[j] = s[j] * w + k * v[j];
                y[j] += s[j] * r;
            }
            continue;
        }
        const float first = in.first[i];
        for (std::uint32_t j = 0; j < size; ++j) {
            const float kv = k * v[j];
            y[j] += (s[j] + first * kv) * r;
            s[j] = s[j] * w + kv;
        }
    }
}

// Calls step(token, head, its S) for the thread's heads and all tokens, a head at a time.
template <typename Step>
void for_heads(const Wkv& shape, std::span<const Segment> segments, int thread, int threads,
               const Step& step) {
    const std::uint64_t head_floats = std::uint64_t{shape.head_size} * shape.head_size;
    const Share share = share_of(shape.heads, 1, thread, threads);
    for (const Segment& segment : segments) {
        float* s = new_row(segment, shape.offset_bytes);
        const float* base = base_row(segment, shape.offset_bytes);
        for (std::uint64_t h = share.begin; h < share.end; ++h) {
            start_from(base, s, h * head_floats, (h + 1) * head_floats);
            for (std::uint64_t i = 0; i < segment.token_count; ++i) {
                step(segment.token_begin + i, h, s + h * head_floats);
            }
        }
    }
}

}  // namespace

void wkv7(const Wkv& shape, const Wkv7Inputs& in, const Rows& y, std::span<const Segment> segments,
          int thread, int threads) {
    for_heads(shape, segments, thread, threads, [&](std::uint64_t t, std::uint64_t h, float* s) {
        const std::uint64_t at = h * shape.head_size;
        step7({in.r.row(t) + at, in.w.row(t) + at, in.k.row(t) + at, in.v.row(t) + at,
               in.a.row(t) + at, in.b.row(t) + at},
              shape.head_size, s, y.row(t) + at);
    });
}

void wkv6(const Wkv& shape, const Wkv6Inputs& in, const Rows& y, std::span<const Segment> segments,
          int thread, int threads) {
    for_heads(shape, segments, thread, threads, [&](std::uint64_t t, std::uint64_t h, float* s) {
        const std::uint64_t at = h * shape.head_size;
        step6({in.r.row(t) + at, in.w.row(t) + at, in.k.row(t) + at, in.v.row(t) + at,
               in.first == nullptr ? nullptr : in.first + at, in.scale},
              shape.head_size, s, y.row(t) + at);
    });
}

}  // namespace stet::exec
