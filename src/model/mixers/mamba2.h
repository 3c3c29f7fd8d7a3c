// Mamba-2 (arXiv 2405.21060): state space models by head, with B and C shared by groups of heads.
//
//   z, xBC, dt = W_in u;  x, B, C = silu(conv(xBC))
//   y = scan(x, dt + bias, B, C) + D * x;  W_out norm(y * silu(z))   (exec/recurrent/ssm_scan.h)
//
// The norm, where there is one, is of each group's channels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/mixers/recurrent.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct Mamba2Plan {
    std::uint32_t heads = 0;
    std::uint32_t head_size = 0;
    std::uint32_t states = 0;  // of a channel
    std::uint32_t groups = 0;
    std::uint32_t taps = 0;
    PlaneSlot conv, scan;

    std::uint64_t channels() const { return std::uint64_t{heads} * head_size; }
    std::uint64_t shared() const { return std::uint64_t{groups} * states; }  // of B, and of C
};

struct Mamba2Weights {
    Linear in;  // to z, x, B, C and dt
    ShortConvWeights conv;
    ggml_tensor* dt_bias = nullptr;  // f32 [heads]
    ggml_tensor* decay = nullptr;    // f32 [1, heads], negative
    ggml_tensor* through = nullptr;  // D: f32 [1, heads]
    Norm norm;                       // [channels / groups, groups]
    Linear out;
};

Result<Mamba2Plan> resolve_mamba2(const ResolveContext& context, std::size_t layer);
Result<Mamba2Weights> load(Tensors& tensors, std::size_t layer, const Mamba2Plan& plan);
ggml_tensor* build(StepBuilder& builder, const Mamba2Plan& plan, const Mamba2Weights& weights,
                   ggml_tensor* u);

}  // namespace stet::model
