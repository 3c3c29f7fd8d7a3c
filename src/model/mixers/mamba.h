// Mamba (arXiv 2312.00752): a selective state space model of each channel.
//
//   x, z = W_in u;  x = silu(conv(x));  dt, B, C = W_x x (each normed: FalconMamba, Jamba)
//   y = scan(x, W_dt dt, B, C) + D * x;  W_out (y * silu(z))      (exec/recurrent/ssm_scan.h)
//
// PLaMo 2 has heads whose channels decay together and share D; W_in gives z and x of each head in
// turn, and W_x B, C, dt.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/mixers/recurrent.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct MambaPlan {
    std::uint32_t channels = 0;
    std::uint32_t heads = 0;   // = channels, unless they decay together
    std::uint32_t states = 0;  // of a channel
    std::uint32_t taps = 0;
    std::uint32_t rank = 0;  // of dt
    bool weightless_norms = false;
    PlaneSlot conv, scan;

    bool by_head() const { return heads != channels; }
};

struct MambaWeights {
    Linear in;  // to x and z, or z and x
    ShortConvWeights conv;
    Linear x;  // to dt [rank], B and C [states], or B, C and dt
    Norm dt_norm, b_norm, c_norm;
    Linear dt;                       // [rank, heads]
    ggml_tensor* decay = nullptr;    // negative: f32 [states, channels], or [heads]
    ggml_tensor* through = nullptr;  // D: f32 [heads]
    Linear out;
};

Result<MambaPlan> resolve_mamba(const ResolveContext& context, std::size_t layer);
Result<MambaPlan> resolve_plamo2(const ResolveContext& context, std::size_t layer);
Result<MambaWeights> load(Tensors& tensors, std::size_t layer, const MambaPlan& plan);
ggml_tensor* build(StepBuilder& builder, const MambaPlan& plan, const MambaWeights& weights,
                   ggml_tensor* u);

}  // namespace stet::model
