// The gated short convolution of LFM2 (arXiv 2511.23404):
//
//   B, C, x = W_in u;  W_out (C * conv(B * x))            (exec/recurrent/short_conv.h)
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/mixers/recurrent.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct GatedConvPlan {
    std::uint32_t taps = 0;
    PlaneSlot conv;
};

struct GatedConvWeights {
    Linear in;
    ShortConvWeights conv;
    Linear out;
};

Result<GatedConvPlan> resolve_gated_conv(const ResolveContext& context, std::size_t layer);
Result<GatedConvWeights> load(Tensors& tensors, std::size_t layer, const GatedConvPlan& plan);
ggml_tensor* build(StepBuilder& builder, const GatedConvPlan& plan, const GatedConvWeights& weights,
                   ggml_tensor* u);

}  // namespace stet::model
