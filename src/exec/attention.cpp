#include "exec/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "exec/aligned_floats.h"
#include "exec/attention_plan.h"
#include "exec/deterministic.h"
#include "exec/kernel.h"

namespace stet::exec {
namespace {

// Slopes in base 2, so that they apply to scores in base 2.
void alibi_slopes(const AttentionShape& shape, std::vector<float>& slopes) {
    slopes.clear();
    if (shape.max_alibi_bias <= 0.0F) {
        return;
    }
    const auto near_heads = static_cast<float>(std::bit_floor(shape.heads));
    const float near = std::exp2(-shape.max_alibi_bias / near_heads);
    const float between = std::exp2(-shape.max_alibi_bias / 2.0F / near_heads);
    for (std::uint32_t head = 0; head < shape.heads; ++head) {
        const bool extra = static_cast<float>(head) >= near_heads;
        const auto power =
            static_cast<float>(extra ? 2 * (head - std::bit_floor(shape.heads)) + 1 : head + 1);
        slopes.push_back(std::pow(extra ? between : near, power) * kLog2E);
    }
}

// Each token as a segment of its own.
void split(std::span<const Segment> segments, std::vector<Segment>& single) {
    single.clear();
    for (const Segment& segment : segments) {
        for (std::uint32_t i = 0; i < segment.token_count; ++i) {
            Segment one = segment;
            one.position += i;
            one.token_begin += i;
            one.token_count = 1;
            single.push_back(one);
        }
    }
}

}  // namespace

struct AttentionScratch::Impl {
    std::vector<AlignedFloats> of_thread;  // kernel scratch, then one unit's sums
    AlignedFloats partials;
};

AttentionScratch::AttentionScratch() : impl_(std::make_unique<Impl>()) {}
AttentionScratch::~AttentionScratch() = default;

struct AttentionJob::Impl {
    AttentionShape shape;
    std::span<const Segment> segments;
    std::vector<Segment> single;  // deterministic: the segments' tokens one by one
    Kernels kernels;
    Plan plan;
    std::vector<float> slopes;
    AttentionScratch::Impl* scratch = nullptr;
    std::uint64_t scratch_sums = 0;
    std::unique_ptr<std::atomic<std::uint32_t>[]> chunks_left;  // of each unit
    std::size_t chunks_left_size = 0;
    std::atomic<std::size_t> next_item{0};
    std::uint64_t stride = 0;

    void work(const WorkItem& item, const float* q, std::uint64_t q_token_stride,
              const float* sinks, float* out, float* memory);
};

AttentionJob::AttentionJob() : impl_(std::make_unique<Impl>()) {}
AttentionJob::~AttentionJob() = default;
AttentionJob::AttentionJob(AttentionJob&&) noexcept = default;
AttentionJob& AttentionJob::operator=(AttentionJob&&) noexcept = default;

void AttentionJob::reset(const AttentionShape& shape, std::span<const Segment> segments,
                         int threads, AttentionScratch& scratch) {
    STET_CHECK(threads > 0);
    STET_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.heads > 0);
    STET_CHECK(shape.key_size > 0 && shape.value_size > 0);
    Impl& job = *impl_;
    job.shape = shape;
    job.segments = segments;
    if (is_deterministic() && shape.causal) {
        split(segments, job.single);
        job.segments = job.single;
    }
    job.kernels = kernels();
    job.plan.build(shape, job.segments, job.kernels.vector_lanes);
    job.stride = sum_stride(shape, job.kernels.vector_lanes);
    alibi_slopes(shape, job.slopes);
    // A multiple of a cache line, for the sums that follow.
    job.scratch_sums = (job.kernels.scratch_floats(shape, job.plan) + 15) / 16 * 16;
    job.scratch = scratch.impl_.get();
    if (job.scratch->of_thread.size() < static_cast<std::size_t>(threads)) {
        job.scratch->of_thread.resize(static_cast<std::size_t>(threads));
    }
    for (AlignedFloats& memory : job.scratch->of_thread) {
        memory.require(job.scratch_sums + partial_floats(job.plan.sums_max, job.stride) + 16);
    }
    job.scratch->partials.require(job.plan.partial_floats);
    if (job.chunks_left_size < job.plan.units.size()) {
        job.chunks_left_size = job.plan.units.size();
        job.chunks_left = std::make_unique<std::atomic<std::uint32_t>[]>(job.chunks_left_size);
    }
    for (std::size_t i = 0; i < job.plan.units.size(); ++i) {
        job.chunks_left[i].store(job.plan.units[i].chunk_count, std::memory_order_relaxed);
    }
    job.next_item.store(0, std::memory_order_release);
}

void AttentionJob::Impl::work(const WorkItem& item, const float* q, std::uint64_t q_token_stride,
                              const float* sinks, float* out, float* memory) {
    const WorkUnit& unit = plan.units[item.unit];
    const std::uint64_t chunk_floats = partial_floats(unit.sums(), stride);
    float* unit_partials = unit.chunk_count > 1 ? scratch->partials.data() + unit.partial_begin
                                                : memory + scratch_sums;
    ItemTask task;
    task.shape = &shape;
    task.segment = &segments[unit.segment];
    task.unit = &unit;
    task.rows = item.rows;
    task.q = q;
    task.q_token_stride = q_token_stride;
    task.slopes = slopes.empty() ? nullptr : slopes.data();
    task.scratch = memory;
    task.sums = unit_partials + item.chunk * chunk_floats;
    task.max = task.sums + unit.sums() * stride;
    task.weight = task.max + unit.sums();
    task.sum_stride = stride;
    (unit.tiled ? kernels.attend_tile : kernels.attend_rows)(task);
    // The last to finish sees the sums of the others: each count down publishes them.
    if (chunks_left[item.unit].fetch_sub(1, std::memory_order_acq_rel) != 1) {
        return;
    }
    MergeTask join;
    join.shape = &shape;
    join.segment = task.segment;
    join.unit = &unit;
    join.partials = unit_partials;
    join.sum_stride = stride;
    join.sinks = sinks;
    join.out = out;
    kernels.merge(join);
}

void AttentionJob::compute(const float* q, std::uint64_t q_token_stride, const float* sinks,
                           float* out, int thread) {
    Impl& job = *impl_;
    float* memory = job.scratch->of_thread[static_cast<std::size_t>(thread)].data();
    for (;;) {
        const std::size_t index = job.next_item.fetch_add(1, std::memory_order_relaxed);
        if (index >= job.plan.items.size()) {
            return;
        }
        job.work(job.plan.items[index], q, q_token_stride, sinks, out, memory);
    }
}

}  // namespace stet::exec
