#include "model/mixers/head_parts.h"

#include "model/step_builder.h"

namespace stet::model {

ggml_tensor* of_each_head(ggml_context* context, ggml_tensor* x, std::int64_t offset,
                          std::int64_t size) {
    return ggml_view_3d(context, x, size, x->ne[1], x->ne[2], x->nb[1], x->nb[2],
                        static_cast<std::size_t>(offset) * sizeof(float));
}

namespace {

// x with its last elements replaced.
ggml_tensor* with_last(ggml_context* context, ggml_tensor* x, ggml_tensor* last) {
    const std::int64_t plain = x->ne[0] - last->ne[0];
    return plain == 0 ? last : ggml_concat(context, of_each_head(context, x, 0, plain), last, 0);
}

ggml_tensor* last_part(ggml_context* context, ggml_tensor* x, const Rope& rope) {
    const std::int64_t size = rope.dimensions;
    return of_each_head(context, x, x->ne[0] - size, size);
}

}  // namespace

ggml_tensor* rotate_last(StepBuilder& builder, ggml_tensor* x, const Rope& rope,
                         ggml_tensor* positions) {
    ggml_tensor* part = last_part(builder.context(), x, rope);
    return with_last(
        builder.context(), x,
        positions == nullptr ? builder.rotate(part, rope) : builder.rotate(part, rope, positions));
}

ggml_tensor* unrotate_last(StepBuilder& builder, ggml_tensor* x, const Rope& rope) {
    ggml_tensor* part = last_part(builder.context(), x, rope);
    return with_last(builder.context(), x, builder.unrotate(part, rope));
}

}  // namespace stet::model
