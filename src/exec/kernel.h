// The vector code of attention, compiled once for each instruction set and chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/attention.h"
#include "exec/attention_plan.h"

namespace stet::exec {

// Scores are kept in base 2 (scaled by log2(e)), so that a weight is exp2(score - largest score).
inline constexpr float kLog2E = 1.44269504088896340736F;
// The largest score of no rows: finite, so that differences stay defined.
inline constexpr float kNoScore = -1.0e30F;

// One item for one thread. The results of sum i (K/V head kv_begin + i / lane_count, lane
// lane_begin + i % lane_count) over the item's rows:
//   max[i], weight[i] = sum_j exp2(s[j] - max), sums[i * sum_stride ..] = sum_j exp2(..) * V[j]
struct ItemTask {
    const AttentionShape* shape = nullptr;
    const Segment* segment = nullptr;
    const WorkUnit* unit = nullptr;
    RowRange rows;
    const float* q = nullptr;
    std::uint64_t q_token_stride = 0;
    const float* slopes = nullptr;  // [heads], in base 2; null without ALiBi
    float* scratch = nullptr;       // scratch_floats(), 64-byte aligned
    float* max = nullptr;
    float* weight = nullptr;
    float* sums = nullptr;  // 64-byte aligned
    std::uint64_t sum_stride = 0;
};

// Joins a unit's chunks and writes the unit's part of `out`.
struct MergeTask {
    const AttentionShape* shape = nullptr;
    const Segment* segment = nullptr;
    const WorkUnit* unit = nullptr;
    const float* partials = nullptr;  // of chunk 0; see partial_floats()
    std::uint64_t sum_stride = 0;
    const float* sinks = nullptr;  // [heads] or null
    float* out = nullptr;
};

struct Kernels {
    std::uint32_t vector_lanes = 0;
    const char* path = "";
    std::uint64_t (*scratch_floats)(const AttentionShape& shape, const Plan& plan) = nullptr;
    void (*attend_rows)(const ItemTask& task) = nullptr;
    void (*attend_tile)(const ItemTask& task) = nullptr;
    void (*merge)(const MergeTask& task) = nullptr;
    // `count` rows of a page's plane to f32, `to_stride` floats apart (a multiple of 16; `to` is
    // 64-byte aligned, and what is between rows is overwritten too).
    void (*load_rows)(const std::byte* from, std::uint64_t row_bytes, memory::ElementType type,
                      std::uint64_t count, std::uint32_t elements, float* to,
                      std::uint64_t to_stride) = nullptr;
    // One row of f32 to `type`; `to` has the bytes of such a row.
    void (*store_row)(const float* from, std::uint32_t elements, memory::ElementType type,
                      std::byte* to) = nullptr;
};

// Those of the best instruction set of this machine, or of the one forced by a test.
Kernels kernels();

// For tests and benchmarks: every path that this machine can run, and the choice of one ("" = the
// best again). Not while another thread is in this module.
std::vector<std::string> kernel_targets();
void force_kernel_target(const std::string& name);

}  // namespace stet::exec
