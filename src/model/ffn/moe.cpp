#include "model/ffn/moe.h"

#include <fmt/format.h>

#include <limits>

#include "base/try.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// The least sum of weights that is divided by: the smallest normal f16.
constexpr float kWeightSumMin = 6.103515625e-5F;
// A group of experts is worth its two best.
constexpr int kGroupScoreExperts = 2;

Result<Gating> resolve_gating(const Keys& keys, Gating otherwise) {
    STET_ASSIGN(const auto gating, keys.uint_or("expert_gating_func", 0, 0, 4));
    return gating == 0 ? otherwise : static_cast<Gating>(gating);
}

Result<std::uint32_t> expert_size(const ResolveContext& context, const MoePlan& plan,
                                  std::size_t layer) {
    const Keys& keys = context.keys;
    if (keys.has("expert_feed_forward_length")) {
        STET_ASSIGN(const auto sizes,
                    keys.per_layer("expert_feed_forward_length", context.layers, {}, kWidthMax));
        if (sizes[layer] != 0) return sizes[layer];
    }
    // Older files: the layer's size, which some count over all used experts. The tensor tells.
    const gguf::Tensor* down =
        keys.file().find_tensor(fmt::format("blk.{}.ffn_down_exps.weight", layer));
    if (down != nullptr && down->shape[0] <= kWidthMax)
        return static_cast<std::uint32_t>(down->shape[0]);
    STET_ASSIGN(const auto sizes,
                keys.per_layer("feed_forward_length", context.layers, {}, kWidthMax));
    return sizes[layer] / plan.used;
}

// The size of the shared expert is that of its tensor: the keys for it differ by architecture.
std::uint32_t shared_size(const Keys& keys, std::size_t layer) {
    const gguf::Tensor* down =
        keys.file().find_tensor(fmt::format("blk.{}.ffn_down_shexp.weight", layer));
    return down == nullptr || down->shape[0] > kWidthMax
               ? 0
               : static_cast<std::uint32_t>(down->shape[0]);
}

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

Routed route(ggml_context* context, const MoePlan& plan, const MoeWeights& weights,
             ggml_tensor* logits) {
    const std::int64_t tokens = logits->ne[1];
    ggml_tensor* p = gated(context, plan.gating, logits);
    ggml_tensor* scores = plan.select_by_logits ? logits : p;
    if (weights.selection_bias != nullptr)
        scores = ggml_add(context, scores, weights.selection_bias);
    if (plan.groups > 1) scores = only_best_groups(context, plan, scores);
    Routed routed{};
    routed.experts = ggml_argsort_top_k(context, scores, static_cast<int>(plan.used));
    ggml_tensor* chosen = ggml_get_rows(
        context, ggml_reshape_3d(context, p, 1, plan.experts, tokens), routed.experts);
    chosen = ggml_reshape_2d(context, chosen, plan.used, tokens);
    if (plan.gating == Gating::softmax_of_selected) chosen = ggml_soft_max(context, chosen);
    if (plan.normalize) {
        ggml_tensor* sum = ggml_sum_rows(context, chosen);
        chosen = ggml_div(context, chosen, ggml_clamp(context, sum, kWeightSumMin, kInfinity));
    }
    if (plan.scale != 1.0F) chosen = ggml_scale(context, chosen, plan.scale);
    routed.weights = ggml_reshape_3d(context, chosen, 1, plan.used, tokens);
    return routed;
}

ggml_tensor* expert_product(ggml_context* context, const Experts& experts, ggml_tensor* x,
                            ggml_tensor* chosen) {
    ggml_tensor* y = ggml_mul_mat_id(context, experts.weight, x, chosen);
    return experts.bias != nullptr ? ggml_add_id(context, y, experts.bias, chosen) : y;
}

// x [width, 1 or used, tokens] -> [width, used, tokens].
ggml_tensor* run_experts(ggml_context* context, const MoePlan& plan, const MoeWeights& weights,
                         ggml_tensor* x, ggml_tensor* chosen) {
    ggml_tensor* up = expert_product(context, weights.up, x, chosen);
    ggml_tensor* gate = weights.gate ? expert_product(context, weights.gate, x, chosen) : nullptr;
    if (weights.is_fused) {
        const auto half = [&](std::size_t which) {
            return ggml_view_3d(context, up, plan.size, up->ne[1], up->ne[2], up->nb[1], up->nb[2],
                                which * plan.size * sizeof(float));
        };
        gate = half(0);
        up = half(1);
    }
    ggml_tensor* hidden = activate(context, plan.activation, plan.clamp, gate, up);
    return expert_product(context, weights.down, hidden, chosen);
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

}  // namespace

