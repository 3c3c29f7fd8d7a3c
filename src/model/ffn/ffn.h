// The feed-forward of a layer: none, dense, or experts. Same pattern as mixers/mixer.h.
#pragma once

#include <variant>

#include "model/ffn/channel_mix.h"
#include "model/ffn/dense.h"
#include "model/ffn/moe.h"
#include "stet/status.h"

namespace stet::model {

struct NoFfn {};
using FfnPlan = std::variant<NoFfn, DensePlan, MoePlan, ChannelMixPlan>;
using FfnWeights = std::variant<NoFfn, DenseWeights, MoeWeights, ChannelMixWeights>;

struct ResolveContext;
class StepBuilder;
class Tensors;

Result<FfnPlan> resolve_ffn(const ResolveContext& context, std::size_t layer);
// Graph nodes that its build_ffn() may need beyond a usual layer's.
std::size_t extra_nodes(const FfnPlan& plan);
// Whether it has state, and so must see all tokens of a step.
bool keeps_state(const FfnPlan& plan);
Result<FfnWeights> load_ffn(Tensors& tensors, std::size_t layer, const FfnPlan& plan);
// -> f32 [width, tokens]: what the layer adds.
ggml_tensor* build_ffn(StepBuilder& builder, const FfnPlan& plan, const FfnWeights& weights,
                       const FfnInput& in);

}  // namespace stet::model
