#include "model/mixers/mamba.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "exec/recurrent/ssm_scan.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

ggml_tensor* build_scan(StepBuilder& builder, const MambaPlan& plan, const MambaWeights& weights,
                        std::array<ggml_tensor*, 4> inputs) {
    const exec::SsmScan scan{.heads = plan.channels,
                             .head_size = 1,
                             .states = plan.states,
                             .groups = 1,
                             .decay_by_state = true,
                             .offset_bytes = builder.plane(plan.scan).offset_bytes};
    return builder.graph().state_op(
        {plan.channels, builder.tokens(), 1, 1}, inputs, plan.scan.group,
        [scan, decay = weights.decay](const exec::StateOpContext& op) {
            exec::SsmScan mine = scan;
            mine.decay = static_cast<const float*>(decay->data);
            exec::ssm_scan(mine,
                           {rows_of(op.out->src[0]), rows_of(op.out->src[1]),
                            rows_of(op.out->src[2]), rows_of(op.out->src[3])},
                           mutable_rows_of(op.out), op.segments, op.thread, op.threads);
        });
}

}  // namespace

Result<MambaPlan> resolve_mamba(const ResolveContext& context, std::size_t /*layer*/) {
    const Keys& keys = context.keys;
    MambaPlan plan;
    STET_ASSIGN(plan.taps, resolve_taps(context, "ssm.conv_kernel"));
    STET_ASSIGN(plan.channels, keys.uint("ssm.inner_size", 1, kWidthMax));
    STET_ASSIGN(plan.states, keys.uint("ssm.state_size", 1, kHeadSizeMax));
    STET_ASSIGN(plan.rank, keys.uint("ssm.time_step_rank", 1, kWidthMax));
    plan.weightless_norms = keys.flag_or("ssm.dt_b_c_rms", false);
    STET_ASSIGN(plan.conv, add_short_conv_state(context, plan.taps, plan.channels));
    STET_ASSIGN(plan.scan, add_state(context, "s", std::uint64_t{plan.channels} * plan.states));
    return plan;
}

Result<MambaWeights> load(Tensors& tensors, std::size_t layer, const MambaPlan& plan) {
    const std::string base = fmt::format("blk.{}.ssm_", layer);
    const std::uint64_t width = tensors.width();
    const std::uint64_t channels = plan.channels;
    const std::uint64_t rank = plan.rank;
    const std::uint64_t states = plan.states;
    MambaWeights weights;
    STET_ASSIGN(weights.in, tensors.linear(base + "in", width, 2 * channels, Need::required));
    STET_ASSIGN(weights.conv, load_short_conv(tensors, base + "conv1d", plan.taps, channels));
    STET_ASSIGN(weights.x, tensors.linear(base + "x", channels, rank + 2 * states, Need::required));
    STET_ASSIGN(weights.dt, tensors.linear(base + "dt", rank, channels, Need::required));
    STET_ASSIGN(weights.dt_norm, tensors.norm(base + "dt_norm", rank, Need::optional));
    STET_ASSIGN(weights.b_norm, tensors.norm(base + "b_norm", states, Need::optional));
    STET_ASSIGN(weights.c_norm, tensors.norm(base + "c_norm", states, Need::optional));
    STET_ASSIGN(weights.decay, find_f32(tensors, base + "a", {states, channels}, Need::required));
    STET_ASSIGN(weights.through, find_f32(tensors, base + "d", {channels}, Need::required));
    STET_ASSIGN(weights.out, tensors.linear(base + "out", channels, width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const MambaPlan& plan, const MambaWeights& weights,
                   ggml_tensor* u) {
    ggml_context* context = builder.context();
    const std::int64_t channels = plan.channels;
    ggml_tensor* xz = builder.product(u, weights.in);
    ggml_tensor* x =
        build_short_conv(builder, plan.conv, weights.conv, view_part(builder, xz, 0, channels));
    x = ggml_silu(context, x);
    ggml_tensor* dbc = builder.product(x, weights.x);
    const bool has_norms =
        plan.weightless_norms || (weights.dt_norm && weights.b_norm && weights.c_norm);
    const auto part = [&](std::int64_t offset, std::int64_t size, const Norm& norm) {
        ggml_tensor* y = builder.part(dbc, offset, size);
        return has_norms ? builder.rms_norm(y, norm) : y;
    };
    ggml_tensor* dt = builder.product(part(0, plan.rank, weights.dt_norm), weights.dt);
    ggml_tensor* b = part(plan.rank, plan.states, weights.b_norm);
    ggml_tensor* c = part(std::int64_t{plan.rank} + plan.states, plan.states, weights.c_norm);
    ggml_tensor* y = build_scan(builder, plan, weights, {x, dt, b, c});
    if (builder.only_state()) return y;
    y = ggml_add(context, y, ggml_mul(context, x, weights.through));
    ggml_tensor* z = builder.part(xz, channels, channels);
    return builder.product(ggml_swiglu_split(context, z, y), weights.out);
}

}  // namespace stet::model
