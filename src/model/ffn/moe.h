// Mixture of experts (arXiv 2101.03961, 2401.04088; groups, shared experts and selection bias:
// DeepSeek-V3, arXiv 2412.19437).
//
//   p = gating(router x);  S = the `used` experts of highest p + selection bias
//   y = scale * sum over S of (p_e or p_e / sum p) * expert_e(x)  + shared(x)
#pragma once

#include <cstdint>
#include <optional>

#include "model/architectures.h"
#include "model/ffn/dense.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct MoePlan {
    std::uint32_t experts = 0;
    std::uint32_t used = 0;
    std::uint32_t groups = 0;  // > 1: only the experts of the best groups_used groups
    std::uint32_t groups_used = 0;
    std::uint32_t size = 0;  // of an expert
    DensePlan shared;        // size 0: no shared expert
    Gating gating = Gating::softmax;
    bool normalize = false;         // weights divided by their sum
    float scale = 1.0F;             // of the weights
    bool select_by_logits = false;  // before gating (Llama 4)
    bool weight_inputs = false;  // weights multiply the experts' input, not their result (Llama 4)
    Activation activation = Activation::silu;
    float clamp = 0.0F;
};

struct MoeWeights {
    Linear router;                          // [width, experts]
    ggml_tensor* selection_bias = nullptr;  // f32 [experts]
    Experts gate, up, down;                 // no gate: plain
    bool is_fused = false;                  // `up` holds gate and up, gate first
    DenseWeights shared;
    ggml_tensor* shared_gate = nullptr;  // [width]: the shared expert times sigmoid(w . x)
};

Result<MoePlan> resolve_moe(const ResolveContext& context, std::size_t layer);
Result<MoeWeights> load(Tensors& tensors, std::size_t layer, const MoePlan& plan);
ggml_tensor* build(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                   ggml_tensor* x);
// The same with a router that sees something else than the experts do.
ggml_tensor* build_routed(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                          ggml_tensor* x, ggml_tensor* router_logits);

}  // namespace stet::model
