#include "model/mixers/mamba2.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

ggml_tensor* build_scan(StepBuilder& builder, const Mamba2Plan& plan, const Mamba2Weights& weights,
                        std::array<ggml_tensor*, 4> inputs) {
    const exec::SsmScan scan{.heads = plan.heads,
                             .head_size = plan.head_size,
                             .states = plan.states,
                             .groups = plan.groups};
    return build_ssm_scan(builder, scan, plan.scan, weights.decay, inputs);
}

}  // namespace

Result<Mamba2Plan> resolve_mamba2(const ResolveContext& context, std::size_t /*layer*/) {
    const Keys& keys = context.keys;
    Mamba2Plan plan;
    STET_ASSIGN(plan.taps, resolve_taps(context, "ssm.conv_kernel"));
    STET_ASSIGN(const auto channels, keys.uint("ssm.inner_size", 1, kWidthMax));
    STET_ASSIGN(plan.states, keys.uint("ssm.state_size", 1, kHeadSizeMax));
    STET_ASSIGN(plan.heads, keys.uint("ssm.time_step_rank", 1, channels));
    STET_ASSIGN(plan.groups, keys.uint("ssm.group_count", 1, plan.heads));
    if (channels % plan.heads != 0 || plan.heads % plan.groups != 0) {
        return Status(Code::corruption,
                      fmt::format("{}: {} channels of {} state space heads in {} groups, expected "
                                  "each to divide the one before",
                                  keys.file().path().string(), channels, plan.heads, plan.groups));
    }
    plan.head_size = channels / plan.heads;
    STET_ASSIGN(plan.conv, add_short_conv_state(context, plan.taps, channels + 2 * plan.shared()));
    STET_ASSIGN(plan.scan, add_state(context, "s", std::uint64_t{channels} * plan.states));
    return plan;
}

Result<Mamba2Weights> load(Tensors& tensors, std::size_t layer, const Mamba2Plan& plan) {
    const std::string base = fmt::format("blk.{}.ssm_", layer);
    const std::uint64_t width = tensors.width();
    const std::uint64_t channels = plan.channels();
    const std::uint64_t mixed = channels + 2 * plan.shared();
    Mamba2Weights weights;
    STET_ASSIGN(weights.in,
                tensors.linear(base + "in", width, channels + mixed + plan.heads, Need::required));
    STET_ASSIGN(weights.conv, load_short_conv(tensors, base + "conv1d", plan.taps, mixed));
    STET_ASSIGN(weights.dt_bias, find_f32(tensors, base + "dt.bias", {plan.heads}, Need::required));
    STET_ASSIGN(weights.decay, find_f32(tensors, base + "a", {1, plan.heads}, Need::required));
    STET_ASSIGN(weights.through, find_f32(tensors, base + "d", {1, plan.heads}, Need::required));
    STET_ASSIGN(weights.norm.weight,
                find_f32(tensors, base + "norm.weight", {channels / plan.groups, plan.groups},
                         Need::optional));
    STET_ASSIGN(weights.out, tensors.linear(base + "out", channels, width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const Mamba2Plan& plan, const Mamba2Weights& weights,
                   ggml_tensor* u) {
    ggml_context* context = builder.context();
    const std::int64_t tokens = builder.tokens();
    const auto channels = static_cast<std::int64_t>(plan.channels());
    const auto shared = static_cast<std::int64_t>(plan.shared());
    ggml_tensor* projected = builder.product(u, weights.in);
    ggml_tensor* mixed =
        build_short_conv(builder, plan.conv, weights.conv,
                         view_part(builder, projected, channels, channels + 2 * shared));
    mixed = ggml_silu(context, mixed);
    ggml_tensor* dt = builder.part(projected, 2 * channels + 2 * shared, plan.heads);
    dt = ggml_add(context, dt, weights.dt_bias);
    ggml_tensor* y = build_scan(
        builder, plan, weights,
        {view_part(builder, mixed, 0, channels), dt, view_part(builder, mixed, channels, shared),
         view_part(builder, mixed, channels + shared, shared)});
    if (builder.only_state()) return y;
    ggml_tensor* x = ggml_view_3d(context, mixed, plan.head_size, plan.heads, tokens,
                                  plan.head_size * sizeof(float), mixed->nb[1], 0);
    y = ggml_reshape_3d(context, y, plan.head_size, plan.heads, tokens);
    y = ggml_add(context, y, ggml_mul(context, x, weights.through));
    ggml_tensor* z = builder.part(projected, 0, channels);
    y = ggml_swiglu_split(context, z, ggml_reshape_2d(context, y, channels, tokens));
    if (weights.norm) {
        y = ggml_reshape_3d(context, y, channels / plan.groups, plan.groups, tokens);
        y = ggml_reshape_2d(context, builder.rms_norm(y, weights.norm), channels, tokens);
    }
    return builder.product(y, weights.out);
}

}  // namespace stet::model
