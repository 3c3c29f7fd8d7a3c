#include "model/mixers/gated_conv.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {

using Need = Tensors::Need;

Result<GatedConvPlan> resolve_gated_conv(const ResolveContext& context, std::size_t /*layer*/) {
    if (!context.keys.flag_or("attention.causal", true)) {
        return Status(Code::unimplemented,
                      fmt::format("{}: {} with a convolution over later tokens is not supported",
                                  context.keys.file().path().string(), context.row.name));
    }
    GatedConvPlan plan;
    STET_ASSIGN(plan.taps, resolve_taps(context, "shortconv.l_cache"));
    STET_ASSIGN(plan.conv, add_short_conv_state(context, plan.taps, context.config.width));
    return plan;
}

Result<GatedConvWeights> load(Tensors& tensors, std::size_t layer, const GatedConvPlan& plan) {
    const std::string base = fmt::format("blk.{}.shortconv.", layer);
    const std::uint64_t width = tensors.width();
    GatedConvWeights weights;
    STET_ASSIGN(weights.in, tensors.linear(base + "in_proj", width, 3 * width, Need::required));
    STET_ASSIGN(weights.conv, load_short_conv(tensors, base + "conv", plan.taps, width));
    STET_ASSIGN(weights.out, tensors.linear(base + "out_proj", width, width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const GatedConvPlan& plan, const GatedConvWeights& weights,
                   ggml_tensor* u) {
    ggml_context* context = builder.context();
    const std::int64_t width = u->ne[0];
    ggml_tensor* bcx = builder.product(u, weights.in);
    const auto third = [&](std::int64_t i) { return view_part(builder, bcx, i * width, width); };
    ggml_tensor* y =
        build_short_conv(builder, plan.conv, weights.conv, ggml_mul(context, third(0), third(2)));
    if (builder.only_state()) return y;
    return builder.product(ggml_mul(context, third(1), y), weights.out);
}

}  // namespace stet::model
