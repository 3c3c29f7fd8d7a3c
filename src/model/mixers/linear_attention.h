// What mixers with a matrix a head share (exec/recurrent/linear_attention.h).
#pragma once

#include "exec/recurrent/linear_attention.h"
#include "model/schema_builder.h"

struct ggml_tensor;

namespace stet::model {

class StepBuilder;

// f32 [size, heads, tokens] each, contiguous in the first dimension alone; decay [1 or size, heads,
// tokens], beta [1, heads, tokens].
struct DeltaInputs {
    ggml_tensor* q = nullptr;
    ggml_tensor* k = nullptr;
    ggml_tensor* v = nullptr;
    ggml_tensor* decay = nullptr;
    ggml_tensor* beta = nullptr;
};

// The gated delta rule over `state` -> f32 [size, heads, tokens]. The shape's offset is set here.
ggml_tensor* build_delta_rule(StepBuilder& builder, exec::LinearAttentionShape shape,
                              const PlaneSlot& state, const DeltaInputs& inputs);

// A tensor [size, heads, tokens] as the kernel sees it.
exec::HeadRows head_rows_of(const ggml_tensor* tensor);

// x / |x| of each head of x f32 [size, heads, tokens], with epsilon under the root.
ggml_tensor* unit_length(StepBuilder& builder, ggml_tensor* x, float epsilon);

// Heads of `size` elements from feature `offset` of x f32 [features, tokens] -> [size, heads,
// tokens], a strided view.
ggml_tensor* view_heads(StepBuilder& builder, ggml_tensor* x, std::int64_t offset,
                        std::int64_t size, std::int64_t heads);

}  // namespace stet::model
