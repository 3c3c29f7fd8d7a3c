#include "exec/graph.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/try.h"

namespace stet::exec {

using memory::page_count;

Graph::Graph(std::size_t nodes_max)
    : context_(ggml_init(
          {nodes_max * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes_max, false),
           nullptr, true})),
      graph_(ggml_new_graph_custom(context_.get(), nodes_max, false)) {}

Graph::~Graph() = default;

ggml_tensor* Graph::input(ggml_type type, Shape shape, Fill fill) {
    ggml_tensor* tensor =
        ggml_new_tensor_4d(context_.get(), type, shape[0], shape[1], shape[2], shape[3]);
    ggml_set_input(tensor);
    inputs_.push_back({tensor, std::move(fill)});
    return tensor;
}

ggml_tensor* Graph::append_rows(ggml_tensor* rows, const PlaneView& plane, std::size_t group,
                                std::uint32_t ratio) {
    AppendNode& node = appends_.emplace_back(AppendNode{plane, group, ratio, this});
    return ggml_custom_inplace(context_.get(), rows, nullptr, 0, run_append, GGML_N_TASKS_MAX,
                               &node);
}

ggml_tensor* Graph::attention(ggml_tensor* q, const AttentionShape& shape, std::size_t group,
                              std::span<ggml_tensor* const> after, ggml_tensor* sinks) {
    AttentionNode& node = attentions_.emplace_back();
    node.shape = shape;
    node.group = group;
    node.has_sinks = sinks != nullptr;
    return attention_node(q, shape, after, sinks, run_attention, &node);
}

ggml_tensor* Graph::attention_node(ggml_tensor* q, const AttentionShape& shape,
                                   std::span<ggml_tensor* const> after, ggml_tensor* sinks,
                                   ggml_custom_op_t compute, void* node) {
    std::vector<ggml_tensor*> args = {q};
    if (sinks != nullptr) args.push_back(sinks);
    args.insert(args.end(), after.begin(), after.end());
    return ggml_custom_4d(context_.get(), GGML_TYPE_F32,
                          static_cast<std::int64_t>(shape.value_size) * shape.heads, q->ne[2], 1, 1,
                          args.data(), static_cast<int>(args.size()), compute, GGML_N_TASKS_MAX,
                          node);
}

ggml_tensor* Graph::state_op(Shape shape, std::span<ggml_tensor* const> inputs, std::size_t group,
                             StateOp op) {
    StateNode& node = state_ops_.emplace_back(StateNode{std::move(op), group, this});
    std::vector<ggml_tensor*> args(inputs.begin(), inputs.end());
    return ggml_custom_4d(context_.get(), GGML_TYPE_F32, shape[0], shape[1], shape[2], shape[3],
                          args.data(), static_cast<int>(args.size()), run_state_op,
                          GGML_N_TASKS_MAX, &node);
}

std::span<const Segment> Graph::segments(std::size_t group) const {
    return group == kStepGroup ? std::span<const Segment>(step_segments_)
                               : std::span<const Segment>(step_->segments[group]);
}

void Graph::run_append(ggml_tensor* out, int thread, int threads, void* data) {
    const auto& node = *static_cast<const AppendNode*>(data);
    const ggml_tensor* rows = out->src[0];
    exec::append_rows(static_cast<const float*>(rows->data), rows->nb[1] / sizeof(float),
                      static_cast<std::uint32_t>(rows->ne[0]), node.plane,
                      node.graph->segments(node.group), thread, threads, node.ratio);
}

void Graph::run_attention(ggml_tensor* out, int thread, int /*threads*/, void* data) {
    compute_attention(*static_cast<AttentionNode*>(data), out, thread);
}

void Graph::run_state_op(ggml_tensor* out, int thread, int threads, void* data) {
    const auto& node = *static_cast<const StateNode*>(data);
    node.op({out, node.graph->segments(node.group), *node.graph->step_, thread, threads});
}

void Graph::reserve_step_rows(const memory::Group& group, std::uint32_t tokens) {
    // Each sequence begins a page; there are at most as many sequences as tokens.
    const std::uint64_t pages = tokens;
    step_page_bytes_ = group.page_bytes();
    step_pages_.reserve(pages);
    step_segments_.reserve(tokens);
}

// Gives each sequence its run of pages; rows are numbered from 0.
void Graph::place_step_rows(const Step& step) {
    step_pages_.clear();
    step_segments_.clear();
    std::uint64_t pages = 0;
    for (const Segment& sequence : step.sequences) pages += page_count(sequence.token_count);
    step_rows_.resize(std::max(step_rows_.size(), pages * step_page_bytes_));
    for (std::uint64_t i = 0; i < pages; ++i) {
        step_pages_.push_back(step_rows_.data() + i * step_page_bytes_);
    }
    std::byte* const* next = step_pages_.data();
    for (const Segment& sequence : step.sequences) {
        Segment segment;
        segment.pages = next;
        segment.token_begin = sequence.token_begin;
        segment.token_count = sequence.token_count;
        step_segments_.push_back(segment);
        next += page_count(sequence.token_count);
    }
}

Status Graph::allocate(Backend& backend, bool is_adaptive) {
    if (is_adaptive) thread_choice_.emplace(backend.threads());
    allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend.handle())));
    if (!allocator_ || !ggml_gallocr_alloc_graph(allocator_.get(), graph_)) {
        return Status(Code::resource_exhausted, "no memory for the buffers of a step");
    }
    return {};
}

std::size_t Graph::buffer_bytes() const {
    return allocator_ ? ggml_gallocr_get_buffer_size(allocator_.get(), 0) : 0;
}

Result<std::span<const float>> Graph::run(Backend& backend, const Step& step) {
    for (const Input& input : inputs_) {
        if (input.tensor->data != nullptr)
            input.fill(step, input.tensor);  // null: no node reads it
    }
    if (step_page_bytes_ != 0) place_step_rows(step);
    step_ = &step;
    const int threads = thread_choice_ ? thread_choice_->next() : backend.threads();
    const auto start = std::chrono::steady_clock::now();
    for (AttentionNode& node : attentions_) {
        node.job.reset(node.shape, segments(node.group), threads, scratch_);
    }
    reset_sparse(threads);
    const Status status = backend.compute(graph_, threads);
    step_ = nullptr;
    if (thread_choice_) {
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        thread_choice_->done(taken.count());
    }
    STET_TRY(status);
    if (logits == nullptr) return std::span<const float>();
    return std::span(static_cast<const float*>(logits->data),
                     static_cast<std::size_t>(ggml_nelements(logits)));
}

}  // namespace stet::exec
