// Mixture of experts (arXiv 2101.03961, 2401.04088; groups, shared experts and selection bias:
// DeepSeek-V3, arXiv 2412.19437; chunk experts: GroveMoE, arXiv 2508.07785).
//
//   p = gating(router x);  S = the `used` experts of highest choice(p) + selection bias
//   y = scale * sum over S of (p_e or p_e / sum p) * expert_e(x)  + shared(x)
//
// A dense feed-forward may run beside it.
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

// What a feed-forward may read, all f32 [width, tokens].
struct FfnInput {
    ggml_tensor* normed;       // norm(x)
    ggml_tensor* x;            // after the mixer
    ggml_tensor* layer_input;  // before the mixer's norm
};

// A group of experts is worth its two best.
inline constexpr int kGroupScoreExperts = 2;

struct MoePlan {
    std::uint32_t experts = 0;
    std::uint32_t used = 0;
    std::uint32_t groups = 0;  // > 1: only the experts of the best groups_used groups
    std::uint32_t groups_used = 0;
    std::uint32_t size = 0;  // of an expert
    // Routed experts read W_down x and add W_up norm(y), in so many features; 0: x itself.
    std::uint32_t latent = 0;
    DensePlan shared;  // size 0: no shared expert
    Gating gating = Gating::softmax;
    std::uint32_t token_table = 0;  // tokens whose experts are looked up; 0: chosen by scores
    ExpertChoice choice = ExpertChoice::probability;
    bool normalize = false;      // weights divided by their sum
    float scale = 1.0F;          // of the weights
    bool weight_inputs = false;  // weights multiply the experts' input, not their result
    RouterInput router_input = RouterInput::ffn_input;
    ActivationPlan activation;
    float output_scale = 1.0F;  // of routed and shared experts together
    DenseBranch dense_branch = DenseBranch::none;
    DensePlan dense;
    // A second pass over the first one's result: one expert for each `chunk` of them. 0: none.
    std::uint32_t chunk = 0;
    std::uint32_t chunk_size = 0;  // of such an expert
    float chunk_scale = 0.0F;      // of what it adds
};

struct MoeWeights {
    Linear router;                          // [width, experts]
    ggml_tensor* router_scale = nullptr;    // f32 [width], of what the router sees
    ggml_tensor* selection_bias = nullptr;  // f32 [experts]
    ggml_tensor* of_tokens = nullptr;       // i32 [used, vocabulary]: the experts of each token
    Experts gate, up, down;                 // no gate: plain
    bool is_fused = false;                  // `up` holds gate and up, gate first
    Experts chunk_gate, chunk_up, chunk_down;
    Linear latent_down, latent_up;
    Norm latent_norm;  // or none
    DenseWeights shared;
    ggml_tensor* shared_gate = nullptr;  // [width]: the shared expert times sigmoid(w . x)
    Norm norm;                           // of the experts' own input
    Norm post_norm;                      // of their result
    DenseWeights dense;
    Norm dense_post_norm;
};

Result<MoePlan> resolve_moe(const ResolveContext& context, std::size_t layer);
Result<MoeWeights> load(Tensors& tensors, std::size_t layer, const MoePlan& plan);
ggml_tensor* build(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                   const FfnInput& in);
// Experts alone, with a router that may have seen something else than they do.
ggml_tensor* build_routed(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                          ggml_tensor* x, ggml_tensor* router_logits);

}  // namespace stet::model
