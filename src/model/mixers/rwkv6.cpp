#include "model/mixers/rwkv6.h"

#include <fmt/format.h>

#include <cmath>

#include "base/try.h"
#include "exec/recurrent/wkv.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;
constexpr std::size_t kMixes = Rwkv6Weights::kMixes;

Status load_lerps(Tensors& tensors, const std::string& base, Rwkv6Weights& weights) {
    const std::uint64_t width = tensors.width();
    STET_ASSIGN(weights.lerp_x, tensors.find(base + "lerp_x.weight", {width}, Need::required));
    const std::string fused = base + "lerp_fused.weight";
    weights.is_fused = tensors.has(fused);
    if (weights.is_fused) {
        STET_ASSIGN(weights.lerps[0],
                    find_f32(tensors, fused, {width, 1, 1, kMixes}, Need::required));
        return {};
    }
    constexpr std::array kLetters = {'w', 'k', 'v', 'r', 'g'};
    for (std::size_t i = 0; i < kMixes; ++i) {
        STET_ASSIGN(weights.lerps[i],
                    tensors.find(fmt::format("{}lerp_{}.weight", base, kLetters[i]), {width},
                                 Need::required));
    }
    return {};
}

// m_i of all five, [width, tokens] each.
std::array<ggml_tensor*, kMixes> mixes(StepBuilder& builder, const Rwkv6Plan& plan,
                                       const Rwkv6Weights& weights, ggml_tensor* x) {
    ggml_context* context = builder.context();
    const std::int64_t width = x->ne[0];
    ggml_tensor* before = build_token_shift(builder, plan.base.shift, 0, x);
    ggml_tensor* change = ggml_sub(context, before, x);
    ggml_tensor* chosen = ggml_add(context, ggml_mul(context, change, weights.lerp_x), x);
    chosen = ggml_tanh(context, builder.product(chosen, weights.mix_first));
    std::array<ggml_tensor*, kMixes> mixed{};
    for (std::size_t i = 0; i < kMixes; ++i) {
        ggml_tensor* second =
            ggml_view_2d(context, weights.mix_second, plan.mix_rank, width,
                         weights.mix_second->nb[1], i * weights.mix_second->nb[2]);
        ggml_tensor* lerp = weights.is_fused ? ggml_view_1d(context, weights.lerps[0], width,
                                                            i * weights.lerps[0]->nb[3])
                                             : weights.lerps[i];
        const auto offset = static_cast<std::int64_t>(i) * plan.mix_rank;
        ggml_tensor* share =
            ggml_mul_mat(context, second, builder.part(chosen, offset, plan.mix_rank));
        share = ggml_add(context, share, lerp);
        mixed[i] = ggml_add(context, ggml_mul(context, share, change), x);
    }
    return mixed;
}

// Each head of k or v for all heads that share it: [width, tokens].
ggml_tensor* spread_heads(StepBuilder& builder, const Rwkv6Plan& plan, ggml_tensor* y) {
    const std::int64_t size = plan.base.head_size;
    const std::int64_t heads = plan.base.heads;
    if (plan.kv_heads == plan.base.heads) return y;
    ggml_context* context = builder.context();
    y = ggml_reshape_4d(context, y, size, 1, plan.kv_heads, builder.tokens());
    y = ggml_repeat_4d(context, y, size, heads / plan.kv_heads, plan.kv_heads, builder.tokens());
    return ggml_reshape_2d(context, y, size * heads, builder.tokens());
}

ggml_tensor* build_wkv(StepBuilder& builder, const RwkvPlan& plan, const Rwkv6Weights& weights,
                       std::array<ggml_tensor*, 4> inputs) {
    const exec::Wkv shape{plan.heads, plan.head_size, builder.plane(plan.state).offset_bytes};
    const float scale =
        weights.first != nullptr ? 1.0F : 1.0F / std::sqrt(static_cast<float>(plan.head_size));
    return builder.graph().state_op(
        {inputs[0]->ne[0], builder.tokens(), 1, 1}, inputs, plan.state.group,
        [shape, scale, first = weights.first](const exec::StateOpContext& op) {
            const auto in = [&](int i) { return rows_of(op.out->src[i]); };
            const float* first_data =
                first != nullptr ? static_cast<const float*>(first->data) : nullptr;
            exec::wkv6(shape, {in(0), in(1), in(2), in(3), first_data, scale},
                       mutable_rows_of(op.out), op.segments, op.thread, op.threads);
        });
}

}  // namespace

