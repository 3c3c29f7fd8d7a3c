#include "model/mixers/kda.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/try.h"
#include "exec/recurrent/short_conv.h"
#include "model/config.h"
#include "model/mixers/linear_attention.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

// Biases of q, k and v have no part in this mixer.
Status load_qkv(Tensors& tensors, const std::string& base, const KdaPlan& plan,
                KdaWeights& weights) {
    const std::uint64_t width = tensors.width();
    const std::uint64_t channels = plan.channels();
    STET_ASSIGN(weights.qkv,
                tensors.linear(base + "attn_qkv", width, 3 * channels, Need::optional));
    if (!weights.qkv) {
        STET_ASSIGN(weights.q, tensors.linear(base + "attn_q", width, channels, Need::required));
        STET_ASSIGN(weights.k, tensors.linear(base + "attn_k", width, channels, Need::required));
        STET_ASSIGN(weights.v, tensors.linear(base + "attn_v", width, channels, Need::required));
    }
    for (Linear* linear : {&weights.qkv, &weights.q, &weights.k, &weights.v}) {
        linear->bias = nullptr;
    }
    constexpr std::array kNames = {"ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        STET_ASSIGN(weights.convs[i].weight, find_f32(tensors, base + kNames[i] + ".weight",
                                                      {plan.taps, 1, channels}, Need::required));
    }
    return {};
}

// W, or W_up W_down: which of the names are there tells.
Status load_low_rank(Tensors& tensors, const std::string& down_name, const std::string& up_name,
                     const KdaPlan& plan, Linear& down, Linear& up) {
    const std::uint64_t width = tensors.width();
    if (!tensors.has(up_name + ".weight")) {
        STET_ASSIGN(up, tensors.linear(down_name, width, plan.channels(), Need::required));
        return {};
    }
    STET_ASSIGN(down, tensors.linear(down_name, width, plan.size, Need::required));
    STET_ASSIGN(up, tensors.linear(up_name, plan.size, plan.channels(), Need::required));
    return {};
}

class Layer {
  public:
    Layer(StepBuilder& builder, const KdaPlan& plan, const KdaWeights& weights)
        : builder_(builder), context_(builder.context()), plan_(plan), weights_(weights) {}

    ggml_tensor* build(ggml_tensor* x);

  private:
    // silu(conv(q, k, v)) [3 * channels, tokens].
    ggml_tensor* mixed(ggml_tensor* x);
    ggml_tensor* decay(ggml_tensor* x);  // [size, heads, tokens]
    ggml_tensor* low_rank(ggml_tensor* x, const Linear& down, const Linear& up);

    StepBuilder& builder_;
    ggml_context* context_;
    const KdaPlan& plan_;
    const KdaWeights& weights_;
};

ggml_tensor* Layer::mixed(ggml_tensor* x) {
    const auto channels = static_cast<std::int64_t>(plan_.channels());
    std::array<ggml_tensor*, 3> inputs{};
    if (weights_.qkv) {
        ggml_tensor* qkv = builder_.product(x, weights_.qkv);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            inputs[i] = view_part(builder_, qkv, static_cast<std::int64_t>(i) * channels, channels);
        }
    } else {
        inputs = {builder_.product(x, weights_.q), builder_.product(x, weights_.k),
                  builder_.product(x, weights_.v)};
    }
    const exec::ShortConv first{.channels = static_cast<std::uint32_t>(channels),
                                .taps = plan_.taps,
                                .offset_bytes = builder_.plane(plan_.conv).offset_bytes};
    const auto run = [first, convs = weights_.convs](const exec::StateOpContext& op) {
        exec::ShortConv conv = first;
        exec::Rows out = mutable_rows_of(op.out);
        for (std::size_t i = 0; i < convs.size(); ++i) {
            conv.weight = static_cast<const float*>(convs[i].weight->data);
            exec::short_conv(conv, rows_of(op.out->src[i]), out, op.segments, op.thread,
                             op.threads);
            conv.offset_bytes += sizeof(float) * std::uint64_t{conv.channels} * (conv.taps - 1);
            out.data += conv.channels;
        }
    };
    ggml_tensor* y = builder_.graph().state_op({3 * channels, builder_.tokens(), 1, 1}, inputs,
                                               plan_.conv.group, run);
    return ggml_silu(context_, y);
}

ggml_tensor* Layer::low_rank(ggml_tensor* x, const Linear& down, const Linear& up) {
    return builder_.product(down ? builder_.product(x, down) : x, up);
}

ggml_tensor* Layer::decay(ggml_tensor* x) {
    ggml_tensor* f = low_rank(x, weights_.decay_down, weights_.decay);
    f = ggml_add(context_, f, weights_.dt);
    f = ggml_reshape_3d(context_, f, plan_.size, plan_.heads, builder_.tokens());
    ggml_tensor* a = ggml_reshape_3d(context_, weights_.a, 1, plan_.heads, 1);
    if (plan_.bound == 0.0F) {
        return ggml_exp(context_, ggml_mul(context_, ggml_softplus(context_, f), a));
    }
    f = ggml_mul(context_, f, a);
    if (!plan_.positive_a) f = ggml_neg(context_, f);
    return ggml_exp(context_, ggml_scale(context_, ggml_sigmoid(context_, f), plan_.bound));
}

