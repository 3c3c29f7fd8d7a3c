#include "model/mixers/delta_net.h"

#include <fmt/format.h>

#include <cmath>

#include "base/try.h"
#include "model/config.h"
#include "model/mixers/linear_attention.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

Status load_projections(Tensors& tensors, std::size_t layer, const DeltaNetPlan& plan,
                        DeltaNetWeights& weights) {
    const std::string base = fmt::format("blk.{}.", layer);
    const std::uint64_t width = tensors.width();
    const std::uint64_t qkv = 2 * plan.keys() + plan.values();
    if (tensors.has(base + "attn_qkv.weight") || !tensors.has(base + "ssm_in.weight")) {
        STET_ASSIGN(weights.qkv, tensors.linear(base + "attn_qkv", width, qkv, Need::required));
        STET_ASSIGN(weights.z,
                    tensors.linear(base + "attn_gate", width, plan.values(), Need::required));
    } else {
        STET_ASSIGN(weights.in,
                    tensors.linear(base + "ssm_in", width, qkv + plan.values(), Need::required));
    }
    if (tensors.has(base + "ssm_ba.weight")) {
        STET_ASSIGN(weights.both, tensors.linear(base + "ssm_ba", width,
                                                 std::uint64_t{2} * plan.heads, Need::required));
        return {};
    }
    STET_ASSIGN(weights.beta, tensors.linear(base + "ssm_beta", width, plan.heads, Need::required));
    STET_ASSIGN(weights.decay,
                tensors.linear(base + "ssm_alpha", width, plan.heads, Need::required));
    return {};
}

class Layer {
  public:
    Layer(StepBuilder& builder, const DeltaNetPlan& plan, const DeltaNetWeights& weights)
        : builder_(builder), context_(builder.context()), plan_(plan), weights_(weights) {}

    ggml_tensor* build(ggml_tensor* x);

  private:
    // Features [offset, offset + size) of each key head, put together.
    ggml_tensor* by_key_head(ggml_tensor* x, std::int64_t offset, std::int64_t size);
    void project(ggml_tensor* x);
    void project_gates(ggml_tensor* x);

    StepBuilder& builder_;
    ggml_context* context_;
    const DeltaNetPlan& plan_;
    const DeltaNetWeights& weights_;
    ggml_tensor* qkv_ = nullptr;    // [2 * keys + values, tokens]
    ggml_tensor* z_ = nullptr;      // [values, tokens]
    ggml_tensor* beta_ = nullptr;   // [heads, tokens], before the sigmoid
    ggml_tensor* decay_ = nullptr;  // [heads, tokens], as projected
};

ggml_tensor* Layer::by_key_head(ggml_tensor* x, std::int64_t offset, std::int64_t size) {
    const std::int64_t heads = plan_.key_heads;
    ggml_tensor* part =
        ggml_view_3d(context_, x, size, heads, x->ne[1], x->nb[1] / static_cast<std::size_t>(heads),
                     x->nb[1], static_cast<std::size_t>(offset) * sizeof(float));
    return ggml_cont_2d(context_, part, size * heads, x->ne[1]);
}

void Layer::project(ggml_tensor* x) {
    if (!weights_.in) {
        qkv_ = builder_.product(x, weights_.qkv);
        z_ = builder_.product(x, weights_.z);
        return;
    }
    ggml_tensor* all = builder_.product(x, weights_.in);
    const std::int64_t key = plan_.size;
    const std::int64_t value = key * (plan_.heads / plan_.key_heads);
    qkv_ = ggml_concat(context_, by_key_head(all, 0, key), by_key_head(all, key, key), 0);
    qkv_ = ggml_concat(context_, qkv_, by_key_head(all, 2 * key, value), 0);
    z_ = by_key_head(all, 2 * key + value, value);
}

void Layer::project_gates(ggml_tensor* x) {
    if (!weights_.both) {
        beta_ = builder_.product(x, weights_.beta);
        decay_ = builder_.product(x, weights_.decay);
        return;
    }
    ggml_tensor* both = builder_.product(x, weights_.both);
    const std::int64_t each = plan_.heads / plan_.key_heads;
    beta_ = by_key_head(both, 0, each);
    decay_ = by_key_head(both, each, each);
}