Result<Rwkv6Plan> resolve_rwkv6(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    Rwkv6Plan plan;
    STET_ASSIGN(plan.base, resolve_rwkv(context));
    STET_ASSIGN(plan.mix_rank, keys.uint("time_mix_extra_dim", 1, kWidthMax));
    STET_ASSIGN(plan.decay_rank, keys.uint("time_decay_extra_dim", 1, kWidthMax));
    plan.is_gated =
        keys.file().find_tensor(fmt::format("blk.{}.time_mix_first.weight", layer)) == nullptr;
    STET_ASSIGN(const auto kv_heads,
                keys.per_layer("attention.head_count_kv", context.layers,
                               std::vector<std::uint32_t>(context.layers, 0), kHeadsMax));
    plan.kv_heads = kv_heads[layer] == 0 ? plan.base.heads : kv_heads[layer];
    if (plan.base.heads % plan.kv_heads != 0) {
        return Status(Code::corruption, fmt::format("{}: layer {} has {} heads over {} of keys",
                                                    keys.file().path().string(), layer,
                                                    plan.base.heads, plan.kv_heads));
    }
    return plan;
}

Result<Rwkv6Weights> load(Tensors& tensors, std::size_t layer, const Rwkv6Plan& plan) {
    const std::string base = fmt::format("blk.{}.time_mix_", layer);
    const std::uint64_t width = tensors.width();
    const std::uint64_t rank = plan.mix_rank;
    const std::uint64_t kv_size = std::uint64_t{plan.kv_heads} * plan.base.head_size;
    Rwkv6Weights weights;
    STET_ASSIGN(weights.mix_first,
                tensors.linear(base + "w1", width, rank * kMixes, Need::required));
    STET_ASSIGN(weights.mix_second,
                tensors.find(base + "w2.weight", {rank, width, kMixes}, Need::required));
    STET_TRY(load_lerps(tensors, base, weights));
    STET_ASSIGN(weights.decay, tensors.find(base + "decay.weight", {width}, Need::required));
    STET_ASSIGN(weights.decay_first,
                tensors.linear(base + "decay_w1", width, plan.decay_rank, Need::required));
    STET_ASSIGN(weights.decay_second,
                tensors.linear(base + "decay_w2", plan.decay_rank, width, Need::required));
    STET_ASSIGN(weights.r, tensors.linear(base + "receptance", width, width, Need::required));
    STET_ASSIGN(weights.k, tensors.linear(base + "key", width, kv_size, Need::required));
    STET_ASSIGN(weights.v, tensors.linear(base + "value", width, kv_size, Need::required));
    STET_ASSIGN(weights.gate, tensors.linear(base + "gate", width, width, Need::required));
    if (!plan.is_gated) {
        STET_ASSIGN(weights.first,
                    find_f32(tensors, base + "first.weight", {plan.base.head_size, plan.base.heads},
                             Need::required));
        STET_ASSIGN(weights.norm, tensors.norm(base + "ln", width, Need::required));
    }
    STET_ASSIGN(weights.out, tensors.linear(base + "output", width, width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const Rwkv6Plan& plan, const Rwkv6Weights& weights,
                   ggml_tensor* x) {
    ggml_context* context = builder.context();
    const auto [for_w, for_k, for_v, for_r, for_g] = mixes(builder, plan, weights, x);
    ggml_tensor* w = ggml_tanh(context, builder.product(for_w, weights.decay_first));
    w = ggml_add(context, builder.product(w, weights.decay_second), weights.decay);
    w = ggml_exp(context, ggml_neg(context, ggml_exp(context, w)));
    ggml_tensor* r = builder.product(for_r, weights.r);
    ggml_tensor* k = spread_heads(builder, plan, builder.product(for_k, weights.k));
    ggml_tensor* v = spread_heads(builder, plan, builder.product(for_v, weights.v));
    if (plan.is_gated) k = ggml_sub(context, k, ggml_mul(context, k, w));
    ggml_tensor* y = build_wkv(builder, plan.base, weights, {r, w, k, v});
    if (builder.only_state()) return y;
    if (weights.norm) y = build_head_norm(builder, plan.base, weights.norm, y);
    ggml_tensor* gate = builder.product(for_g, weights.gate);
    gate = plan.is_gated ? ggml_sigmoid(context, gate) : ggml_silu(context, gate);
    return builder.product(ggml_mul(context, y, gate), weights.out);
}

}  // namespace stet::model
