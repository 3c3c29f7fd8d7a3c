// RWKV's feed-forward, which sees the token before (arXiv 2404.05892, 2503.14456). With d = x of
// the token before - x:
//
//   y = W_v relu(W_k (x + d * lerp_k))^2;  RWKV-6: times sigmoid(W_r (x + d * lerp_r))
//
// Its state is the second row of the "r" plane that the layer's mixer declared.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct ChannelMixPlan {
    std::uint32_t size = 0;
    PlaneSlot shift;
};

struct ChannelMixWeights {
    ggml_tensor* lerp_k = nullptr;  // f32 [width]
    ggml_tensor* lerp_r = nullptr;  // f32 [width], or null
    Linear k, v;
    Linear r;  // or none
};

bool has_channel_mix(const ResolveContext& context, std::size_t layer);
Result<ChannelMixPlan> resolve_channel_mix(const ResolveContext& context, std::size_t layer);
Result<ChannelMixWeights> load_channel_mix(Tensors& tensors, std::size_t layer,
                                           const ChannelMixPlan& plan);
// x of all tokens of the step: state has to be brought up to date. When only that is wanted the
// result has no meaning.
ggml_tensor* build(StepBuilder& builder, const ChannelMixPlan& plan,
                   const ChannelMixWeights& weights, ggml_tensor* x);

}  // namespace stet::model
