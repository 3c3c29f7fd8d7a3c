// The attention operator over pages, and the operator that appends rows to pages. No ggml here:
// exec/ops.h wraps both as graph nodes.
//
//   for each query token t of a segment, for each head h (kv head g = h / (heads / kv_heads)):
//     s[j]   = scale * dot(q[t,h], K[j,g])         over the visible rows j of the segment's pages
//     s[j]   = softcap * tanh(s[j] / softcap)      if softcap > 0
//     s[j]  += -slope(h) * (position - j)          if max_alibi_bias > 0
//     out[t,h] = sum_j softmax(s)[j] * V[j,g]      with exp(sink[h]) in the denominator if sinks
//   Attention: Vaswani et al. 2017 (arXiv 1706.03762); ALiBi: arXiv 2108.12409; streaming softmax:
//   Milakov & Gimelshein (arXiv 1805.02867).
//
// Visible rows of a query at position p: causal j <= p; Window::sliding also j > p - window;
// Window::chunked also j >= floor(p / window) * window. Limits are computed, pages outside are
// never touched. Rows are numbered by position.
//
// The split into work items and the order of every sum depend on positions and counts alone, never
// on the number of threads: the same call gives the same bits on 1 thread and on 8.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/schema.h"

namespace stet::exec {

enum class Window : std::uint8_t { none, sliding, chunked };

// One plane of a page: where row r (0..kPageRows-1) of a page starts.
struct PlaneView {
    std::uint64_t offset_bytes = 0;  // of the plane in a page
    std::uint64_t row_bytes = 0;
    memory::ElementType type = memory::ElementType::f16;
};

struct AttentionShape {
    std::uint32_t heads = 0;
    std::uint32_t kv_heads = 0;    // divides heads
    std::uint32_t key_size = 0;    // elements of a head in K and q
    std::uint32_t value_size = 0;  // elements of a head in V and out
    PlaneView k;                   // row = kv_heads * key_size elements
    PlaneView v;                   // MLA: the same plane as k, of which the first value_size count
    std::uint32_t v_head_stride = 0;  // elements between heads of a V row (value_size; MLA: 0)
    float scale = 1.0F;
    float softcap = 0.0F;         // 0: none
    float max_alibi_bias = 0.0F;  // 0: none
    bool causal = true;
    Window window_kind = Window::none;
    std::uint32_t window = 0;  // tokens
};

// One sequence's part of a step, as one group of the schema sees it.
struct Segment {
    // Paged groups. In a group of lifetime every(r), row i is made by token r * (i + 1) - 1.
    std::byte* const* pages = nullptr;  // pages[i] holds rows [first_row + i * kPageRows, ...)
    std::uint64_t first_row = 0;        // a multiple of kPageRows
    // Any.
    std::uint64_t position = 0;     // of the segment's first token, = tokens before this step
    std::uint32_t token_begin = 0;  // first column of the batch that is this segment's
    std::uint32_t token_count = 0;
    // Fixed groups.
    const std::byte* base_block = nullptr;  // before the step; null at position 0: all zeros
    std::byte* new_block = nullptr;         // filled by the step, whole
};

// Working memory of attention calls that run one after the other, such as the nodes of one graph.
// It grows to the largest need and is kept.
class AttentionScratch {
  public:
    AttentionScratch();
    ~AttentionScratch();
    AttentionScratch(const AttentionScratch&) = delete;
    AttentionScratch& operator=(const AttentionScratch&) = delete;

  private:
    friend class AttentionJob;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Shared state of one attention call while threads work on it; one object for each attention node
// of a graph, reset() by one thread before each step. Buffers grow and are kept.
class AttentionJob {
  public:
    AttentionJob();
    ~AttentionJob();
    AttentionJob(AttentionJob&&) noexcept;
    AttentionJob& operator=(AttentionJob&&) noexcept;

    // Splits the work. `segments` and `scratch` must stay alive until the last compute() returns.
    void reset(const AttentionShape& shape, std::span<const Segment> segments, int threads,
               AttentionScratch& scratch);
    // Called once by each of the `threads` threads, thread = 0 .. threads-1. Returns when this
    // thread finds no more work; the result is complete when all have returned.
    //   q    f32 [tokens][heads][key_size]     q_token_stride: floats between tokens
    //   out  f32 [tokens][heads][value_size]   contiguous
    //   sinks f32 [heads] or nullptr
    void compute(const float* q, std::uint64_t q_token_stride, const float* sinks, float* out,
                 int thread);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Converts rows to the plane's type and writes them at the segments' new positions.
//   rows f32 [tokens][elements], row_stride floats apart; plane.row_bytes holds `elements`.
// With a ratio only tokens at the end of `ratio` have a row, number position / ratio.
// Thread `thread` of `threads` writes its share of the tokens.
void append_rows(const float* rows, std::uint64_t row_stride, std::uint32_t elements,
                 const PlaneView& plane, std::span<const Segment> segments, int thread, int threads,
                 std::uint32_t ratio = 1);

// "avx512", "avx2", "portable": the path that runs on this machine.
const char* kernel_path();

}  // namespace stet::exec
