// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads come
// from one short row a token, so only that row is kept.
//
//   c, k_r = split(W_kv_a x);  c = norm(c);  k_r = rope(k_r)
//   q = W_q x, or W_q_b norm(W_q_a x);  of each head: q_n, q_r = split(q);  q_r = rope(q_r)
//
// Absorbed (files with attn_k_b and attn_v_b): the row [c, k_r] is key and, in its first part,
// value of one K/V head: the query is [W_k_b q_n, q_r], and W_v_b opens what attention gives.
// Opened (older files with attn_kv_b): k_n, v of each head = split(W_kv_b c), k = [k_n, k_r], kept
// as rows of plain multi-head attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "exec/attention.h"
#include "model/architectures.h"
#include "model/mixers/indexer.h"
#include "model/mixers/pooled_indexer.h"
#include "model/rope.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct MlaPlan {
    std::uint32_t heads = 0;
    std::uint32_t query_rank = 0;  // 0: queries come straight from x
    std::uint32_t row_rank = 0;    // of c
    std::uint32_t key_size = 0;    // of a head, opened: plain_size() + rope_size
    std::uint32_t value_size = 0;  // of a head, opened
    std::uint32_t rope_size = 0;   // of k_r, whether it is rotated or not; 0: there is none
    bool is_absorbed = true;
    Rope rope;
    float scale = 0.0F;
    float temperature_scale = 0.0F;  // as in GqaPlan, from position 0; 0: not
    std::uint32_t temperature_length = 1;
    exec::Window window_kind = exec::Window::none;
    std::uint32_t window = 0;  // tokens
    AttentionGate gate = AttentionGate::none;
    std::optional<IndexerPlan> indexer;  // absorbed rows only; at most one of both
    std::optional<PooledIndexerPlan> pooled_indexer;
    PlaneSlot k;
    PlaneSlot v;  // opened only

    std::uint32_t plain_size() const { return key_size - rope_size; }
    bool has_own_choice() const {
        return (indexer && indexer->is_own) || (pooled_indexer && pooled_indexer->is_own);
    }
};

struct MlaWeights {
    Linear q;                      // straight
    Linear q_a, q_b;               // or over query_rank
    Norm q_a_norm;                 // [query_rank]
    Linear kv_a;                   // to row_rank + rope_size
    Norm kv_a_norm;                // [row_rank]
    Norm k_norm;                   // [rope_size], of k_r, before it is rotated
    ggml_tensor* k_b = nullptr;    // [plain_size, row_rank, heads]
    ggml_tensor* v_b = nullptr;    // [row_rank, value_size, heads]
    Linear kv_b;                   // opened: to heads * (plain_size + value_size)
    Linear gate;                   // to heads, or to heads * value_size
    ggml_tensor* sinks = nullptr;  // f32 [heads]
    IndexerWeights indexer;
    PooledIndexerWeights pooled_indexer;
    Linear out;
};

Result<MlaPlan> resolve_mla(const ResolveContext& context, std::size_t layer);
Result<MlaWeights> load(Tensors& tensors, std::size_t layer, const MlaPlan& plan);
ggml_tensor* build(StepBuilder& builder, const MlaPlan& plan, const MlaWeights& weights,
                   ggml_tensor* x);

}  // namespace stet::model