ggml_tensor* Layer::build(ggml_tensor* x) {
    const std::int64_t tokens = builder_.tokens();
    const auto channels = static_cast<std::int64_t>(plan_.channels());
    ggml_tensor* qkv = mixed(x);
    const auto heads = [&](std::int64_t which) {
        return view_heads(builder_, qkv, which * channels, plan_.size, plan_.heads);
    };
    DeltaInputs inputs;
    inputs.q = unit_length(builder_, heads(0), plan_.epsilon);
    inputs.k = unit_length(builder_, heads(1), plan_.epsilon);
    inputs.v = heads(2);
    inputs.decay = decay(x);
    ggml_tensor* beta = ggml_sigmoid(context_, builder_.product(x, weights_.beta));
    inputs.beta = ggml_reshape_3d(context_, beta, 1, plan_.heads, tokens);
    exec::LinearAttentionShape shape;
    shape.heads = shape.key_heads = plan_.heads;
    shape.size = plan_.size;
    shape.column_decay = true;
    shape.scale = 1.0F / std::sqrt(static_cast<float>(plan_.size));
    ggml_tensor* y = build_delta_rule(builder_, shape, plan_.state, inputs);
    if (builder_.only_state()) return y;
    y = builder_.rms_norm(y, weights_.norm);
    y = ggml_reshape_2d(context_, y, channels, tokens);
    ggml_tensor* gate = low_rank(x, weights_.gate_down, weights_.gate);
    y = ggml_mul(context_, y, ggml_sigmoid(context_, gate));
    return builder_.product(y, weights_.out);
}

}  // namespace

Result<KdaPlan> resolve_kda(const ResolveContext& context, std::size_t /*layer*/) {
    const Keys& keys = context.keys;
    KdaPlan plan;
    plan.positive_a = context.row.positive_kda_decay;
    plan.epsilon =
        context.row.kda_epsilon != 0.0F ? context.row.kda_epsilon : context.config.norm_epsilon;
    STET_ASSIGN(plan.taps, resolve_taps(context, "ssm.conv_kernel"));
    STET_ASSIGN(plan.size, keys.uint("kda.head_dim", 1, kHeadSizeMax));
    // Some files count no heads in layers without keys and values.
    STET_ASSIGN(const auto heads,
                keys.per_layer("attention.head_count", context.layers, {}, kHeadsMax));
    plan.heads = *std::ranges::max_element(heads);
    if (plan.heads == 0) return keys.out_of_range("attention.head_count", "0", 1, kHeadsMax);
    plan.bound = keys.number_or("kda.gate_lower_bound", 0.0F);
    const bool is_safe = keys.flag_or("kda.safe_gate", true);
    if (plan.bound > 0.0F || (context.row.bounded_kda && (plan.bound == 0.0F || !is_safe))) {
        return Status(Code::unimplemented,
                      fmt::format("{}: {} is {} and {} is {}, only a negative bound is supported",
                                  keys.file().path().string(), keys.full("kda.gate_lower_bound"),
                                  plan.bound, keys.full("kda.safe_gate"), is_safe));
    }
    STET_ASSIGN(plan.conv, add_short_conv_state(context, plan.taps, 3 * plan.channels()));
    STET_ASSIGN(plan.state, add_state(context, "s", plan.channels() * plan.size));
    return plan;
}

Result<KdaWeights> load(Tensors& tensors, std::size_t layer, const KdaPlan& plan) {
    const std::string base = fmt::format("blk.{}.", layer);
    const std::uint64_t width = tensors.width();
    KdaWeights weights;
    STET_TRY(load_qkv(tensors, base, plan, weights));
    STET_TRY(load_low_rank(tensors, base + "ssm_f_a", base + "ssm_f_b", plan, weights.decay_down,
                           weights.decay));
    if (tensors.has(base + "ssm_g.weight")) {
        STET_ASSIGN(weights.gate,
                    tensors.linear(base + "ssm_g", width, plan.channels(), Need::required));
    } else {
        STET_TRY(load_low_rank(tensors, base + "ssm_g_a", base + "ssm_g_b", plan, weights.gate_down,
                               weights.gate));
    }
    STET_ASSIGN(weights.beta, tensors.linear(base + "ssm_beta", width, plan.heads, Need::required));
    STET_ASSIGN(weights.dt,
                find_f32(tensors, base + "ssm_dt.bias", {plan.channels()}, Need::required));
    const gguf::Tensor* a = tensors.file().find_tensor(base + "ssm_a");
    if (a != nullptr && a->shape[0] == 1) {
        STET_ASSIGN(weights.a, find_f32(tensors, base + "ssm_a", {1, plan.heads}, Need::required));
    } else {
        STET_ASSIGN(weights.a, find_f32(tensors, base + "ssm_a", {plan.heads}, Need::required));
    }
    STET_ASSIGN(weights.norm, tensors.norm(base + "ssm_norm", plan.size, Need::required));
    STET_ASSIGN(weights.out,
                tensors.linear(base + "attn_output", plan.channels(), width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const KdaPlan& plan, const KdaWeights& weights,
                   ggml_tensor* x) {
    return Layer(builder, plan, weights).build(x);
}

}  // namespace stet::model
