#include "exec/sparse/indexer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "exec/recurrent/parts.h"

namespace stet::exec {
namespace {

using memory::kPageRows;

// Steps with at most so many choices split each of them among the threads.
constexpr std::size_t kSplitChoices = 16;
// Rows of a piece: whole pages.
constexpr std::uint64_t kPieceRows = 32 * kPageRows;
// What the reference adds to the scores of local blocks.
constexpr float kLocalScore = 1e30F;

// out[r] = q . k[r] for the rows of a page; k is [key_size][kPageRows].
STET_VECTOR_CLONES void dot_page(const float* q, const float* k, std::uint32_t key_size,
                                 float* out) {
    float sums[kPageRows] = {};
    for (std::uint32_t e = 0; e < key_size; ++e) {
        const float factor = q[e];
        const float* row = k + std::uint64_t{e} * kPageRows;
        for (std::uint32_t r = 0; r < kPageRows; ++r) sums[r] += factor * row[r];
    }
    for (std::uint32_t r = 0; r < kPageRows; ++r) out[r] = sums[r];
}

STET_VECTOR_CLONES void add_rectified(const float* dots, float weight, float* sums) {
    for (std::uint32_t r = 0; r < kPageRows; ++r) {
        sums[r] += weight * (dots[r] > 0.0F ? dots[r] : 0.0F);
    }
}

// rows [kPageRows][stride] -> [key_size][kPageRows].
STET_VECTOR_CLONES void transpose_page(const float* rows, std::uint64_t stride,
                                       std::uint32_t key_size, float* out) {
    for (std::uint32_t e = 0; e < key_size; ++e) {
        for (std::uint32_t r = 0; r < kPageRows; ++r) out[e * kPageRows + r] = rows[r * stride + e];
    }
}

}  // namespace

bool RowIndexer::is_split() const {
    return selection_.choices().size() <= kSplitChoices;
}

void RowIndexer::reset(std::span<const Segment> segments, int threads) {
    const SelectionShape& rule = selection_.shape();
    STET_CHECK(rule.choosers == 1 || rule.choosers == shape_.heads);
    selection_.reset(segments);
    segments_ = segments;
    kernels_ = kernels();
    memory_.resize(std::max(memory_.size(), static_cast<std::size_t>(threads)));
    std::uint64_t largest = 0;
    std::uint64_t sum = 0;
    shared_begin_.clear();
    for (const RowSelection::Choice& choice : selection_.choices()) {
        const std::uint64_t position = segments[choice.segment].position + choice.token;
        const std::uint64_t floats = rule.choosers * selection_.visible_blocks(position);
        shared_begin_.push_back(sum);
        sum += floats;
        largest = std::max(largest, floats);
    }
    if (largest == 0) return;
    for (ThreadMemory& memory : memory_) {
        memory.rows.require(kPageRows * (row_stride() + shape_.key_size + 2));
        if (!is_split()) memory.scores.require(largest);
    }
    if (is_split()) shared_.require(sum);
}

void RowIndexer::score_rows(const IndexerInput& in, std::size_t index, std::uint64_t begin,
                            std::uint64_t end, float* scores, ThreadMemory& memory) const {
    const SelectionShape& rule = selection_.shape();
    const RowSelection::Choice& choice = selection_.choices()[index];
    const Segment& segment = segments_[choice.segment];
    const std::uint64_t column = std::uint64_t{segment.token_begin} + choice.token;
    const std::uint64_t blocks = selection_.visible_blocks(segment.position + choice.token);
    const float* q = in.q + column * in.q_stride;
    float* rows = memory.rows.data();
    float* keys = rows + kPageRows * row_stride();
    float* dots = keys + kPageRows * shape_.key_size;
    float* sums = dots + kPageRows;
    for (std::uint64_t first = begin; first < end; first += kPageRows) {
        const std::uint64_t count = std::min<std::uint64_t>(kPageRows, end - first);
        const std::byte* page = segment.pages[(first - segment.first_row) / kPageRows];
        kernels_.load_rows(page + shape_.k.offset_bytes, shape_.k.row_bytes, shape_.k.type, count,
                           shape_.key_size, rows, row_stride());
        transpose_page(rows, row_stride(), shape_.key_size, keys);
        std::fill_n(sums, kPageRows, 0.0F);
        for (std::uint32_t head = 0; head < shape_.heads; ++head) {
            dot_page(q + std::uint64_t{head} * shape_.key_size, keys, shape_.key_size, dots);
            if (in.weights != nullptr) {
                add_rectified(dots, in.weights[column * in.weights_stride + head], sums);
                continue;
            }
            float* of_head = scores + head * blocks;
            for (std::uint64_t r = 0; r < count; ++r) {
                float& best = of_head[(first + r) / rule.block_rows];
                if ((first + r) % rule.block_rows == 0) best = dots[r];
                best = std::max(best, dots[r]);
            }
        }
        if (in.weights != nullptr) std::copy_n(sums, count, scores + first);
    }
}

void RowIndexer::pick(std::size_t index, const float* scores, ThreadMemory& memory) {
    const SelectionShape& rule = selection_.shape();
    const RowSelection::Choice& choice = selection_.choices()[index];
    const std::uint64_t position = segments_[choice.segment].position + choice.token;
    const std::uint64_t count = selection_.visible_blocks(position);
    memory.order.resize(count);
    for (std::uint32_t chooser = 0; chooser < rule.choosers; ++chooser) {
        const float* its = scores + chooser * count;
        const std::uint64_t local = count - std::min<std::uint64_t>(count, rule.local_blocks);
        const auto score = [&](std::uint32_t block) {
            return block >= local ? its[block] + kLocalScore : its[block];
        };
        std::iota(memory.order.begin(), memory.order.end(), 0U);
        const auto chosen_end = memory.order.begin() + rule.blocks_max;
        std::partial_sort(memory.order.begin(), chosen_end, memory.order.end(),
                          [&](std::uint32_t a, std::uint32_t b) { return score(a) > score(b); });
        const auto out = selection_.blocks(choice.segment, choice.token, chooser);
        std::copy(memory.order.begin(), chosen_end, out.begin());
        std::sort(out.begin(), out.end());
    }
}

void RowIndexer::score(const IndexerInput& in, int thread, int threads) {
    if (!is_split()) return;
    // Pieces begin at whole blocks and at whole pages.
    const std::uint64_t unit = std::lcm(std::uint64_t{selection_.shape().block_rows}, kPieceRows);
    std::uint64_t piece = 0;
    for (std::size_t i = 0; i < selection_.choices().size(); ++i) {
        const RowSelection::Choice& choice = selection_.choices()[i];
        const std::uint64_t rows =
            selection_.visible_rows(segments_[choice.segment].position + choice.token);
        for (std::uint64_t begin = 0; begin < rows; begin += unit, ++piece) {
            if (piece % static_cast<std::uint64_t>(threads) != static_cast<std::uint64_t>(thread)) {
                continue;
            }
            score_rows(in, i, begin, std::min(rows, begin + unit),
                       shared_.data() + shared_begin_[i],
                       memory_[static_cast<std::size_t>(thread)]);
        }
    }
}

void RowIndexer::choose(const IndexerInput& in, int thread, int threads) {
    ThreadMemory& memory = memory_[static_cast<std::size_t>(thread)];
    const auto step = static_cast<std::size_t>(threads);
    for (auto i = static_cast<std::size_t>(thread); i < selection_.choices().size(); i += step) {
        if (is_split()) {
            pick(i, shared_.data() + shared_begin_[i], memory);
            continue;
        }
        const RowSelection::Choice& choice = selection_.choices()[i];
        const std::uint64_t rows =
            selection_.visible_rows(segments_[choice.segment].position + choice.token);
        score_rows(in, i, 0, rows, memory.scores.data(), memory);
        pick(i, memory.scores.data(), memory);
    }
}

}  // namespace stet::exec
