// Kimi Delta Attention (arXiv 2510.26692): the gated delta rule with a decay for each column.
//
//   q, k, v = silu(conv(W x));  q, k at unit length;  beta = sigmoid(W_b x)
//   f = W_f x + dt, W_f maybe of low rank
//   decay = exp(a * softplus(f)), or bounded from below: exp(bound * sigmoid(|a| * f))
//   y = delta rule of q, k, v, decay, beta    (exec/recurrent/linear_attention.h)
//   W_o (norm(y) * sigmoid(W_g x)), the norm over a head, W_g maybe of low rank
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/mixers/recurrent.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct KdaPlan {
    std::uint32_t heads = 0;
    std::uint32_t size = 0;  // of a head
    std::uint32_t taps = 0;
    float bound = 0.0F;       // of log decay; 0: none
    float epsilon = 0.0F;     // of the lengths of q and k
    bool positive_a = false;  // the file's a is not negated
    PlaneSlot conv, state;    // conv: q, k, v one after the other

    std::uint64_t channels() const { return std::uint64_t{heads} * size; }
};

struct KdaWeights {
    Linear qkv;  // fused, or q, k, v
    Linear q, k, v;
    std::array<ShortConvWeights, 3> convs;  // of q, k, v
    Linear decay_down, decay;               // down: to [size], where it is of low rank
    Linear gate_down, gate;
    Linear beta;
    ggml_tensor* dt = nullptr;  // f32 [channels]
    ggml_tensor* a = nullptr;   // f32 [heads]
    Norm norm;                  // [size]
    Linear out;
};

Result<KdaPlan> resolve_kda(const ResolveContext& context, std::size_t layer);
Result<KdaWeights> load(Tensors& tensors, std::size_t layer, const KdaPlan& plan);
ggml_tensor* build(StepBuilder& builder, const KdaPlan& plan, const KdaWeights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
