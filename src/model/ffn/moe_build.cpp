#include <algorithm>
#include <cmath>
#include <limits>

#include "model/ffn/moe.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// The least sum of weights that is divided by: the smallest normal f16.
constexpr float kWeightSumMin = 6.103515625e-5F;
constexpr float kHalfRoot = 0.70710678F;

// p of every expert, [experts, tokens].
ggml_tensor* gated(ggml_context* context, Gating gating, ggml_tensor* logits) {
    switch (gating) {
        case Gating::softmax:
            return ggml_soft_max(context, logits);
        case Gating::sigmoid:
            return ggml_sigmoid(context, logits);
        case Gating::softmax_of_selected:
            return logits;
        case Gating::sqrt_softplus:
            return ggml_sqrt(context, ggml_softplus(context, logits));
    }
    return logits;
}

// Scores of experts outside of the best groups become -inf.
ggml_tensor* only_best_groups(ggml_context* context, const MoePlan& plan, ggml_tensor* scores) {
    const std::int64_t tokens = scores->ne[1];
    const std::int64_t groups = plan.groups;
    const std::int64_t members = plan.experts / plan.groups;
    ggml_tensor* grouped = ggml_reshape_3d(context, scores, members, groups, tokens);
    ggml_tensor* best = ggml_argsort_top_k(context, grouped, kGroupScoreExperts);
    best =
        ggml_get_rows(context, ggml_reshape_4d(context, grouped, 1, members, groups, tokens), best);
    ggml_tensor* group_scores =
        ggml_sum_rows(context, ggml_reshape_3d(context, best, kGroupScoreExperts, groups, tokens));
    ggml_tensor* chosen =
        ggml_argsort_top_k(context, ggml_reshape_2d(context, group_scores, groups, tokens),
                           static_cast<int>(plan.groups_used));
    ggml_tensor* kept = ggml_get_rows(context, grouped, chosen);
    ggml_tensor* masked =
        ggml_set_rows(context, ggml_fill(context, grouped, -kInfinity), kept, chosen);
    return ggml_reshape_2d(context, masked, plan.experts, tokens);
}

struct Routed {
    ggml_tensor* experts;  // i32 [used, tokens]
    ggml_tensor* weights;  // f32 [1, used, tokens]
};

// The experts that a table has for each of x's tokens, or null.
ggml_tensor* looked_up(StepBuilder& builder, const MoeWeights& weights, const ggml_tensor* x) {
    if (weights.of_tokens == nullptr) return nullptr;
    ggml_context* context = builder.context();
    ggml_tensor* ids = builder.token_ids();
    if (x->ne[1] != builder.tokens()) {
        ids = ggml_get_rows(context, ggml_reshape_2d(context, ids, 1, builder.tokens()),
                            builder.output_rows());
        ids = ggml_reshape_1d(context, ids, x->ne[1]);
    }
    return ggml_get_rows(context, weights.of_tokens, ids);
}

// `used` of the experts, or those that are `given`; with chunk > 1 they stand for themselves and
// those beside them.
Routed route(ggml_context* context, const MoePlan& plan, const MoeWeights& weights,
             ggml_tensor* logits, std::int64_t used, std::uint32_t chunk, ggml_tensor* given) {
    const std::int64_t tokens = logits->ne[1];
    ggml_tensor* p = gated(context, plan.gating, logits);
    ggml_tensor* scores = p;
    if (plan.choice == ExpertChoice::logit) scores = logits;
    if (plan.choice == ExpertChoice::sigmoid) scores = ggml_sigmoid(context, logits);
    if (weights.selection_bias != nullptr) {
        scores = ggml_add(context, scores, weights.selection_bias);
    }
    if (plan.groups > 1) scores = only_best_groups(context, plan, scores);
    Routed routed{};
    routed.experts =
        given != nullptr ? given : ggml_argsort_top_k(context, scores, static_cast<int>(used));
    if (chunk > 1) {
        ggml_tensor* numbers = ggml_cast(context, routed.experts, GGML_TYPE_F32);
        numbers = ggml_scale(context, numbers, 1.0F / static_cast<float>(chunk));
        routed.experts = ggml_cast(context, numbers, GGML_TYPE_I32);
    }
    ggml_tensor* chosen = ggml_get_rows(
        context, ggml_reshape_3d(context, p, 1, plan.experts, tokens), routed.experts);
    chosen = ggml_reshape_2d(context, chosen, used, tokens);
    if (plan.gating == Gating::softmax_of_selected) chosen = ggml_soft_max(context, chosen);
    if (plan.normalize) {
        ggml_tensor* sum = ggml_sum_rows(context, chosen);
        chosen = ggml_div(context, chosen, ggml_clamp(context, sum, kWeightSumMin, kInfinity));
    }
    if (plan.scale != 1.0F) chosen = ggml_scale(context, chosen, plan.scale);
    routed.weights = ggml_reshape_3d(context, chosen, 1, used, tokens);
    return routed;
}

