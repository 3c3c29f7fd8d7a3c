#include "model/mixers/mamba.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/try.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

ggml_tensor* build_scan(StepBuilder& builder, const MambaPlan& plan, const MambaWeights& weights,
                        std::array<ggml_tensor*, 4> inputs) {
    const exec::SsmScan scan{.heads = plan.heads,
                             .head_size = plan.channels / plan.heads,
                             .states = plan.states,
                             .groups = 1,
                             .decay_by_state = !plan.by_head()};
    return build_ssm_scan(builder, scan, plan.scan, weights.decay, inputs);
}

Result<MambaPlan> resolve_sizes(const ResolveContext& context) {
    const Keys& keys = context.keys;
    MambaPlan plan;
    STET_ASSIGN(plan.taps, resolve_taps(context, "ssm.conv_kernel"));
    STET_ASSIGN(plan.channels, keys.uint("ssm.inner_size", 1, kWidthMax));
    plan.heads = plan.channels;
    STET_ASSIGN(plan.states, keys.uint("ssm.state_size", 1, kHeadSizeMax));
    STET_ASSIGN(plan.conv, add_short_conv_state(context, plan.taps, plan.channels));
    STET_ASSIGN(plan.scan, add_state(context, "s", std::uint64_t{plan.channels} * plan.states));
    return plan;
}

// Both f32 [channels, tokens]; x may be strided.
struct Gated {
    ggml_tensor* x;
    ggml_tensor* z;
};

Gated project(StepBuilder& builder, const MambaPlan& plan, const MambaWeights& weights,
              ggml_tensor* u) {
    const std::int64_t channels = plan.channels;
    ggml_tensor* both = builder.product(u, weights.in);
    if (!plan.by_head()) {
        return {view_part(builder, both, 0, channels), builder.part(both, channels, channels)};
    }
    ggml_context* context = builder.context();
    const std::size_t size = plan.channels / plan.heads;
    const auto of_heads = [&](std::size_t which) {
        ggml_tensor* y = ggml_view_3d(context, both, static_cast<std::int64_t>(size), plan.heads,
                                      builder.tokens(), 2 * size * sizeof(float), both->nb[1],
                                      which * size * sizeof(float));
        return ggml_cont_2d(context, y, channels, builder.tokens());
    };
    return {of_heads(1), of_heads(0)};
}

// y + D * x
ggml_tensor* add_through(StepBuilder& builder, const MambaPlan& plan, const MambaWeights& weights,
                         ggml_tensor* y, ggml_tensor* x) {
    ggml_context* context = builder.context();
    if (!plan.by_head()) return ggml_add(context, y, ggml_mul(context, x, weights.through));
    const std::int64_t tokens = builder.tokens();
    ggml_tensor* heads =
        ggml_reshape_3d(context, x, plan.channels / plan.heads, plan.heads, tokens);
    heads = ggml_mul(context, heads, ggml_reshape_2d(context, weights.through, 1, plan.heads));
    return ggml_add(context, y, ggml_reshape_2d(context, heads, plan.channels, tokens));
}

}  // namespace

Result<MambaPlan> resolve_mamba(const ResolveContext& context, std::size_t /*layer*/) {
    const Keys& keys = context.keys;
    STET_ASSIGN(auto plan, resolve_sizes(context));
    STET_ASSIGN(plan.rank, keys.uint("ssm.time_step_rank", 1, kWidthMax));
    plan.weightless_norms = keys.flag_or("ssm.dt_b_c_rms", false);
    return plan;
}

Result<MambaPlan> resolve_plamo2(const ResolveContext& context, std::size_t /*layer*/) {
    constexpr std::uint32_t kRankMin = 64;
    constexpr std::uint32_t kWidthOverRank = 16;
    const Keys& keys = context.keys;
    STET_ASSIGN(auto plan, resolve_sizes(context));
    STET_ASSIGN(const auto heads, keys.uint("ssm.time_step_rank", 1, kHeadsMax));
    STET_ASSIGN(const auto groups, keys.uint_or("ssm.group_count", 0, 0, kHeadsMax));
    if (heads == plan.channels || plan.channels % heads != 0 || groups != 0) {
        return Status(Code::corruption,
                      fmt::format("{}: {} channels of {} state space heads in {} groups, expected "
                                  "heads of more than a channel and no groups",
                                  keys.file().path().string(), plan.channels, heads, groups));
    }
    plan.heads = heads;
    plan.rank = std::max(kRankMin, context.config.width / kWidthOverRank);
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
    STET_ASSIGN(weights.dt, tensors.linear(base + "dt", rank, plan.heads, Need::required));
    const Need norms = plan.by_head() ? Need::required : Need::optional;
    STET_ASSIGN(weights.dt_norm, tensors.norm(base + "dt_norm", rank, norms));
    STET_ASSIGN(weights.b_norm, tensors.norm(base + "b_norm", states, norms));
    STET_ASSIGN(weights.c_norm, tensors.norm(base + "c_norm", states, norms));
    if (plan.by_head()) {
        STET_ASSIGN(weights.decay, find_f32(tensors, base + "a", {plan.heads}, Need::required));
    } else {
        STET_ASSIGN(weights.decay,
                    find_f32(tensors, base + "a", {states, channels}, Need::required));
    }
    STET_ASSIGN(weights.through, find_f32(tensors, base + "d", {plan.heads}, Need::required));
    STET_ASSIGN(weights.out, tensors.linear(base + "out", channels, width, Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const MambaPlan& plan, const MambaWeights& weights,
                   ggml_tensor* u) {
    ggml_context* context = builder.context();
    const Gated gated = project(builder, plan, weights, u);
    ggml_tensor* x = build_short_conv(builder, plan.conv, weights.conv, gated.x);
    x = ggml_silu(context, x);
    ggml_tensor* chosen = builder.product(x, weights.x);
    const bool has_norms =
        plan.weightless_norms || (weights.dt_norm && weights.b_norm && weights.c_norm);
    const auto part = [&](std::int64_t offset, std::int64_t size, const Norm& norm) {
        ggml_tensor* y = builder.part(chosen, offset, size);
        return has_norms ? builder.rms_norm(y, norm) : y;
    };
    const std::int64_t states = plan.states;
    const std::int64_t dt_at = plan.by_head() ? 2 * states : 0;
    const std::int64_t b_at = plan.by_head() ? 0 : plan.rank;
    ggml_tensor* dt = builder.product(part(dt_at, plan.rank, weights.dt_norm), weights.dt);
    ggml_tensor* b = part(b_at, states, weights.b_norm);
    ggml_tensor* c = part(b_at + states, states, weights.c_norm);
    ggml_tensor* y = build_scan(builder, plan, weights, {x, dt, b, c});
    if (builder.only_state()) return y;
    y = add_through(builder, plan, weights, y, x);
    return builder.product(ggml_swiglu_split(context, gated.z, y), weights.out);
}

}  // namespace stet::model
