// Dense feed-forward: down(act(gate x) * up x) (gated, arXiv 2002.05202), or down(act(up x)).
#pragma once

#include <cstdint>

#include "model/ffn/activation.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct DensePlan {
    std::uint32_t size = 0;
    ActivationPlan activation;
    bool gated = true;     // a gate is required, apart from `up` or in it
    bool bias = true;      // biases apply
    bool is_bare = false;  // no matrices: act(x)
};

struct DenseWeights {
    Linear gate, up, down;            // no gate: plain
    bool is_fused = false;            // `up` holds gate and up, gate first
    ggml_tensor* divisors = nullptr;  // f32 [size], of what is activated
    Norm sub_norm;                    // before down
};

// The dense feed-forward of a layer; size 0: it has none.
Result<DensePlan> resolve_dense(const ResolveContext& context, std::size_t layer);
// `suffix` of the tensors' names: "" (ffn_up) or "_shexp" (shared expert).
Result<DenseWeights> load_dense(Tensors& tensors, std::size_t layer, const DensePlan& plan,
                                const char* suffix);
ggml_tensor* build(StepBuilder& builder, const DensePlan& plan, const DenseWeights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