ggml_tensor* expert_product(ggml_context* context, const Experts& experts, ggml_tensor* x,
                            ggml_tensor* chosen) {
    ggml_tensor* y = ggml_mul_mat_id(context, experts.weight, x, chosen);
    if (experts.scale != nullptr) {
        const std::int64_t count = experts.scale->ne[0];
        ggml_tensor* scales = ggml_reshape_3d(context, experts.scale, 1, count, 1);
        scales = ggml_repeat_4d(context, scales, 1, count, chosen->ne[1], 1);
        y = ggml_mul(context, y, ggml_get_rows(context, scales, chosen));
    }
    return experts.bias != nullptr ? ggml_add_id(context, y, experts.bias, chosen) : y;
}

struct ExpertMatrices {
    const Experts& gate;
    const Experts& up;
    const Experts& down;
    std::uint32_t size;
    bool is_fused;
};

// x [width, 1 or used, tokens] -> [width, used, tokens].
ggml_tensor* run_experts(ggml_context* context, const MoePlan& plan, const ExpertMatrices& experts,
                         ggml_tensor* x, ggml_tensor* chosen) {
    ggml_tensor* up = expert_product(context, experts.up, x, chosen);
    ggml_tensor* gate = experts.gate ? expert_product(context, experts.gate, x, chosen) : nullptr;
    if (experts.is_fused) {
        const auto half = [&](std::size_t which) {
            return ggml_view_3d(context, up, experts.size, up->ne[1], up->ne[2], up->nb[1],
                                up->nb[2], which * experts.size * sizeof(float));
        };
        gate = half(0);
        up = half(1);
    }
    ggml_tensor* hidden = activate(context, plan.activation, gate, up);
    return expert_product(context, experts.down, hidden, chosen);
}

// Sum over the second dimension, one expert after the other.
ggml_tensor* sum_experts(ggml_context* context, ggml_tensor* y) {
    const auto expert = [&](std::int64_t i) {
        return ggml_view_2d(context, y, y->ne[0], y->ne[2], y->nb[2],
                            static_cast<std::size_t>(i) * y->nb[1]);
    };
    ggml_tensor* sum = expert(0);
    for (std::int64_t i = 1; i < y->ne[1]; ++i) sum = ggml_add(context, sum, expert(i));
    return y->ne[1] == 1 ? ggml_cont(context, sum) : sum;
}

// x [width, tokens] -> [width, tokens].
ggml_tensor* weighted_experts(ggml_context* context, const MoePlan& plan,
                              const ExpertMatrices& experts, ggml_tensor* x, const Routed& routed) {
    const std::int64_t width = x->ne[0];
    const std::int64_t tokens = x->ne[1];
    ggml_tensor* in = ggml_reshape_3d(context, x, width, 1, tokens);
    if (plan.weight_inputs) {
        in = ggml_repeat_4d(context, in, width, routed.experts->ne[0], tokens, 1);
        in = ggml_mul(context, in, routed.weights);
    }
    ggml_tensor* y = run_experts(context, plan, experts, in, routed.experts);
    if (!plan.weight_inputs) y = ggml_mul(context, y, routed.weights);
    return sum_experts(context, y);
}

