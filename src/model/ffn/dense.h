// Dense feed-forward: down(act(gate x) * up x) (gated, arXiv 2002.05202), or down(act(up x)).
#pragma once

#include <cstdint>

#include "model/architectures.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct DensePlan {
    std::uint32_t size = 0;
    Activation activation = Activation::silu;
    float clamp = 0.0F;  // gated silu: gate below clamp, |up| below clamp; 0: not clamped
};

struct DenseWeights {
    Linear gate, up, down;  // no gate: plain
    bool is_fused = false;  // `up` holds gate and up, gate first
};

// `suffix` of the tensors' names: "" (ffn_up) or "_shexp" (shared expert).
Result<DenseWeights> load_dense(Tensors& tensors, std::size_t layer, const DensePlan& plan,
                                const char* suffix);
ggml_tensor* build(StepBuilder& builder, const DensePlan& plan, const DenseWeights& weights,
                   ggml_tensor* x);

// act(gate) * up, or act(up) without a gate. May be computed in place of up.
ggml_tensor* activate(ggml_context* context, Activation activation, float clamp, ggml_tensor* gate,
                      ggml_tensor* up);

}  // namespace stet::model
