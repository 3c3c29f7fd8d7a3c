#include "model/mixers/lightning.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/try.h"
#include "model/config.h"
#include "model/mixers/linear_attention.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

// What each head's state is multiplied by at each token.
std::vector<float> decays(const LightningPlan& plan) {
    const float ratio = std::exp2(-8.0F / static_cast<float>(plan.heads));
    std::vector<float> decays;
    float slope = 1.0F;
    for (std::uint32_t h = 0; h < plan.heads; ++h) {
        slope *= ratio;
        decays.push_back(std::exp(-slope * plan.slope_factor));
    }
    return decays;
}

// qkv f32 [3 * channels, tokens] -> [channels, tokens].
ggml_tensor* attend(StepBuilder& builder, const LightningPlan& plan, ggml_tensor* qkv) {
    exec::LinearAttentionShape shape;
    shape.heads = shape.key_heads = plan.heads;
    shape.size = plan.size;
    shape.delta_rule = false;
    shape.state_offset_bytes = builder.plane(plan.state).offset_bytes;
    const std::array inputs = {qkv};
    return builder.graph().state_op(
        {static_cast<std::int64_t>(plan.channels()), builder.tokens(), 1, 1}, inputs,
        plan.state.group, [shape, decay = decays(plan)](const exec::StateOpContext& op) {
            const exec::ConstRows rows = rows_of(op.out->src[0]);
            const auto part = [&](std::uint64_t which) {
                return exec::HeadRows{rows.data + which * shape.size, rows.stride,
                                      std::uint64_t{3} * shape.size};
            };
            exec::linear_attention(shape, {part(0), part(1), part(2), {decay.data(), 0, 1}, {}},
                                   op.segments, static_cast<float*>(op.out->data), op.thread,
                                   op.threads);
        });
}

}  // namespace

Result<LightningPlan> resolve_lightning(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    LightningPlan plan;
    STET_ASSIGN(const auto heads,
                keys.per_layer("attention.head_count", context.layers, {}, kHeadsMax));
    plan.heads = heads[layer];
    if (plan.heads == 0) return keys.out_of_range("attention.head_count", "0", 1, kHeadsMax);
    STET_ASSIGN(plan.size, keys.uint_or("attention.key_length", context.config.width / plan.heads,
                                        1, kHeadSizeMax));
    constexpr float kLeastSlope = 1e-5F;
    const auto last = static_cast<float>(std::max(context.layers, 2U) - 1);
    plan.slope_factor = 1.0F - static_cast<float>(layer) / last + kLeastSlope;
    STET_ASSIGN(plan.state, add_state(context, "s", plan.channels() * plan.size));
    return plan;
}

Result<LightningWeights> load(Tensors& tensors, std::size_t layer, const LightningPlan& plan) {
    const std::string base = fmt::format("blk.{}.attn_", layer);
    const std::uint64_t width = tensors.width();
    const std::uint64_t channels = plan.channels();
    LightningWeights weights;
    STET_ASSIGN(weights.qkv, tensors.linear(base + "qkv", width, 3 * channels, Need::required));
    STET_ASSIGN(weights.norm, tensors.norm(base + "norm_2", channels, Need::required));
    STET_ASSIGN(weights.gate, tensors.linear(base + "gate", width, channels, Need::required));
    STET_ASSIGN(weights.out, tensors.linear(base + "output", channels, width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const LightningPlan& plan, const LightningWeights& weights,
                   ggml_tensor* x) {
    ggml_context* context = builder.context();
    ggml_tensor* qkv = ggml_silu(context, builder.product(x, weights.qkv));
    ggml_tensor* y = attend(builder, plan, qkv);
    if (builder.only_state()) return y;
    y = builder.rms_norm(y, weights.norm);
    ggml_tensor* gate = ggml_sigmoid(context, builder.product(x, weights.gate));
    return builder.product(ggml_mul(context, gate, y), weights.out);
}

}  // namespace stet::model