// What the chunk experts make of the first pass's result is added to it.
ggml_tensor* add_chunk_experts(ggml_context* context, const MoePlan& plan,
                               const MoeWeights& weights, ggml_tensor* y, ggml_tensor* logits) {
    const std::uint32_t used = std::min(plan.used, plan.experts / plan.chunk);
    const Routed routed = route(context, plan, weights, logits, used, plan.chunk, nullptr);
    const ExpertMatrices experts{weights.chunk_gate, weights.chunk_up, weights.chunk_down,
                                 plan.chunk_size, false};
    ggml_tensor* more = weighted_experts(context, plan, experts, y, routed);
    return ggml_add(context, y, ggml_scale(context, more, plan.chunk_scale));
}

ggml_tensor* router_logits(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                           const FfnInput& in) {
    ggml_tensor* seen = in.normed;
    if (plan.router_input == RouterInput::layer_input) seen = in.layer_input;
    if (plan.router_input == RouterInput::scaled_norm) {
        const auto width = static_cast<float>(in.x->ne[0]);
        seen = ggml_scale(builder.context(), builder.rms_norm(in.x, {}), 1.0F / std::sqrt(width));
        seen = ggml_mul(builder.context(), seen, weights.router_scale);
    }
    return builder.product(seen, weights.router);
}

// What the experts see.
ggml_tensor* expert_input(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                          const FfnInput& in) {
    switch (plan.dense_branch) {
        case DenseBranch::residual:
            return builder.norm(in.layer_input, weights.norm);
        case DenseBranch::three_norms:
            return builder.norm(in.x, weights.norm);
        case DenseBranch::none:
        case DenseBranch::average:
            break;
    }
    return in.normed;
}

}  // namespace

ggml_tensor* build_routed(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                          ggml_tensor* x, ggml_tensor* router_logits) {
    ggml_context* context = builder.context();
    const Routed routed =
        route(context, plan, weights, router_logits, plan.used, 1, looked_up(builder, weights, x));
    const ExpertMatrices experts{weights.gate, weights.up, weights.down, plan.size,
                                 weights.is_fused};
    ggml_tensor* seen = plan.latent != 0 ? builder.product(x, weights.latent_down) : x;
    ggml_tensor* sum = weighted_experts(context, plan, experts, seen, routed);
    if (plan.chunk != 0) sum = add_chunk_experts(context, plan, weights, sum, router_logits);
    if (plan.latent != 0) {
        if (weights.latent_norm) sum = builder.norm(sum, weights.latent_norm);
        sum = builder.product(sum, weights.latent_up);
    }
    if (plan.shared.size != 0) {
        ggml_tensor* shared = build(builder, plan.shared, weights.shared, x);
        if (weights.shared_gate != nullptr) {
            ggml_tensor* gate = ggml_mul_mat(
                context, ggml_reshape_2d(context, weights.shared_gate, x->ne[0], 1), x);
            shared = ggml_mul(context, shared, ggml_sigmoid(context, gate));
        }
        sum = ggml_add(context, sum, shared);
        if (plan.output_scale != 1.0F) sum = ggml_scale(context, sum, plan.output_scale);
    }
    return sum;
}

ggml_tensor* build(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                   const FfnInput& in) {
    ggml_context* context = builder.context();
    ggml_tensor* x = expert_input(builder, plan, weights, in);
    const FfnInput seen{plan.dense_branch == DenseBranch::residual ? x : in.normed, in.x,
                        in.layer_input};
    ggml_tensor* logits = router_logits(builder, plan, weights, seen);
    ggml_tensor* y = build_routed(builder, plan, weights, x, logits);
    if (plan.dense_branch == DenseBranch::none) return y;
    ggml_tensor* dense = build(builder, plan.dense, weights.dense, in.normed);
    if (plan.dense_branch == DenseBranch::three_norms) {
        dense = builder.norm(dense, weights.dense_post_norm);
        y = builder.norm(y, weights.post_norm);
    }
    y = ggml_add(context, dense, y);
    return plan.dense_branch == DenseBranch::average ? ggml_scale(context, y, kHalfRoot) : y;
}

}  // namespace stet::model
