// Lightning attention (arXiv 2401.04658), as MiniMax-Text-01 has it (arXiv 2501.08313).
//
//   q, k, v = silu(W_qkv x);  y = linear attention of q, k, v with a fixed decay of each head
//   W_o (sigmoid(W_g x) * norm(y)), the norm over all heads at once
//
// Head h of layer l decays by exp(-slope): slope = 2^(-8 (h + 1) / heads) * (1 - l / (layers - 1)),
// plus 1e-5 so that the last layer decays too (exec/recurrent/linear_attention.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/mixers/recurrent.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct LightningPlan {
    std::uint32_t heads = 0;
    std::uint32_t size = 0;     // of a head
    float slope_factor = 0.0F;  // of this layer
    PlaneSlot state;

    std::uint64_t channels() const { return std::uint64_t{heads} * size; }
};

struct LightningWeights {
    Linear qkv;  // q, k and v of each head, head after head
    Norm norm;   // [channels]
    Linear gate;
    Linear out;
};

Result<LightningPlan> resolve_lightning(const ResolveContext& context, std::size_t layer);
Result<LightningWeights> load(Tensors& tensors, std::size_t layer, const LightningPlan& plan);
ggml_tensor* build(StepBuilder& builder, const LightningPlan& plan, const LightningWeights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
