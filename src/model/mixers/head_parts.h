// Parts of heads. x is f32 [size, heads, tokens] with any strides between heads.
#pragma once

#include <ggml.h>

#include <cstdint>

#include "model/rope.h"

namespace stet::model {

class StepBuilder;

// Elements [offset, offset + size) of each head, a view.
ggml_tensor* of_each_head(ggml_context* context, ggml_tensor* x, std::int64_t offset,
                          std::int64_t size);
// The last rope.dimensions of each head rotated, the others as they are; contiguous.
// `positions`: i32 [tokens], null: the tokens'.
ggml_tensor* rotate_last(StepBuilder& builder, ggml_tensor* x, const Rope& rope,
                         ggml_tensor* positions = nullptr);
ggml_tensor* unrotate_last(StepBuilder& builder, ggml_tensor* x, const Rope& rope);

}  // namespace stet::model
