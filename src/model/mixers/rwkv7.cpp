#include "model/mixers/rwkv7.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "exec/recurrent/wkv.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;
using LowRank = Rwkv7Weights::LowRank;

// -exp(-0.5): decays are exp of this times a sigmoid, so that none is below 0.545.
constexpr float kDecayScale = -0.606531F;
constexpr float kUnitEpsilon = 1e-12F;
constexpr std::uint64_t kLerps = 6;  // one less without a gate

Result<LowRank> load_low_rank(Tensors& tensors, const std::string& base, char letter,
                              std::uint64_t rank, bool has_start) {
    const std::uint64_t width = tensors.width();
    const auto name = [&](int i) { return fmt::format("{}{}{}", base, letter, i); };
    LowRank weights;
    STET_ASSIGN(weights.first, tensors.linear(name(1), width, rank, Need::required));
    STET_ASSIGN(weights.second, tensors.linear(name(2), rank, width, Need::required));
    if (has_start) {
        STET_ASSIGN(weights.start, tensors.find(name(0) + ".weight", {width}, Need::required));
    }
    return weights;
}

enum class Between { nothing, tanh, sigmoid };

ggml_tensor* low_rank(StepBuilder& builder, const LowRank& weights, ggml_tensor* x,
                      Between between) {
    ggml_context* context = builder.context();
    ggml_tensor* y = builder.product(x, weights.first);
    if (between == Between::tanh) y = ggml_tanh(context, y);
    if (between == Between::sigmoid) y = ggml_sigmoid(context, y);
    y = builder.product(y, weights.second);
    return weights.start != nullptr ? ggml_add(context, y, weights.start) : y;
}

ggml_tensor* build_wkv(StepBuilder& builder, const RwkvPlan& plan,
                       std::array<ggml_tensor*, 6> inputs) {
    const exec::Wkv shape{plan.heads, plan.head_size, builder.plane(plan.state).offset_bytes};
    return builder.graph().state_op(
        {inputs[0]->ne[0], builder.tokens(), 1, 1}, inputs, plan.state.group,
        [shape](const exec::StateOpContext& op) {
            const auto in = [&](int i) { return rows_of(op.out->src[i]); };
            exec::wkv7(shape, {in(0), in(1), in(2), in(3), in(4), in(5)}, mutable_rows_of(op.out),
                       op.segments, op.thread, op.threads);
        });
}

// What the recurrence reads, all f32 [width, tokens], and the gate.
struct Inputs {
    ggml_tensor *r, *w, *k, *v, *a, *g;
};

Inputs project(StepBuilder& builder, const Rwkv7Plan& plan, const Rwkv7Weights& weights,
               ggml_tensor* x) {
    ggml_context* context = builder.context();
    ggml_tensor* before = build_token_shift(builder, plan.base.shift, 0, x);
    ggml_tensor* change = ggml_sub(context, before, x);
    const auto mixed = [&](std::size_t i) {
        ggml_tensor* lerp = ggml_view_1d(context, weights.lerp, x->ne[0], i * weights.lerp->nb[3]);
        return ggml_add(context, ggml_mul(context, change, lerp), x);
    };
    Inputs in{};
    in.r = builder.product(mixed(0), weights.r);
    in.w = ggml_sigmoid(context, low_rank(builder, weights.decay, mixed(1), Between::tanh));
    in.w = ggml_exp(context, ggml_scale(context, in.w, kDecayScale));
    in.k = builder.product(mixed(2), weights.k);
    ggml_tensor* for_v = mixed(3);
    in.v = builder.product(for_v, weights.v);
    if (plan.value_rank == 0) {
        builder.first_value = in.v;
    } else {
        ggml_tensor* share =
            ggml_sigmoid(context, low_rank(builder, weights.value, for_v, Between::nothing));
        ggml_tensor* other = ggml_sub(context, builder.first_value, in.v);
        in.v = ggml_add(context, in.v, ggml_mul(context, other, share));
    }
    in.a = ggml_sigmoid(context, low_rank(builder, weights.rate, mixed(4), Between::nothing));
    if (plan.gate_rank != 0) in.g = low_rank(builder, weights.gate, mixed(5), Between::sigmoid);
    return in;
}

}  // namespace

