// The residual streams of Gemma 3n: alternating updates (AltUp, arXiv 2301.13310) over several
// copies of the residual stream, of which one goes through each layer, with a low-rank residual
// beside attention (LAuReL, arXiv 2411.07501).
//
//   p_i = x_i + sum_j P_ij x_j                         prediction of every stream
//   y   = layer(p_active)                              with LAuReL: (attention + low rank) /
//   sqrt(2) x_i = p_i + (1 + C_i) (y - p_active)               correction; streams other than the
//   first get
//                                                      what the layer makes of its own embedding
// P and C are linear in tanh(W norm(active stream)).
#pragma once

#include "model/config.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

class StepBuilder;
struct LayerWeights;

struct AltupWeights {
    ggml_tensor* spread = nullptr;   // [width, width, streams - 1]: embedding -> other streams
    ggml_tensor* collect = nullptr;  // the same, back
};

struct AltupLayerWeights {
    Norm router_norm;
    Linear router;                         // to streams
    Linear predict;                        // streams -> streams * streams
    Linear correct;                        // streams -> streams
    ggml_tensor* correct_scale = nullptr;  // f32 [width]
    Linear low, high;                      // LAuReL, down and up
    Norm low_rank_norm;
};

Result<AltupWeights> load_altup(Tensors& tensors, const Config& config);
Result<AltupLayerWeights> load_altup_layer(Tensors& tensors, const Config& config,
                                           std::size_t layer);

// The embedding x [width, tokens] through all layers, [width, outputs]. `for_layers` is what layers
// get of the tokens, [layer embedding, layers, tokens]. Null when the step only fills the state;
// `last_with_rows` is the last layer that has any.
ggml_tensor* build_altup(StepBuilder& builder, ggml_tensor* x, ggml_tensor* for_layers,
                         std::size_t last_with_rows);

}  // namespace stet::model
