// Chooses the rows that queries attend to, by scores of small keys of their own.
//
// Lightning indexer (DeepSeek-V3.2): one choice for all attention heads,
//   score(row) = sum over indexer heads h of weight[h] * max(0, q[h] . k[row])
// Block indexer (MiniMax-M3): each K/V head g chooses blocks of rows with an indexer head of its
// own,
//   score(block) = max over its visible rows of q[g] . k[row]
//
// The blocks of highest score are chosen. Of equal scores at the edge those stay that
// std::partial_sort keeps, which is what the reference does.
//
// Works in two nodes of a graph: score(), then choose(). Few choices are scored in pieces by all
// threads in score(); of many, each thread scores and chooses some in choose(), so that scores need
// no memory for all of them. Results don't depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/aligned_floats.h"
#include "exec/attention.h"
#include "exec/kernel.h"
#include "exec/sparse/selection.h"

namespace stet::exec {

struct IndexerShape {
    std::uint32_t heads = 0;     // of q; with several choosers as many as those
    std::uint32_t key_size = 0;  // elements of q's heads and of a row
    PlaneView k;
};

struct IndexerInput {
    const float* q = nullptr;  // [tokens][heads][key_size], q_stride floats from token to token
    std::uint64_t q_stride = 0;
    const float* weights = nullptr;  // [tokens][heads]; null: block indexer
    std::uint64_t weights_stride = 0;
};

class RowIndexer {
  public:
    RowIndexer(const IndexerShape& shape, RowSelection& selection)
        : shape_(shape), selection_(selection) {}

    // One thread, before a step. `segments` must stay alive until the step is over.
    void reset(std::span<const Segment> segments, int threads);
    // Each called by all threads, thread = 0 .. threads-1; choose() after all have left score().
    void score(const IndexerInput& in, int thread, int threads);
    void choose(const IndexerInput& in, int thread, int threads);

  private:
    struct ThreadMemory {
        AlignedFloats rows;    // of a page, then transposed
        AlignedFloats scores;  // of one choice
        std::vector<std::uint32_t> order;
    };

    bool is_split() const;
    std::uint64_t row_stride() const { return (shape_.key_size + 15) / 16 * 16; }
    // Scores of choice `index` over blocks that begin in rows [begin, end) ->
    // scores[chooser][blocks].
    void score_rows(const IndexerInput& in, std::size_t index, std::uint64_t begin,
                    std::uint64_t end, float* scores, ThreadMemory& memory) const;
    void pick(std::size_t index, const float* scores, ThreadMemory& memory);

    IndexerShape shape_;
    RowSelection& selection_;
    std::span<const Segment> segments_;
    Kernels kernels_;
    std::vector<ThreadMemory> memory_;
    std::vector<std::uint64_t> shared_begin_;  // of each choice, floats
    AlignedFloats shared_;                     // scores of all choices, if split
};

}  // namespace stet::exec
