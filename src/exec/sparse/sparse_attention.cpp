#include "exec/sparse/sparse_attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"
#include "exec/aligned_floats.h"
#include "exec/attention_plan.h"
#include "exec/kernel.h"

namespace stet::exec {
namespace {

using memory::kPageRows;

// Heads that one item computes from its copy of the rows.
constexpr std::uint32_t kItemHeads = 48;

// One query of one K/V head, or a part of its heads.
struct Item {
    std::uint32_t segment;
    std::uint32_t token;
    std::uint32_t kv_head;
    std::uint32_t head_begin;
    std::uint32_t head_count;
};

}  // namespace

struct SparseAttentionJob::Impl {
    // Rows copied together, in pages of their own.
    struct ThreadMemory {
        std::vector<std::byte> rows;
        std::vector<std::byte*> pages;
        AlignedFloats floats;  // kernel scratch, then the sums
    };

    AttentionShape shape;
    std::span<const RowSource> sources;
    std::vector<std::span<const Segment>> segments;
    std::vector<Segment> dense;
    AttentionJob dense_job;
    Kernels kernels;
    std::uint64_t stride = 0;
    std::uint64_t scratch_floats = 0;
    std::uint64_t k_bytes = 0;  // of one head in a row
    std::uint64_t v_bytes = 0;  // 0: values are the first part of the key
    std::vector<Item> items;
    std::atomic<std::size_t> next_item{0};
    std::vector<ThreadMemory> memory;

