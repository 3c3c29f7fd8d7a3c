#include "model/ffn/ffn.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/config.h"

namespace stet::model {
namespace {

// A router says that a layer has experts.
bool has_experts(const ResolveContext& context, std::size_t layer) {
    const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", layer);
    return context.keys.file().find_tensor(router) != nullptr;
}

Result<FfnWeights> load_one(Tensors&, std::size_t, const NoFfn&) {
    return FfnWeights(NoFfn());
}

Result<FfnWeights> load_one(Tensors& tensors, std::size_t layer, const DensePlan& plan) {
    STET_ASSIGN(auto weights, load_dense(tensors, layer, plan, ""));
    return FfnWeights(std::move(weights));
}

Result<FfnWeights> load_one(Tensors& tensors, std::size_t layer, const MoePlan& plan) {
    STET_ASSIGN(auto weights, load(tensors, layer, plan));
    return FfnWeights(std::move(weights));
}

Result<FfnWeights> load_one(Tensors& tensors, std::size_t layer, const ChannelMixPlan& plan) {
    STET_ASSIGN(auto weights, load_channel_mix(tensors, layer, plan));
    return FfnWeights(std::move(weights));
}

}  // namespace

Result<FfnPlan> resolve_ffn(const ResolveContext& context, std::size_t layer) {
    if (context.row.blocks == Blocks::mixer) return FfnPlan(NoFfn());
    if (has_channel_mix(context, layer)) {
        STET_ASSIGN(auto plan, resolve_channel_mix(context, layer));
        return FfnPlan(std::move(plan));
    }
    const bool is_moe = has_experts(context, layer);
    if (is_moe && context.row.reads_experts) {
        STET_ASSIGN(auto plan, resolve_moe(context, layer));
        return FfnPlan(std::move(plan));
    }
    STET_ASSIGN(auto plan, resolve_dense(context, layer));
    plan.is_bare = is_moe;
    if (plan.size != 0) return FfnPlan(std::move(plan));
    if (context.row.blocks == Blocks::both) return context.keys.missing("feed_forward_length");
    return FfnPlan(NoFfn());
}

std::size_t extra_nodes(const FfnPlan& plan) {
    const auto* moe = std::get_if<MoePlan>(&plan);
    constexpr std::size_t kNodesPerExpert = 2;  // a view and a sum
    return moe == nullptr ? 0 : kNodesPerExpert * moe->used * (moe->chunk != 0 ? 2 : 1);
}

bool keeps_state(const FfnPlan& plan) {
    return std::holds_alternative<ChannelMixPlan>(plan);
}

Result<FfnWeights> load_ffn(Tensors& tensors, std::size_t layer, const FfnPlan& plan) {
    return std::visit([&](const auto& chosen) { return load_one(tensors, layer, chosen); }, plan);
}

ggml_tensor* build_ffn(StepBuilder& builder, const FfnPlan& plan, const FfnWeights& weights,
                       const FfnInput& in) {
    if (const auto* dense = std::get_if<DensePlan>(&plan)) {
        return build(builder, *dense, std::get<DenseWeights>(weights), in.normed);
    }
    if (const auto* mix = std::get_if<ChannelMixPlan>(&plan)) {
        return build(builder, *mix, std::get<ChannelMixWeights>(weights), in.normed);
    }
    return build(builder, std::get<MoePlan>(plan), std::get<MoeWeights>(weights), in);
}

}  // namespace stet::model
