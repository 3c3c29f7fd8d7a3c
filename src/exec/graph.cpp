#include "exec/graph.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/try.h"

namespace stet::exec {
namespace {

void fill(ggml_tensor* tensor, std::span<const std::int32_t> values) {
    if (tensor == nullptr) return;
    STET_CHECK(static_cast<std::size_t>(ggml_nelements(tensor)) == values.size());
    std::memcpy(tensor->data, values.data(), values.size_bytes());
}

}  // namespace

Graph::Graph(std::size_t nodes_max)
    : context_(ggml_init({nodes_max * ggml_tensor_overhead() +
                              ggml_graph_overhead_custom(nodes_max, false),
                          nullptr, true})),
      graph_(ggml_new_graph_custom(context_.get(), nodes_max, false)) {}

Graph::~Graph() = default;

ggml_tensor* Graph::append_rows(ggml_tensor* rows, const PlaneView& plane, std::size_t group) {
    AppendNode& node = appends_.emplace_back(AppendNode{plane, group, &step_});
    return ggml_custom_inplace(context_.get(), rows, nullptr, 0, run_append, GGML_N_TASKS_MAX, &node);
}

ggml_tensor* Graph::attention(ggml_tensor* q, const AttentionShape& shape, std::size_t group,
                              std::span<ggml_tensor* const> after, ggml_tensor* sinks) {
    AttentionNode& node = attentions_.emplace_back();
    node.shape = shape;
    node.group = group;
    node.has_sinks = sinks != nullptr;
    std::vector<ggml_tensor*> args = {q};
    if (sinks != nullptr) args.push_back(sinks);
    args.insert(args.end(), after.begin(), after.end());
    return ggml_custom_4d(context_.get(), GGML_TYPE_F32,
                          static_cast<std::int64_t>(shape.value_size) * shape.heads, q->ne[2], 1, 1,
                          args.data(), static_cast<int>(args.size()), run_attention,
                          GGML_N_TASKS_MAX, &node);
}

void Graph::run_append(ggml_tensor* out, int thread, int threads, void* data) {
    const auto& node = *static_cast<const AppendNode*>(data);
    const ggml_tensor* rows = out->src[0];
    exec::append_rows(static_cast<const float*>(rows->data), rows->nb[1] / sizeof(float),
                      static_cast<std::uint32_t>(rows->ne[0]), node.plane,
                      (*node.step)->segments[node.group], thread, threads);
}

void Graph::run_attention(ggml_tensor* out, int thread, int /*threads*/, void* data) {
    auto& node = *static_cast<AttentionNode*>(data);
    const ggml_tensor* q = out->src[0];
    const ggml_tensor* sinks = node.has_sinks ? out->src[1] : nullptr;
    node.job.compute(static_cast<const float*>(q->data), q->nb[2] / sizeof(float),
                     sinks != nullptr ? static_cast<const float*>(sinks->data) : nullptr,
                     static_cast<float*>(out->data), thread);
}

Status Graph::allocate(Backend& backend) {
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
    fill(tokens, step.tokens);
    fill(positions, step.positions);
    fill(output_rows, step.output_rows);
    if (query_scales != nullptr) {
        auto* scales = static_cast<float*>(query_scales->data);
        for (std::size_t i = 0; i < step.positions.size(); ++i) {
            const auto steps = static_cast<std::uint32_t>(step.positions[i]) / query_scale_rule.length;
            scales[i] = 1.0F + query_scale_rule.scale * std::log1p(static_cast<float>(steps));
        }
    }
    for (AttentionNode& node : attentions_) {
        node.job.reset(node.shape, step.segments[node.group], backend.threads(), scratch_);
    }
    step_ = &step;
    const Status status = backend.compute(graph_);
    step_ = nullptr;
    STET_TRY(status);
    if (logits == nullptr) return std::span<const float>();
    return std::span(static_cast<const float*>(logits->data),
                     static_cast<std::size_t>(ggml_nelements(logits)));
}

}  // namespace stet::exec
