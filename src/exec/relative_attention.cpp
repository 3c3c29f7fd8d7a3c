#include "exec/relative_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/aligned_floats.h"
#include "exec/kernel.h"
#include "exec/recurrent/lanes.h"

namespace stet::exec {
namespace {

using memory::kPageRows;

constexpr std::int64_t kDistanceMax = 128;
constexpr std::uint32_t kTileTokens = 16;  // queries that share a piece of rows

// The softmax of one query of one head so far.
struct Sum {
    float top;
    float total;
};

STET_INTO_CLONES float dot(const float* x, const float* y, std::uint32_t size) {
    Lanes sum{};
    for (std::uint32_t i = 0; i < size; i += kLanes) {
        Lanes a;
        Lanes b;
        load(a, x + i, size - i);
        load(b, y + i, size - i);
        sum += a * b;
    }
    return total(sum);
}

// Adds `count` rows of k and v, `stride` floats apart; scores holds their biases.
STET_VECTOR_CLONES void add_rows(const float* q, const float* k, const float* v,
                                 std::uint64_t stride, std::uint32_t count, std::uint32_t size,
                                 float* scores, Sum* sum, float* out) {
    float top = sum->top;
    for (std::uint32_t r = 0; r < count; ++r) {
        scores[r] += dot(q, k + r * stride, size);
        top = std::max(top, scores[r]);
    }
    const float kept = std::exp(sum->top - top);
    sum->top = top;
    sum->total *= kept;
    for (std::uint32_t i = 0; i < size; ++i) out[i] *= kept;
    for (std::uint32_t r = 0; r < count; ++r) {
        const float weight = std::exp(scores[r] - top);
        sum->total += weight;
        const float* row = v + r * stride;
        for (std::uint32_t i = 0; i < size; ++i) out[i] += weight * row[i];
    }
}

class Worker {
  public:
    explicit Worker(const RelativeAttention& shape)
        : shape_(shape), stride_((shape.size + kLanes - 1) / kLanes * kLanes) {
        memory_.require(2 * kPageRows * stride_);
        if (shape.bias == nullptr) return;
        for (std::int64_t d = -kDistanceMax; d <= kDistanceMax; ++d) {
            buckets_.push_back(relative_bucket(d, shape.buckets, shape.both_ways));
        }
    }

    // Queries [begin, begin + count) of one head.
    void run(const RelativeSpan& span, std::uint32_t head, std::uint32_t begin, std::uint32_t count,
             const ConstRows& q, const Rows& out) {
        const std::uint64_t offset = std::uint64_t{head} * shape_.size;
        Sum sums[kTileTokens];
        for (std::uint32_t t = 0; t < count; ++t) {
            sums[t] = {-std::numeric_limits<float>::infinity(), 0.0F};
            std::fill_n(out.row(span.token_begin + begin + t) + offset, shape_.size, 0.0F);
        }
        const std::uint64_t end = last_row(span, begin + count - 1);
        for (std::uint64_t first = span.row_begin; first < end;) {
            const std::uint64_t next = std::min(end, memory::page_floor(first) + kPageRows);
            load_rows(span, head, first, next);
            for (std::uint32_t t = 0; t < count; ++t) {
                const std::uint64_t seen = std::min(next, last_row(span, begin + t));
                if (seen <= first) continue;
                const std::uint64_t column = span.token_begin + begin + t;
                fill_bias(head,
                          static_cast<std::int64_t>(first) -
                              static_cast<std::int64_t>(span.position + begin + t),
                          seen - first);
                add_rows(q.row(column) + offset, memory_.data(),
                         memory_.data() + kPageRows * stride_, stride_,
                         static_cast<std::uint32_t>(seen - first), shape_.size, scores_, &sums[t],
                         out.row(column) + offset);
            }
            first = next;
        }
        for (std::uint32_t t = 0; t < count; ++t) {
            if (sums[t].total == 0.0F) continue;
            float* row = out.row(span.token_begin + begin + t) + offset;
            for (std::uint32_t i = 0; i < shape_.size; ++i) row[i] /= sums[t].total;
        }
    }

