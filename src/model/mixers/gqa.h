// Grouped-query attention (arXiv 2305.13245), multi-head and multi-query as its ends.
//
//   q, k, v = W x;  q, k = rope(norm(q), norm(k));  W_o attention(q, K, V)
#pragma once

#include <cstdint>

#include "exec/attention.h"
#include "model/rope.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct GqaPlan {
    std::uint32_t heads = 0;
    std::uint32_t kv_heads = 0;
    std::uint32_t key_size = 0;    // of a head
    std::uint32_t value_size = 0;  // of a head
    Rope rope;
    float scale = 0.0F;    // of q . k
    float softcap = 0.0F;  // of scores; 0: none
    bool causal = true;
    exec::Window window_kind = exec::Window::none;
    std::uint32_t window = 0;  // tokens
    // Queries at position p are multiplied by 1 + scale * ln(1 + floor((p + offset) / length)).
    float temperature_scale = 0.0F;  // 0: not
    std::uint32_t temperature_length = 1;
    std::uint32_t temperature_offset = 0;
    PlaneSlot k, v;
};

struct GqaWeights {
    Linear qkv;  // fused, or q, k, v
    Linear q, k, v;
    Norm q_norm, k_norm;  // over a head
    Linear out;
    ggml_tensor* sinks = nullptr;  // f32 [heads]
};

Result<GqaPlan> resolve_gqa(const ResolveContext& context, std::size_t layer);
Result<GqaWeights> load(Tensors& tensors, std::size_t layer, const GqaPlan& plan);
ggml_tensor* build(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
