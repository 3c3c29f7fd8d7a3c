#include "model/mixers/head_parts.h"

#include "model/step_builder.h"

namespace stet::model {

ggml_tensor* of_each_head(ggml_context* context, ggml_tensor* x, std::int64_t offset,
                          std::int64_t size) {
    return ggml_view_3d(context, x, size, x->ne[1], x->ne[2], x->nb[1], x->nb[2],
                        static_cast<std::size_t>(offset) * sizeof(float));
}

ggml_tensor* rotate_last(StepBuilder& builder, ggml_tensor* x, const Rope& rope) {
    const std::int64_t plain = x->ne[0] - std::int64_t{rope.dimensions};
    ggml_context* context = builder.context();
    ggml_tensor* rotated = builder.rotate(of_each_head(context, x, plain, rope.dimensions), rope);
    return plain == 0 ? rotated
                      : ggml_concat(context, of_each_head(context, x, 0, plain), rotated, 0);
}

}  // namespace stet::model