    void plan();
    void add_items(std::uint32_t segment, std::uint32_t token);
    void reserve(int threads);
    std::uint64_t copied_rows_max() const;
    std::uint64_t page_bytes() const { return kPageRows * (k_bytes + v_bytes); }
    void copy_row(const RowSource& source, const Segment& segment, std::uint64_t row,
                  std::uint32_t kv_head, std::uint64_t to, ThreadMemory& own) const;
    // Answers the number of rows.
    std::uint64_t gather(const Item& item, ThreadMemory& own) const;
    RowRange seen(std::size_t source, const Segment& segment, std::uint64_t token) const;
    void work(const Item& item, const float* q, std::uint64_t q_token_stride, const float* sinks,
              float* out, ThreadMemory& own);
};

SparseAttentionJob::SparseAttentionJob() : impl_(std::make_unique<Impl>()) {}
SparseAttentionJob::~SparseAttentionJob() = default;
SparseAttentionJob::SparseAttentionJob(SparseAttentionJob&&) noexcept = default;
SparseAttentionJob& SparseAttentionJob::operator=(SparseAttentionJob&&) noexcept = default;

RowRange SparseAttentionJob::Impl::seen(std::size_t source, const Segment& segment,
                                        std::uint64_t token) const {
    if (source == 0) return visible_rows(shape, segment, token);
    return {0, (segment.position + token + 1) / sources[source].ratio};
}

void SparseAttentionJob::Impl::add_items(std::uint32_t segment, std::uint32_t token) {
    const std::uint32_t group = shape.heads / shape.kv_heads;
    for (std::uint32_t kv = 0; kv < shape.kv_heads; ++kv) {
        for (std::uint32_t head = 0; head < group; head += kItemHeads) {
            items.push_back(
                {segment, token, kv, kv * group + head, std::min(kItemHeads, group - head)});
        }
    }
}

// Which queries are dense, and an item for each of the others.
void SparseAttentionJob::Impl::plan() {
    dense.assign(segments[0].begin(), segments[0].end());
    items.clear();
    for (std::uint32_t i = 0; i < dense.size(); ++i) {
        const std::uint32_t count = dense[i].token_count;
        std::uint32_t first = 0;
        if (sources.size() == 1) {
            const RowSelection* selection = sources[0].selection;
            first = selection == nullptr ? count : selection->first_choice(i);
        }
        dense[i].token_count = first;
        for (std::uint32_t token = first; token < count; ++token) add_items(i, token);
    }
}

std::uint64_t SparseAttentionJob::Impl::copied_rows_max() const {
    std::uint64_t sum = 0;
    for (std::size_t s = 0; s < sources.size(); ++s) {
        std::uint64_t most = 0;
        for (const Segment& segment : segments[s]) {
            if (segment.token_count == 0) continue;
            const RowRange last = seen(s, segment, segment.token_count - 1);
            most = std::max(most, last.end - std::min(last.begin, last.end));
        }
        if (const RowSelection* selection = sources[s].selection) {
            const SelectionShape& rule = selection->shape();
            std::uint64_t chosen = std::uint64_t{rule.blocks_max} * rule.block_rows;
            if (rule.stands_for_tokens) chosen = (chosen + 1) * rule.ratio - 1;
            most = std::min(most, chosen);
        }
        sum += most;
    }
    return sum;
}

void SparseAttentionJob::Impl::reserve(int threads) {
    memory.resize(std::max(memory.size(), static_cast<std::size_t>(threads)));
    if (items.empty()) return;
    const std::uint32_t lanes = std::min(kItemHeads, shape.heads / shape.kv_heads);
    Plan plan;
    plan.sums_max = lanes;
    plan.lanes_max = lanes;
    scratch_floats = (kernels.scratch_floats(shape, plan) + 15) / 16 * 16;
    const std::uint64_t pages = memory::page_count(copied_rows_max());
    for (ThreadMemory& own : memory) {
        own.floats.require(scratch_floats + partial_floats(lanes, stride) + 16);
        if (own.rows.size() < pages * page_bytes()) own.rows.resize(pages * page_bytes());
        own.pages.clear();
        for (std::uint64_t i = 0; i < pages; ++i) {
            own.pages.push_back(own.rows.data() + i * page_bytes());
        }
    }
}

void SparseAttentionJob::reset(const AttentionShape& shape, std::span<const RowSource> sources,
                               std::span<const std::span<const Segment>> segments, int threads,
                               AttentionScratch& scratch) {
    STET_CHECK(!sources.empty() && sources.size() == segments.size());
    Impl& job = *impl_;
    job.shape = shape;
    job.shape.k = sources[0].k;
    job.shape.v = sources[0].v;
    job.sources = sources;
    job.segments.assign(segments.begin(), segments.end());
    job.kernels = kernels();
    job.stride = sum_stride(shape, job.kernels.vector_lanes);
    const bool is_shared = sources[0].k.offset_bytes == sources[0].v.offset_bytes;
    job.k_bytes = sources[0].k.row_bytes / shape.kv_heads;
    job.v_bytes = is_shared ? 0 : sources[0].v.row_bytes / shape.kv_heads;
    for (const RowSource& source : sources) {
        STET_CHECK(source.k.row_bytes == sources[0].k.row_bytes);
        STET_CHECK(source.k.type == sources[0].k.type);
    }
    job.plan();
    job.dense_job.reset(job.shape, job.dense, threads, scratch);
    job.reserve(threads);
    job.next_item.store(0, std::memory_order_release);
}

void SparseAttentionJob::Impl::copy_row(const RowSource& source, const Segment& segment,
                                        std::uint64_t row, std::uint32_t kv_head, std::uint64_t to,
                                        ThreadMemory& own) const {
    const std::uint64_t index = row - segment.first_row;
    const std::byte* page = segment.pages[index / kPageRows];
    std::byte* out = own.pages[to / kPageRows];
    const std::uint64_t place = to % kPageRows;
    const std::uint64_t from = index % kPageRows;
    std::memcpy(out + place * k_bytes,
                page + source.k.offset_bytes + from * source.k.row_bytes + kv_head * k_bytes,
                k_bytes);
    if (v_bytes == 0) return;
    std::memcpy(out + kPageRows * k_bytes + place * v_bytes,
                page + source.v.offset_bytes + from * source.v.row_bytes + kv_head * v_bytes,
                v_bytes);
}

std::uint64_t SparseAttentionJob::Impl::gather(const Item& item, ThreadMemory& own) const {
    std::uint64_t count = 0;
    for (std::size_t s = 0; s < sources.size(); ++s) {
        const RowSource& source = sources[s];
        const Segment& segment = segments[s][item.segment];
        const RowRange rows = seen(s, segment, item.token);
        const auto copy = [&](std::uint64_t begin, std::uint64_t end) {
            for (std::uint64_t row = begin; row < end; ++row) {
                copy_row(source, segment, row, item.kv_head, count++, own);
            }
        };
        const RowSelection* selection = source.selection;
        if (selection == nullptr || item.token < selection->first_choice(item.segment)) {
            copy(rows.begin, rows.end);
            continue;
        }
        const SelectionShape& rule = selection->shape();
        const std::uint32_t chooser = rule.choosers == 1 ? 0 : item.kv_head;
        const std::uint64_t row_tokens = rule.stands_for_tokens ? rule.ratio : 1;
        const std::uint64_t block_rows = rule.block_rows * row_tokens;
        for (const std::uint64_t block : selection->blocks(item.segment, item.token, chooser)) {
            const std::uint64_t begin = block * block_rows;
            copy(begin, std::min(begin + block_rows, rows.end));
        }
        if (rule.stands_for_tokens) {
            copy(selection->visible_rows(segment.position + item.token) * rule.ratio, rows.end);
        }
    }
    return count;
}

void SparseAttentionJob::Impl::work(const Item& item, const float* q, std::uint64_t q_token_stride,
                                    const float* sinks, float* out, ThreadMemory& own) {
    const std::uint64_t rows = gather(item, own);
    AttentionShape part = shape;
    part.heads = item.head_count;
    part.kv_heads = 1;
    part.window_kind = Window::none;
    part.k = {0, k_bytes, shape.k.type};
    part.v = v_bytes == 0 ? part.k : PlaneView{kPageRows * k_bytes, v_bytes, shape.v.type};
    part.v_head_stride = 0;
    Segment segment;
    segment.pages = own.pages.data();
    segment.position = rows - 1;
    segment.token_count = 1;
    WorkUnit unit;
    unit.lane_count = item.head_count;
    unit.kv_count = 1;
    unit.chunk_count = 1;
    unit.tiled = std::uint64_t{item.head_count} * 4 >= std::uint64_t{kernels.vector_lanes} * 3;
    const std::uint64_t column = std::uint64_t{segments[0][item.segment].token_begin} + item.token;
    ItemTask task;
    task.shape = &part;
    task.segment = &segment;
    task.unit = &unit;
    task.rows = {0, rows};
    task.q = q + column * q_token_stride + std::uint64_t{item.head_begin} * shape.key_size;
    task.q_token_stride = q_token_stride;
    task.scratch = own.floats.data();
    task.sums = own.floats.data() + scratch_floats;
    task.max = task.sums + unit.sums() * stride;
    task.weight = task.max + unit.sums();
    task.sum_stride = stride;
    (unit.tiled ? kernels.attend_tile : kernels.attend_rows)(task);
    MergeTask join;
    join.shape = &part;
    join.segment = &segment;
    join.unit = &unit;
    join.partials = task.sums;
    join.sum_stride = stride;
    join.sinks = sinks == nullptr ? nullptr : sinks + item.head_begin;
    join.out = out + (column * shape.heads + item.head_begin) * shape.value_size;
    kernels.merge(join);
}

void SparseAttentionJob::compute(const float* q, std::uint64_t q_token_stride, const float* sinks,
                                 float* out, int thread) {
    Impl& job = *impl_;
    job.dense_job.compute(q, q_token_stride, sinks, out, thread);
    Impl::ThreadMemory& own = job.memory[static_cast<std::size_t>(thread)];
    for (;;) {
        const std::size_t index = job.next_item.fetch_add(1, std::memory_order_relaxed);
        if (index >= job.items.size()) return;
        job.work(job.items[index], q, q_token_stride, sinks, out, own);
    }
}

}  // namespace stet::exec
