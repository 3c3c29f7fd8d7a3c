// The mixers: what carries information from token to token in a layer. Each has a file of its own
// with three types and three functions:
//
//   XPlan     hyper-parameters of one layer, and where its rows are
//   XWeights  its tensors
//   resolve_x(context, layer)          file -> plan; declares the planes of the layer's memory
//   load(tensors, layer, plan)         file -> weights, every shape checked
//   build(builder, plan, weights, x)   x f32 [width, tokens] (normed) -> f32 [width, tokens]
//
// To add one: its file, an enumerator of Mixer, its types here, a case in mixer.cpp.
#pragma once

#include <variant>

#include "model/mixers/compressed.h"
#include "model/mixers/delta_net.h"
#include "model/mixers/gated_conv.h"
#include "model/mixers/gqa.h"
#include "model/mixers/kda.h"
#include "model/mixers/lightning.h"
#include "model/mixers/mamba.h"
#include "model/mixers/mamba2.h"
#include "model/mixers/mla.h"
#include "model/mixers/projection.h"
#include "model/mixers/rwkv6.h"
#include "model/mixers/rwkv7.h"
#include "stet/status.h"

namespace stet::model {

using MixerPlan =
    std::variant<GqaPlan, MlaPlan, CompressedPlan, ProjectionPlan, GatedConvPlan, MambaPlan,
                 Mamba2Plan, Rwkv6Plan, Rwkv7Plan, DeltaNetPlan, KdaPlan, LightningPlan>;
using MixerWeights = std::variant<GqaWeights, MlaWeights, CompressedWeights, ProjectionWeights,
                                  GatedConvWeights, MambaWeights, Mamba2Weights, Rwkv6Weights,
                                  Rwkv7Weights, DeltaNetWeights, KdaWeights, LightningWeights>;

struct ResolveContext;
class StepBuilder;
class Tensors;

Result<MixerPlan> resolve_mixer(const ResolveContext& context, Mixer mixer, std::size_t layer);
Result<MixerWeights> load_mixer(Tensors& tensors, std::size_t layer, const MixerPlan& plan);
ggml_tensor* build_mixer(StepBuilder& builder, const MixerPlan& plan, const MixerWeights& weights,
                         ggml_tensor* x);

}  // namespace stet::model
