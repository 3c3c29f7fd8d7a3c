#include "exec/sparse/compressor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace stet::exec {
namespace {

// One plane of a segment: rows of this step, and of the block for what was before.
struct History {
    const ConstRows& rows;
    const Segment& segment;
    const float* base;
    std::uint32_t features;
    std::uint32_t kept;

    const float* row(std::uint64_t position) const {
        if (position >= segment.position) {
            return rows.row(segment.token_begin + (position - segment.position));
        }
        return base + position % kept * features;
    }
};

// Features [begin, end) of a row in the making.
class Row {
  public:
    Row(const History& values, const History& scores, std::uint64_t begin, std::uint64_t end,
        float* out)
        : values_(values), scores_(scores), begin_(begin), end_(end), out_(out) {}

    // The largest score of each feature, then the weighted sums, over tokens [first, last).
    void greatest(std::uint64_t first, std::uint64_t last, std::uint64_t offset, float* top) const {
        for (std::uint64_t position = first; position < last; ++position) {
            const float* score = scores_.row(position) + offset;
            for (std::uint64_t f = begin_; f < end_; ++f) top[f] = std::max(top[f], score[f]);
        }
    }
    void add(std::uint64_t first, std::uint64_t last, std::uint64_t offset, const float* top,
             float* total) const {
        for (std::uint64_t position = first; position < last; ++position) {
            const float* score = scores_.row(position) + offset;
            const float* value = values_.row(position) + offset;
            for (std::uint64_t f = begin_; f < end_; ++f) {
                const float weight = std::exp(score[f] - top[f]);
                total[f] += weight;
                out_[f] += weight * value[f];
            }
        }
    }

  private:
    const History& values_;
    const History& scores_;
    std::uint64_t begin_;
    std::uint64_t end_;
    float* out_;
};

// Features [begin, end) of the row that ends before position `end_position`.
void make_row(const Compressor& compressor, const History& values, const History& scores,
              std::uint64_t end_position, std::uint64_t begin, std::uint64_t end, float* out,
              std::vector<float>& memory) {
    const std::uint64_t size = compressor.size;
    memory.assign(2 * size, 0.0F);
    float* top = memory.data();
    float* total = top + size;
    std::fill(top + begin, top + end, -std::numeric_limits<float>::infinity());
    const std::uint64_t own = end_position - compressor.ratio;
    const std::uint64_t before = own - std::min<std::uint64_t>(own, compressor.ratio);
    const std::uint64_t own_offset = compressor.overlaps ? size : 0;
    const Row row(values, scores, begin, end, out);
    if (compressor.overlaps) row.greatest(before, own, 0, top);
    row.greatest(own, end_position, own_offset, top);
    if (compressor.overlaps) row.add(before, own, 0, top, total);
    row.add(own, end_position, own_offset, top, total);
    for (std::uint64_t f = begin; f < end; ++f) out[f] /= total[f];
}

// Features [begin, end) of the kept rows after the step.
void keep(const History& history, float* block, std::uint64_t begin, std::uint64_t end) {
    const Segment& segment = history.segment;
    const std::uint64_t last = segment.position + segment.token_count;  // exclusive
    for (std::uint64_t r = 0; r < history.kept; ++r) {
        float* to = block + r * history.features;
        // The last position whose place this is.
        const std::uint64_t place = (last + history.kept - 1 - r) / history.kept;
        if (place == 0) {
            std::fill(to + begin, to + end, 0.0F);
            continue;
        }
        const float* from = history.row((place - 1) * history.kept + r);
        std::copy(from + begin, from + end, to + begin);
    }
}

}  // namespace

void compress(const Compressor& compressor, const ConstRows& values, const ConstRows& scores,
              const Rows& out, std::span<const Segment> segments, int thread, int threads) {
    constexpr std::uint64_t kUnit = 16;
    const std::uint32_t features = compressor.features();
    const Share of_row = share_of(compressor.size, kUnit, thread, threads);
    const Share of_all = share_of(features, kUnit, thread, threads);
    std::vector<float> memory;
    for (const Segment& segment : segments) {
        if (segment.token_count == 0) continue;
        const History value{values, segment, base_row(segment, compressor.values_offset_bytes),
                            features, compressor.rows()};
        const History score{scores, segment, base_row(segment, compressor.scores_offset_bytes),
                            features, compressor.rows()};
        for (std::uint32_t token = 0; token < segment.token_count; ++token) {
            float* row = out.row(segment.token_begin + token);
            std::fill(row + of_row.begin, row + of_row.end, 0.0F);
            const std::uint64_t end = segment.position + token + 1;
            if (end % compressor.ratio != 0) continue;
            make_row(compressor, value, score, end, of_row.begin, of_row.end, row, memory);
        }
        keep(value, new_row(segment, compressor.values_offset_bytes), of_all.begin, of_all.end);
        keep(score, new_row(segment, compressor.scores_offset_bytes), of_all.begin, of_all.end);
    }
}

}  // namespace stet::exec
