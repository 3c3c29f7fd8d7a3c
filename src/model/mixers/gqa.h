// Grouped-query attention (arXiv 2305.13245), multi-head and multi-query as its ends.
//
//   q, k, v = W x;  q, k = rope(norm(q), norm(k));  W_o (gate(x) * attention(q, K, V))
//
// A layer may have no keys and values of its own: it reads those of an earlier one.
#pragma once

#include <cstdint>
#include <optional>

#include "exec/attention.h"
#include "model/mixers/block_indexer.h"
#include "model/mixers/pooled_indexer.h"
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
    float alibi = 0.0F;    // greatest bias; 0: none
    bool causal = true;
    exec::Window window_kind = exec::Window::none;
    std::uint32_t window = 0;  // tokens
    // Queries at position p are multiplied by 1 + scale * ln(1 + floor((p + offset) / length)).
    float temperature_scale = 0.0F;  // 0: not
    std::uint32_t temperature_length = 1;
    std::uint32_t temperature_offset = 0;
    float clamp = 0.0F;  // of q, k and v as projected; 0: not
    bool norm_after_rope = false;
    bool weightless_q_norm = false;
    bool weightless_k_norm = false;
    bool weightless_v_norm = false;
    bool v_from_k = false;  // where attn_v is missing
    AttentionGate gate = AttentionGate::none;
    float output_scale = 1.0F;
    Biases biases = Biases::all;
    bool has_rows = true;                     // false: k and v are an earlier layer's
    std::optional<BlockIndexerPlan> indexer;  // at most one of both
    std::optional<PooledIndexerPlan> pooled_indexer;
    PlaneSlot k, v;

    // What attn_q gives for each head.
    std::uint64_t query_columns() const {
        return std::uint64_t{key_size} * (gate == AttentionGate::in_queries ? 2 : 1);
    }
};

struct GqaWeights {
    Linear qkv;  // fused, or q, k, v
    Linear q, k, v;
    // Weight [key_size], [key_size, heads], [1, heads], or [key_size * heads] over all heads at
    // once.
    Norm q_norm, k_norm;
    Norm sub_norm;  // before out
    Linear gate;    // to heads, or to heads * value_size
    Linear out;
    ggml_tensor* sinks = nullptr;  // f32 [heads]
    BlockIndexerWeights indexer;
    PooledIndexerWeights pooled_indexer;
};

Result<GqaPlan> resolve_gqa(const ResolveContext& context, std::size_t layer);
Result<GqaWeights> load(Tensors& tensors, std::size_t layer, const GqaPlan& plan);
ggml_tensor* build(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
