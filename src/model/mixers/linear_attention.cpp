#include "model/mixers/linear_attention.h"

#include <array>
#include <cmath>

#include "model/step_builder.h"

namespace stet::model {

ggml_tensor* build_delta_rule(StepBuilder& builder, exec::LinearAttentionShape shape,
                              const PlaneSlot& state, const DeltaInputs& inputs) {
    shape.delta_rule = true;
    shape.state_offset_bytes = builder.plane(state).offset_bytes;
    const std::array all = {inputs.q, inputs.k, inputs.v, inputs.decay, inputs.beta};
    return builder.graph().state_op(
        {shape.size, shape.heads, builder.tokens(), 1}, all, state.group,
        [shape](const exec::StateOpContext& op) {
            const auto input = [&](int i) { return head_rows_of(op.out->src[i]); };
            exec::linear_attention(shape, {input(0), input(1), input(2), input(3), input(4)},
                                   op.segments, static_cast<float*>(op.out->data), op.thread,
                                   op.threads);
        });
}

exec::HeadRows head_rows_of(const ggml_tensor* tensor) {
    return {static_cast<const float*>(tensor->data), tensor->nb[2] / sizeof(float),
            tensor->nb[1] / sizeof(float)};
}

ggml_tensor* unit_length(StepBuilder& builder, ggml_tensor* x, float epsilon) {
    // x / sqrt(sum x^2 + e) is rms_norm(x) with e / n, over sqrt(n).
    const auto size = static_cast<float>(x->ne[0]);
    ggml_context* context = builder.context();
    x = ggml_rms_norm(context, x, epsilon / size);
    return ggml_scale(context, x, 1.0F / std::sqrt(size));
}

ggml_tensor* view_heads(StepBuilder& builder, ggml_tensor* x, std::int64_t offset,
                        std::int64_t size, std::int64_t heads) {
    return ggml_view_3d(builder.context(), x, size, heads, x->ne[1],
                        static_cast<std::size_t>(size) * sizeof(float), x->nb[1],
                        static_cast<std::size_t>(offset) * sizeof(float));
}

}  // namespace stet::model
