// The time mix of RWKV-6 (arXiv 2404.05892). With d = x of the token before - x, and for each of
// w, k, v, r, g a mix of both that the input chooses:
//
//   m_i = x + d * (lerp_i + low rank_i of (x + d * lerp_x))
//   r, k, v = W m;  w = exp(-exp(decay + low rank of m_w));  y = wkv6(r, w, k, v, first)
//   W_out (head_norm(y) * silu(W_g m_g))                              (exec/recurrent/wkv.h)
//
// Without `first` (QRWKV6, arXiv 2501.15570): k = k * (1 - w), fewer heads of k and v, gated linear
// attention, no norm, and a sigmoid in place of silu.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/mixers/rwkv.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct Rwkv6Plan {
    RwkvPlan base;
    std::uint32_t kv_heads = 0;
    std::uint32_t mix_rank = 0;
    std::uint32_t decay_rank = 0;
    bool is_gated = false;  // gated linear attention
};

struct Rwkv6Weights {
    static constexpr std::size_t kMixes = 5;  // w, k, v, r, g

    Linear mix_first;                             // [width, mix_rank * 5]
    ggml_tensor* mix_second = nullptr;            // [mix_rank, width, 5]
    ggml_tensor* lerp_x = nullptr;                // f32 [width]
    std::array<ggml_tensor*, kMixes> lerps = {};  // f32 [width], or one in the first place:
    bool is_fused = false;                        // f32 [width, 1, 1, 5]
    ggml_tensor* first = nullptr;                 // f32 [head_size, heads]
    ggml_tensor* decay = nullptr;                 // f32 [width]
    Linear decay_first, decay_second;
    Linear r, k, v, gate, out;
    Norm norm;
};

Result<Rwkv6Plan> resolve_rwkv6(const ResolveContext& context, std::size_t layer);
Result<Rwkv6Weights> load(Tensors& tensors, std::size_t layer, const Rwkv6Plan& plan);
ggml_tensor* build(StepBuilder& builder, const Rwkv6Plan& plan, const Rwkv6Weights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
