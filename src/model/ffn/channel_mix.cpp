#include "model/ffn/channel_mix.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/config.h"
#include "model/mixers/rwkv.h"
#include "model/step_builder.h"

namespace stet::model {

using Need = Tensors::Need;

bool has_channel_mix(const ResolveContext& context, std::size_t layer) {
    const std::string key = fmt::format("blk.{}.channel_mix_key.weight", layer);
    return context.keys.file().find_tensor(key) != nullptr;
}

Result<ChannelMixPlan> resolve_channel_mix(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto sizes,
                keys.per_layer("feed_forward_length", context.layers, {}, kWidthMax));
    ChannelMixPlan plan;
    plan.size = sizes[layer];
    const auto shift = context.schema.find("recurrent", "r", context.slot);
    const std::uint64_t wanted = 2 * std::uint64_t{context.config.width};
    if (!shift || context.schema.elements(*shift) != wanted) {
        return Status(Code::corruption,
                      fmt::format("{}: layer {} has a channel mix but no state for it: "
                                  "token_shift_count must be 2",
                                  keys.file().path().string(), layer));
    }
    plan.shift = *shift;
    return plan;
}

Result<ChannelMixWeights> load_channel_mix(Tensors& tensors, std::size_t layer,
                                           const ChannelMixPlan& plan) {
    const std::string base = fmt::format("blk.{}.channel_mix_", layer);
    const std::uint64_t width = tensors.width();
    ChannelMixWeights weights;
    STET_ASSIGN(weights.lerp_k, tensors.find(base + "lerp_k.weight", {width}, Need::required));
    STET_ASSIGN(weights.k, tensors.linear(base + "key", width, plan.size, Need::required));
    STET_ASSIGN(weights.v, tensors.linear(base + "value", plan.size, width, Need::required));
    STET_ASSIGN(weights.r, tensors.linear(base + "receptance", width, width, Need::optional));
    if (weights.r) {
        STET_ASSIGN(weights.lerp_r, tensors.find(base + "lerp_r.weight", {width}, Need::required));
    }
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const ChannelMixPlan& plan,
                   const ChannelMixWeights& weights, ggml_tensor* x) {
    ggml_context* context = builder.context();
    ggml_tensor* before = build_token_shift(builder, plan.shift, 1, x);
    if (builder.only_state()) return before;
    ggml_tensor* change = ggml_sub(context, before, x);
    const auto mixed = [&](ggml_tensor* lerp) {
        return ggml_add(context, ggml_mul(context, change, lerp), x);
    };
    ggml_tensor* hidden = builder.product(mixed(weights.lerp_k), weights.k);
    ggml_tensor* y = builder.product(ggml_sqr(context, ggml_relu(context, hidden)), weights.v);
    if (!weights.r) return y;
    ggml_tensor* r = ggml_sigmoid(context, builder.product(mixed(weights.lerp_r), weights.r));
    return ggml_mul(context, r, y);
}

}  // namespace stet::model
