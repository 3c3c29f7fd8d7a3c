// Attention over depth (Kimi K3): instead of the residual stream alone, branches read a mix of it
// and of earlier states that were put aside.
//
//   mix(x, w) = sum_i p_i s_i over the kept states s and x;  p = softmax_i(w . rms_norm(s_i))
//   before layer l, if l is a multiple of the block size: keep x
//   y = mixer(norm(mix(x, w_attn)));  x = y where x was just kept, else x + y
//   x = x + ffn(norm(mix(x, w_ffn)));  at the end, x = mix(x, w_out)
//
// (The first layer's mixer reads x: nothing is kept before it.)
#pragma once

#include "model/config.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

class StepBuilder;

struct ResidualMixWeights {
    ggml_tensor* mixer = nullptr;  // f32 [width]
    ggml_tensor* ffn = nullptr;    // f32 [width]
};

Result<ResidualMixWeights> load_residual_mix(Tensors& tensors, const Config& config,
                                             std::size_t layer);

// The embedding x [width, tokens] through all layers, [width, outputs]. Null when the step only
// fills the state; `last_with_rows` is the last layer that has any.
ggml_tensor* build_residual_mix(StepBuilder& builder, ggml_tensor* x, std::size_t last_with_rows);

}  // namespace stet::model
