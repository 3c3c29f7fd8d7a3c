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

}  // namespace

Result<FfnPlan> resolve_ffn(const ResolveContext& context, std::size_t layer) {
    if (has_experts(context, layer)) {
        STET_ASSIGN(auto plan, resolve_moe(context, layer));
        return FfnPlan(std::move(plan));
    }
    STET_ASSIGN(const auto sizes,
                context.keys.per_layer("feed_forward_length", context.layers,
                                       std::vector<std::uint32_t>(context.layers, 0), kWidthMax));
    if (sizes[layer] == 0) return FfnPlan(NoFfn());
    return FfnPlan(DensePlan{.size = sizes[layer], .activation = context.row.activation});
}

Result<FfnWeights> load_ffn(Tensors& tensors, std::size_t layer, const FfnPlan& plan) {
    return std::visit([&](const auto& chosen) { return load_one(tensors, layer, chosen); }, plan);
}

ggml_tensor* build_ffn(StepBuilder& builder, const FfnPlan& plan, const FfnWeights& weights,
                       ggml_tensor* x) {
    if (const auto* dense = std::get_if<DensePlan>(&plan)) {
        return build(builder, *dense, std::get<DenseWeights>(weights), x);
    }
    return build(builder, std::get<MoePlan>(plan), std::get<MoeWeights>(weights), x);
}

}  // namespace stet::model