ggml_tensor* Layer::build(ggml_tensor* x) {
    const std::int64_t tokens = builder_.tokens();
    const auto keys = static_cast<std::int64_t>(plan_.keys());
    const auto values = static_cast<std::int64_t>(plan_.values());
    project(x);
    project_gates(x);
    ggml_tensor* mixed = build_short_conv(builder_, plan_.conv, weights_.conv, qkv_);
    mixed = ggml_silu(context_, mixed);
    ggml_tensor* decay = ggml_softplus(context_, ggml_add(context_, decay_, weights_.dt));
    decay = ggml_exp(context_, ggml_mul(context_, decay, weights_.a));
    const auto heads = [&](ggml_tensor* y) {
        return ggml_reshape_3d(context_, y, 1, plan_.heads, tokens);
    };
    DeltaInputs inputs;
    const auto unit = [&](std::int64_t offset) {
        ggml_tensor* y = view_heads(builder_, mixed, offset, plan_.size, plan_.key_heads);
        return unit_length(builder_, y, builder_.config().norm_epsilon);
    };
    inputs.q = unit(0);
    inputs.k = unit(keys);
    inputs.v = view_heads(builder_, mixed, 2 * keys, plan_.size, plan_.heads);
    inputs.decay = heads(decay);
    inputs.beta = heads(ggml_sigmoid(context_, beta_));
    exec::LinearAttentionShape shape;
    shape.heads = plan_.heads;
    shape.key_heads = plan_.key_heads;
    shape.key_order = plan_.key_order;
    shape.size = plan_.size;
    shape.scale = 1.0F / std::sqrt(static_cast<float>(plan_.size));
    ggml_tensor* y = build_delta_rule(builder_, shape, plan_.state, inputs);
    if (builder_.only_state()) return y;
    y = builder_.rms_norm(y, weights_.norm);
    y = ggml_reshape_2d(context_, y, values, tokens);
    y = plan_.sigmoid_gate ? ggml_mul(context_, y, ggml_sigmoid(context_, z_))
                           : ggml_swiglu_split(context_, z_, y);
    return builder_.product(y, weights_.out);
}

}  // namespace

Result<DeltaNetPlan> resolve_delta_net(const ResolveContext& context, std::size_t /*layer*/) {
    const Keys& keys = context.keys;
    DeltaNetPlan plan;
    plan.sigmoid_gate = context.row.sigmoid_delta_gate;
    plan.key_order = context.row.tiled_key_heads ? exec::KeyHeads::tiled : exec::KeyHeads::grouped;
    STET_ASSIGN(plan.taps, resolve_taps(context, "ssm.conv_kernel"));
    STET_ASSIGN(plan.size, keys.uint("ssm.state_size", 1, kHeadSizeMax));
    STET_ASSIGN(plan.heads, keys.uint("ssm.time_step_rank", 1, kHeadsMax));
    STET_ASSIGN(plan.key_heads, keys.uint("ssm.group_count", 1, plan.heads));
    STET_ASSIGN(const auto inner, keys.uint("ssm.inner_size", 1, kWidthMax));
    if (inner != plan.values() || plan.heads % plan.key_heads != 0) {
        return Status(Code::corruption,
                      fmt::format("{}: {} channels of {} heads of {}, over {} key heads, expected "
                                  "{} channels and key heads that divide the heads",
                                  keys.file().path().string(), inner, plan.heads, plan.size,
                                  plan.key_heads, plan.values()));
    }
    STET_ASSIGN(plan.conv,
                add_short_conv_state(context, plan.taps, 2 * plan.keys() + plan.values()));
    STET_ASSIGN(plan.state, add_state(context, "s", plan.values() * plan.size));
    return plan;
}

Result<DeltaNetWeights> load(Tensors& tensors, std::size_t layer, const DeltaNetPlan& plan) {
    const std::string base = fmt::format("blk.{}.ssm_", layer);
    DeltaNetWeights weights;
    STET_TRY(load_projections(tensors, layer, plan, weights));
    STET_ASSIGN(weights.conv, load_short_conv(tensors, base + "conv1d", plan.taps,
                                              2 * plan.keys() + plan.values()));
    STET_ASSIGN(weights.dt, find_f32(tensors, base + "dt.bias", {plan.heads}, Need::required));
    STET_ASSIGN(weights.a, find_f32(tensors, base + "a", {plan.heads}, Need::required));
    STET_ASSIGN(weights.norm, tensors.norm(base + "norm", plan.size, Need::required));
    STET_ASSIGN(weights.out,
                tensors.linear(base + "out", plan.values(), tensors.width(), Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const DeltaNetPlan& plan, const DeltaNetWeights& weights,
                   ggml_tensor* x) {
    return Layer(builder, plan, weights).build(x);
}

}  // namespace stet::model