Result<MoePlan> resolve_moe(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    MoePlan plan;
    STET_ASSIGN(plan.experts, keys.uint("expert_count", 1, kExpertsMax));
    STET_ASSIGN(const auto used,
                keys.per_layer("expert_used_count", context.layers, {}, plan.experts));
    plan.used = used[layer];
    if (plan.used == 0) return keys.out_of_range("expert_used_count", "0", 1, plan.experts);
    STET_ASSIGN(plan.groups, keys.uint_or("expert_group_count", 0, 0, plan.experts));
    STET_ASSIGN(plan.groups_used,
                keys.uint_or("expert_group_used_count", plan.groups, 0, plan.groups));
    if (plan.groups > 1 && (plan.groups_used == 0 || plan.experts % plan.groups != 0 ||
                            plan.experts / plan.groups < kGroupScoreExperts ||
                            plan.experts / plan.groups * plan.groups_used < plan.used)) {
        return Status(
            Code::corruption,
            fmt::format("{}: {} experts in {} groups, of which {} and {} experts are used",
                        keys.file().path().string(), plan.experts, plan.groups, plan.groups_used,
                        plan.used));
    }
    STET_ASSIGN(plan.size, expert_size(context, plan, layer));
    STET_ASSIGN(plan.gating, resolve_gating(keys, row.gating));
    plan.normalize = row.expert_norm == ExpertNorm::by_key
                         ? keys.flag_or("expert_weights_norm", false)
                         : row.expert_norm == ExpertNorm::yes;
    const float scale = keys.number_or("expert_weights_scale", 0.0F);
    plan.scale = scale == 0.0F ? 1.0F : scale;
    plan.activation = row.activation;
    plan.shared = {.size = shared_size(keys, layer), .activation = row.activation};
    return plan;
}

Result<MoeWeights> load(Tensors& tensors, std::size_t layer, const MoePlan& plan) {
    const std::string base = fmt::format("blk.{}.", layer);
    const std::uint64_t width = tensors.width();
    MoeWeights weights;
    STET_ASSIGN(weights.router,
                tensors.linear(base + "ffn_gate_inp", width, plan.experts, Need::required));
    STET_ASSIGN(weights.selection_bias,
                tensors.find(base + "exp_probs_b.bias", {plan.experts}, Need::optional));
    weights.is_fused = tensors.has(base + "ffn_gate_up_exps.weight");
    if (weights.is_fused) {
        STET_ASSIGN(weights.up,
                    tensors.experts(base + "ffn_gate_up_exps", width, 2 * std::uint64_t{plan.size},
                                    plan.experts, Need::required));
    } else {
        STET_ASSIGN(weights.gate, tensors.experts(base + "ffn_gate_exps", width, plan.size,
                                                  plan.experts, Need::optional));
        STET_ASSIGN(weights.up, tensors.experts(base + "ffn_up_exps", width, plan.size,
                                                plan.experts, Need::required));
    }
    STET_ASSIGN(weights.down, tensors.experts(base + "ffn_down_exps", plan.size, width,
                                              plan.experts, Need::required));
    if (plan.shared.size != 0) {
        STET_ASSIGN(weights.shared, load_dense(tensors, layer, plan.shared, "_shexp"));
        STET_ASSIGN(weights.shared_gate,
                    tensors.find(base + "ffn_gate_inp_shexp.weight", {width}, Need::optional));
    }
    return weights;
}

ggml_tensor* build_routed(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                          ggml_tensor* x, ggml_tensor* router_logits) {
    ggml_context* context = builder.context();
    const std::int64_t width = x->ne[0];
    const std::int64_t tokens = x->ne[1];
    const Routed routed = route(context, plan, weights, router_logits);
    ggml_tensor* in = ggml_reshape_3d(context, x, width, 1, tokens);
    if (plan.weight_inputs) {
        in = ggml_mul(context, ggml_repeat_4d(context, in, width, plan.used, tokens, 1),
                      routed.weights);
    }
    ggml_tensor* y = run_experts(context, plan, weights, in, routed.experts);
    if (!plan.weight_inputs) y = ggml_mul(context, y, routed.weights);
    ggml_tensor* sum = sum_experts(context, y);
    if (plan.shared.size == 0) return sum;
    ggml_tensor* shared = build(builder, plan.shared, weights.shared, x);
    if (weights.shared_gate != nullptr) {
        ggml_tensor* gate =
            ggml_mul_mat(context, ggml_reshape_2d(context, weights.shared_gate, width, 1), x);
        shared = ggml_mul(context, shared, ggml_sigmoid(context, gate));
    }
    return ggml_add(context, sum, shared);
}

ggml_tensor* build(StepBuilder& builder, const MoePlan& plan, const MoeWeights& weights,
                   ggml_tensor* x) {
    return build_routed(builder, plan, weights, x, builder.product(x, weights.router));
}

}  // namespace stet::model
