// Attention over chosen rows, and over rows of several sources in one softmax:
//
//   out[t,h] = sum over sources s, rows j in S_s(t,h) of softmax(scale * q[t,h] . K_s[j]) * V_s[j]
//
// with the sink in the denominator as in exec/attention.h. S is what the query sees of the source
// (the window of the shape for the first, all rows made before for others), or the choice.
//
// Queries that attend to all rows of a single source are computed as in exec/attention.h. For
// others the rows are copied together for each query and the same kernels run over the copy: a
// copied row is used by all heads, so it costs little beside them.
//
// Thread rules and the promise that bits don't depend on the number of threads: as AttentionJob.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/attention.h"
#include "exec/sparse/selection.h"

namespace stet::exec {

struct RowSource {
    PlaneView k, v;                           // rows of kv_heads heads, as in the AttentionShape
    std::uint32_t ratio = 1;                  // row i is made by token ratio * (i + 1) - 1
    const RowSelection* selection = nullptr;  // null: all that is seen
};

class SparseAttentionJob {
  public:
    SparseAttentionJob();
    ~SparseAttentionJob();
    SparseAttentionJob(SparseAttentionJob&&) noexcept;
    SparseAttentionJob& operator=(SparseAttentionJob&&) noexcept;

    // `shape.k` and `shape.v` are not used: sources have their own. `segments` are by source, each
    // with the same sequences; they, `sources` and `scratch` must stay alive until the step is
    // over. Choices are known then, not before.
    void reset(const AttentionShape& shape, std::span<const RowSource> sources,
               std::span<const std::span<const Segment>> segments, int threads,
               AttentionScratch& scratch);
    // As AttentionJob::compute().
    void compute(const float* q, std::uint64_t q_token_stride, const float* sinks, float* out,
                 int thread);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace stet::exec
