// Gated DeltaNet (arXiv 2412.06464), as Qwen3-Next and Qwen3.5 have it.
//
//   q, k, v = silu(conv(W_qkv x));  z = W_z x;  q, k at unit length
//   beta = sigmoid(W_b x);  decay = exp(a * softplus(W_a x + dt)), a < 0
//   y = delta rule of q, k, v, decay, beta    (exec/recurrent/linear_attention.h)
//   W_o (norm(y) * silu(z)), the norm over a head; Qwen4: sigmoid(z)
//
// Files differ in how projections are put together: ssm_in holds q, k, v and z by key head (older
// files of Qwen3-Next), ssm_ba holds beta and decay by key head.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/recurrent/linear_attention.h"
#include "model/mixers/recurrent.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct DeltaNetPlan {
    std::uint32_t heads = 0;  // of v
    std::uint32_t key_heads = 0;
    exec::KeyHeads key_order = exec::KeyHeads::grouped;
    std::uint32_t size = 0;  // of a head
    std::uint32_t taps = 0;
    bool sigmoid_gate = false;  // sigmoid(z), not silu(z)
    PlaneSlot conv, state;

    std::uint64_t keys() const { return std::uint64_t{key_heads} * size; }
    std::uint64_t values() const { return std::uint64_t{heads} * size; }
};

struct DeltaNetWeights {
    Linear qkv, z;  // or
    Linear in;      // all four, by key head
    Linear beta, decay;
    Linear both;  // or both of them, by key head
    ShortConvWeights conv;
    ggml_tensor* dt = nullptr;  // f32 [heads]
    ggml_tensor* a = nullptr;   // f32 [heads], negative
    Norm norm;                  // [size]
    Linear out;
};

Result<DeltaNetPlan> resolve_delta_net(const ResolveContext& context, std::size_t layer);
Result<DeltaNetWeights> load(Tensors& tensors, std::size_t layer, const DeltaNetPlan& plan);
ggml_tensor* build(StepBuilder& builder, const DeltaNetPlan& plan, const DeltaNetWeights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
