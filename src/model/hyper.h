// Hyper-connections (arXiv 2409.19606; manifold-constrained: arXiv 2512.24880): several residual
// streams h_i, of which each branch reads a mix and to which it writes.
//
//   m = W rms_norm(all streams of a token);  pre = sigmoid(s0 m_pre + b_pre) + eps
//   y = branch(norm(sum_i pre_i h_i));  h_i = post_i y + sum_j C_ij h_j
//   sinkhorn (DeepSeek-V4):    post = 2 sigmoid(s1 m_post + b_post); C doubly stochastic, by some
//                              steps of normalising exp(s2 m_C + b_C) by rows and columns
//   independent (Hunyuan V4):  post = magnitude sigmoid(s1 m_post + b_post) + eps; C is the
//   identity
//
// At the start all streams are the embedding; at the end sum_i pre_i h_i with weights of its own,
// or their mean (GLM 5 Next).
#pragma once

#include <cstddef>
#include <string>

#include "model/config.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

class StepBuilder;

// Low rank (Qwen4), with n_i = norm(h_i) and weights for each stream:
//
//   g = sigmoid(W_up silu(W_down n / streams));  y = branch(mean_i g_i n_i)
//   h_i += 2 sigmoid(W_inject n / streams)_i y
struct HyperWeights {
    ggml_tensor* mixes = nullptr;  // W [streams * width, pre, post and C]
    ggml_tensor* base = nullptr;   // f32 b
    ggml_tensor* scale = nullptr;  // f32 s
    // Low rank.
    ggml_tensor* norm = nullptr;  // f32 [width, streams]
    Linear down, up;              // streams * width -> rank -> streams * width
    Linear inject;                // to streams; not at the end
};

Result<Hyper> resolve_hyper(const Keys& keys, const Architecture& row);
// `name`: blk.N.hc_attn, blk.N.hc_ffn, or output_hc, which only has pre.
Result<HyperWeights> load_hyper(Tensors& tensors, const Config& config, const std::string& name);

// A weight of each stream's norm, f32 [width, streams] or [width * streams].
Result<ggml_tensor*> find_stream_norm(Tensors& tensors, const Config& config,
                                      const std::string& name);

// The embedding x [width, tokens] through all layers, [width, outputs]. Null when the step only
// fills the state; `last_with_rows` is the last layer that has any.
ggml_tensor* build_hyper(StepBuilder& builder, ggml_tensor* x, std::size_t last_with_rows);

}  // namespace stet::model
