// The time mix of RWKV-7 (arXiv 2503.14456). With d = x of the token before - x:
//
//   w, a, g = low-rank functions of x + d * lerp;  r, k, v = W (x + d * lerp)
//   v = v + (v of the first layer - v) * sigmoid(low rank of x)          (not in the first layer)
//   n = unit(k * k_k);  k = k * (1 + (a - 1) * k_a)
//   y = wkv7(r, w, k, v, -n, n * a)                                      (exec/recurrent/wkv.h)
//   W_out (g * (head_norm(y) + v * sum(k * r * r_k)))                    (sum over a head)
//
// ARWKV (arXiv 2501.15570) may have neither g nor the norm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/mixers/rwkv.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct Rwkv7Plan {
    RwkvPlan base;
    std::uint32_t decay_rank = 0;
    std::uint32_t rate_rank = 0;   // of a
    std::uint32_t value_rank = 0;  // 0: the first layer, whose v the others mix in
    std::uint32_t gate_rank = 0;   // 0: no gate
};

struct Rwkv7Weights {
    // y = start + second f(first x).
    struct LowRank {
        Linear first, second;
        ggml_tensor* start = nullptr;  // f32 [width], or null
    };
    LowRank decay, rate, value, gate;
    ggml_tensor* lerp = nullptr;  // f32 [width, 1, 1, 5 or 6]: r, w, k, v, a, g
    ggml_tensor* k_k = nullptr;   // f32 [width]
    ggml_tensor* k_a = nullptr;   // f32 [width]
    ggml_tensor* r_k = nullptr;   // f32 [width]
    Linear r, k, v, out;
    Norm norm;
};

Result<Rwkv7Plan> resolve_rwkv7(const ResolveContext& context, std::size_t layer);
Result<Rwkv7Weights> load(Tensors& tensors, std::size_t layer, const Rwkv7Plan& plan);
ggml_tensor* build(StepBuilder& builder, const Rwkv7Plan& plan, const Rwkv7Weights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
