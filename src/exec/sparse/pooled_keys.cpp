#include "exec/sparse/pooled_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/aligned_floats.h"
#include "exec/kernel.h"

namespace stet::exec {
namespace {

using memory::kPageRows;

class Pool {
  public:
    explicit Pool(const PooledKeys& shape)
        : shape_(shape), stride_((shape.size + kAlign - 1) / kAlign * kAlign) {
        memory_.require(2 * shape.ratio * stride_ + 2 * stride_);
    }

    // The key of the `ratio` tokens before position `end`.
    void make(const Segment& segment, std::uint64_t end, float* out) {
        float* keys = memory_.data();
        float* gates = keys + shape_.ratio * stride_;
        load(segment, end, shape_.key, keys);
        if (!shape_.gate) return mean(keys, out);
        load(segment, end, *shape_.gate, gates);
        weigh(keys, gates, out);
    }

  private:
    static constexpr std::uint64_t kAlign = 16;  // floats, as load_rows wants them

    void load(const Segment& segment, std::uint64_t end, const PlaneView& plane, float* to) const {
        for (std::uint64_t i = 0; i < shape_.ratio; ++i) {
            const std::uint64_t row = end - shape_.ratio + i - segment.first_row;
            const std::byte* page = segment.pages[row / kPageRows];
            kernels_.load_rows(page + plane.offset_bytes + row % kPageRows * plane.row_bytes,
                               plane.row_bytes, plane.type, 1, shape_.size, to + i * stride_,
                               stride_);
        }
    }
    void mean(const float* keys, float* out) const {
        std::fill_n(out, shape_.size, 0.0F);
        const float factor = 1.0F / static_cast<float>(shape_.ratio);
        for (std::uint64_t i = 0; i < shape_.ratio; ++i) {
            const float* key = keys + i * stride_;
            for (std::uint64_t f = 0; f < shape_.size; ++f) out[f] += key[f];
        }
        for (std::uint64_t f = 0; f < shape_.size; ++f) out[f] *= factor;
    }
    void weigh(const float* keys, float* gates, float* out) {
        float* top = memory_.data() + 2 * shape_.ratio * stride_;
        float* total = top + stride_;
        std::fill_n(top, shape_.size, -std::numeric_limits<float>::infinity());
        std::fill_n(total, shape_.size, 0.0F);
        std::fill_n(out, shape_.size, 0.0F);
        for (std::uint64_t i = 0; i < shape_.ratio; ++i) {
            float* gate = gates + i * stride_;
            const float* bias = shape_.bias + i * shape_.size;
            for (std::uint64_t f = 0; f < shape_.size; ++f) {
                gate[f] += bias[f];
                top[f] = std::max(top[f], gate[f]);
            }
        }
        for (std::uint64_t i = 0; i < shape_.ratio; ++i) {
            const float* gate = gates + i * stride_;
            const float* key = keys + i * stride_;
            for (std::uint64_t f = 0; f < shape_.size; ++f) {
                const float weight = std::exp(gate[f] - top[f]);
                total[f] += weight;
                out[f] += weight * key[f];
            }
        }
        for (std::uint64_t f = 0; f < shape_.size; ++f) out[f] /= total[f];
    }

    const PooledKeys& shape_;
    const std::uint64_t stride_;
    const Kernels kernels_ = kernels();
    AlignedFloats memory_;  // keys, gates, then the softmax
};

}  // namespace

void pool_keys(const PooledKeys& shape, const Rows& out, std::span<const Segment> segments,
               int thread, int threads) {
    Pool pool(shape);
    for (const Segment& segment : segments) {
        const Share share = share_of(segment.token_count, 1, thread, threads);
        for (std::uint64_t token = share.begin; token < share.end; ++token) {
            float* row = out.row(segment.token_begin + token);
            const std::uint64_t end = segment.position + token + 1;
            if (end % shape.ratio == 0) {
                pool.make(segment, end, row);
            } else {
                std::fill_n(row, shape.size, 0.0F);
            }
        }
    }
}

}  // namespace stet::exec