Result<Rwkv7Plan> resolve_rwkv7(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    Rwkv7Plan plan;
    STET_ASSIGN(plan.base, resolve_rwkv(context));
    STET_ASSIGN(plan.decay_rank, keys.uint("attention.decay_lora_rank", 1, kWidthMax));
    STET_ASSIGN(plan.rate_rank, keys.uint("attention.iclr_lora_rank", 1, kWidthMax));
    if (layer != 0) {
        STET_ASSIGN(plan.value_rank,
                    keys.uint("attention.value_residual_mix_lora_rank", 1, kWidthMax));
    }
    if (keys.file().find_tensor(fmt::format("blk.{}.time_mix_g1.weight", layer)) != nullptr) {
        STET_ASSIGN(plan.gate_rank, keys.uint("attention.gate_lora_rank", 1, kWidthMax));
    }
    return plan;
}

Result<Rwkv7Weights> load(Tensors& tensors, std::size_t layer, const Rwkv7Plan& plan) {
    const std::string base = fmt::format("blk.{}.time_mix_", layer);
    const std::uint64_t width = tensors.width();
    Rwkv7Weights weights;
    STET_ASSIGN(weights.decay, load_low_rank(tensors, base, 'w', plan.decay_rank, true));
    STET_ASSIGN(weights.rate, load_low_rank(tensors, base, 'a', plan.rate_rank, true));
    if (plan.value_rank != 0) {
        STET_ASSIGN(weights.value, load_low_rank(tensors, base, 'v', plan.value_rank, true));
    }
    if (plan.gate_rank != 0) {
        STET_ASSIGN(weights.gate, load_low_rank(tensors, base, 'g', plan.gate_rank, false));
    }
    const std::string lerp = base + "lerp_fused.weight";
    const gguf::Tensor* found = tensors.file().find_tensor(lerp);
    const bool spare = found != nullptr && found->shape[3] == kLerps;  // a sixth without a gate
    const std::uint64_t lerps = plan.gate_rank != 0 || spare ? kLerps : kLerps - 1;
    STET_ASSIGN(weights.lerp, find_f32(tensors, lerp, {width, 1, 1, lerps}, Need::required));
    STET_ASSIGN(weights.k_k, tensors.find(base + "k_k.weight", {width}, Need::required));
    STET_ASSIGN(weights.k_a, tensors.find(base + "k_a.weight", {width}, Need::required));
    STET_ASSIGN(weights.r_k, tensors.find(base + "r_k.weight", {width}, Need::required));
    STET_ASSIGN(weights.r, tensors.linear(base + "receptance", width, width, Need::required));
    STET_ASSIGN(weights.k, tensors.linear(base + "key", width, width, Need::required));
    STET_ASSIGN(weights.v, tensors.linear(base + "value", width, width, Need::required));
    STET_ASSIGN(weights.norm, tensors.norm(base + "ln", width, Need::optional));
    STET_ASSIGN(weights.out, tensors.linear(base + "output", width, width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const Rwkv7Plan& plan, const Rwkv7Weights& weights,
                   ggml_tensor* x) {
    ggml_context* context = builder.context();
    const std::int64_t tokens = builder.tokens();
    const std::int64_t width = x->ne[0];
    const std::int64_t size = plan.base.head_size;
    const std::int64_t heads = plan.base.heads;
    const Inputs in = project(builder, plan, weights, x);
    const auto by_head = [&](ggml_tensor* y) {
        return ggml_reshape_3d(context, y, size, heads, tokens);
    };
    const auto flat = [&](ggml_tensor* y) { return ggml_reshape_2d(context, y, width, tokens); };

    ggml_tensor* unit = by_head(ggml_mul(context, in.k, weights.k_k));
    unit = flat(ggml_l2_norm(context, unit, kUnitEpsilon));
    ggml_tensor* ka = ggml_mul(context, in.k, weights.k_a);
    ggml_tensor* k = ggml_add(context, in.k, ggml_sub(context, ggml_mul(context, in.a, ka), ka));
    ggml_tensor* y =
        build_wkv(builder, plan.base,
                  {in.r, in.w, k, in.v, ggml_neg(context, unit), ggml_mul(context, unit, in.a)});
    if (builder.only_state()) return y;
    if (weights.norm) y = build_head_norm(builder, plan.base, weights.norm, y);
    ggml_tensor* rk = by_head(ggml_mul(context, ggml_mul(context, k, in.r), weights.r_k));
    rk = ggml_sum_rows(context, rk);  // [1, heads, tokens]
    y = ggml_add(context, y, flat(ggml_mul(context, by_head(in.v), rk)));
    if (in.g != nullptr) y = ggml_mul(context, y, in.g);
    return builder.product(y, weights.out);
}

}  // namespace stet::model
