// What stands between the matrices of a feed-forward: act(gate) * up (arXiv 2002.05202), or
// act(up).
#pragma once

#include <cstdint>

#include "model/architectures.h"
#include "model/keys.h"
#include "model/tensors.h"

namespace stet::model {

struct ActivationPlan {
    Activation kind = Activation::silu;
    SwigluClamp clamp_kind = SwigluClamp::none;
    float clamp = 0.0F;  // 0: not clamped
    // Gates below mean + sparsity * standard deviation of their token become 0 (Gemma 3n).
    float sparsity = 0.0F;
    // xIELU (arXiv 2411.13010).
    float xielu_alpha_n = 0.0F;
    float xielu_alpha_p = 0.0F;
    float xielu_beta = 0.0F;
    float xielu_epsilon = 0.0F;
    // SiTU (Kimi K3): bounds of gate and up; the latter 0: not bounded.
    float situ_gate = 0.0F;
    float situ_up = 0.0F;
};

// The key of the limits of dense feed-forwards and shared experts.
const char* shared_clamp_key(const Keys& keys, const Architecture& row);
// `clamp_key`: swiglu_clamp_exp or swiglu_clamp_shexp.
Result<ActivationPlan> resolve_activation(const Keys& keys, const Architecture& row,
                                          std::uint32_t layers, std::size_t layer,
                                          const char* clamp_key);

// gate is null where there is none. May be computed in place of both.
ggml_tensor* activate(ggml_context* context, const ActivationPlan& plan, ggml_tensor* gate,
                      ggml_tensor* up);

}  // namespace stet::model