  private:
    static std::uint64_t last_row(const RelativeSpan& span, std::uint64_t token) {
        return span.causal ? std::min(span.row_end, span.position + token + 1) : span.row_end;
    }
    void fill_bias(std::uint32_t head, std::int64_t distance, std::uint64_t count) {
        if (shape_.bias == nullptr) {
            std::fill_n(scores_, count, 0.0F);
            return;
        }
        for (std::uint64_t r = 0; r < count; ++r, ++distance) {
            const std::int64_t place = std::clamp(distance, -kDistanceMax, kDistanceMax);
            const std::uint64_t bucket = buckets_[static_cast<std::size_t>(place + kDistanceMax)];
            scores_[r] = shape_.bias[bucket * shape_.heads + head];
        }
    }
    // One head of rows [first, next) of a page.
    void load_rows(const RelativeSpan& span, std::uint32_t head, std::uint64_t first,
                   std::uint64_t next) {
        float* k = memory_.data();
        float* v = k + kPageRows * stride_;
        if (span.pages == nullptr) {
            const std::uint64_t offset = std::uint64_t{head} * shape_.size;
            for (std::uint64_t row = first; row < next; ++row) {
                std::copy_n(span.k.row(row) + offset, shape_.size, k + (row - first) * stride_);
                std::copy_n(span.v.row(row) + offset, shape_.size, v + (row - first) * stride_);
            }
            return;
        }
        const std::byte* page = span.pages[first / kPageRows];
        const auto load_plane = [&](const PlaneView& plane, float* to) {
            const std::uint64_t of_head = plane.row_bytes / shape_.heads;
            kernels_.load_rows(
                page + plane.offset_bytes + first % kPageRows * plane.row_bytes + head * of_head,
                plane.row_bytes, plane.type, next - first, shape_.size, to, stride_);
        };
        load_plane(span.k_plane, k);
        load_plane(span.v_plane, v);
    }

    const RelativeAttention& shape_;
    const std::uint64_t stride_;
    const Kernels kernels_ = kernels();
    std::vector<std::uint32_t> buckets_;  // by distance, from -kDistanceMax
    AlignedFloats memory_;                // k, v of a page
    float scores_[kPageRows];
};

}  // namespace

std::uint32_t relative_bucket(std::int64_t distance, std::uint32_t buckets, bool both_ways) {
    std::uint32_t first = 0;
    if (both_ways) {
        buckets /= 2;
        if (distance > 0) first = buckets;
        distance = std::abs(distance);
    } else {
        distance = std::max<std::int64_t>(-distance, 0);
    }
    const std::uint32_t exact = buckets / 2;
    if (distance < exact) return first + static_cast<std::uint32_t>(distance);
    const auto steps = static_cast<double>(buckets - exact);
    const float ratio = static_cast<float>(distance) / static_cast<float>(std::max(exact, 1U));
    const double place = double{std::log(ratio)} * steps /
                         std::log(double{kDistanceMax} / static_cast<double>(std::max(exact, 1U)));
    const double bucket = std::floor(static_cast<float>(static_cast<double>(exact) + place));
    return first + static_cast<std::uint32_t>(std::min(bucket, static_cast<double>(buckets - 1)));
}

void relative_attention(const RelativeAttention& shape, std::span<const RelativeSpan> spans,
                        const ConstRows& q, const Rows& out, int thread, int threads) {
    Worker worker(shape);
    std::uint64_t counted = 0;  // items of the spans before
    std::uint64_t total = 0;
    const auto tiles = [](const RelativeSpan& span) {
        return std::uint64_t{span.token_count + kTileTokens - 1} / kTileTokens;
    };
    for (const RelativeSpan& span : spans) total += tiles(span) * shape.heads;
    const Share share = share_of(total, 1, thread, threads);
    for (const RelativeSpan& span : spans) {
        const std::uint64_t items = tiles(span) * shape.heads;
        const std::uint64_t begin = share.begin > counted ? share.begin - counted : 0;
        for (std::uint64_t i = begin; i < items && counted + i < share.end; ++i) {
            const auto head = static_cast<std::uint32_t>(i % shape.heads);
            const auto first = static_cast<std::uint32_t>(i / shape.heads) * kTileTokens;
            worker.run(span, head, first, std::min(kTileTokens, span.token_count - first), q, out);
        }
        counted += items;
    }
}

}  // namespace stet::exec
