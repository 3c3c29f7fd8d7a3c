// Pooled indexer (GLM 5 Next; Qwen4's QSA): of every `ratio` tokens one key is made, and each query
// chooses among those. Attention reads the tokens of the chosen ones and the last tokens, which no
// pooled key has yet.
//
//   GLM 5 Next:  q = W_q_b c_q;  k = norm(W_k x), gate = W_g x, kept for each token;
//                pooled = softmax over the tokens of (gate + b) weighs k;  w = W_w x
//   Qwen4:       q = rope(norm(W_q x));  k = W_k x, kept;
//                pooled = rope(norm(mean of k)), at the place of the first token;  w = 1
//
// The top_k / ratio keys of highest sum_h w_h * max(0, q_h . pooled) are chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "exec/graph.h"
#include "model/architectures.h"
#include "model/rope.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct PooledIndexerPlan {
    KeyPools kind = KeyPools::none;
    bool is_own = true;  // false: an earlier layer's choice
    std::uint32_t heads = 0;
    std::uint32_t key_size = 0;
    std::uint32_t ratio = 1;
    std::uint32_t pools_max = 0;  // chosen
    float norm_epsilon = 0.0F;    // of GLM's layer norm
    Rope rope;                    // of queries and pooled keys; GLM: none
    PlaneSlot key, gate, pooled;  // gate: GLM only
};

struct PooledIndexerWeights {
    Linear q;        // from c_q or x, to heads * key_size
    Linear k;        // to key_size
    Linear gate;     // the same
    Linear weights;  // to heads
    Norm q_norm, k_norm;
    ggml_tensor* bias = nullptr;  // [key_size, ratio]
};

// Nothing in layers that attend to all they see. `rope` is that of the layer's attention.
Result<std::optional<PooledIndexerPlan>> resolve_pooled_indexer(const ResolveContext& context,
                                                                std::size_t layer,
                                                                const Rope& rope);
// query_rank: size of c_q.
Result<PooledIndexerWeights> load_pooled_indexer(Tensors& tensors, std::size_t layer,
                                                 const PooledIndexerPlan& plan,
                                                 std::uint64_t query_rank);
// Appends the tokens' keys and the pooled ones that they complete.
ggml_tensor* append_pooled_keys(StepBuilder& builder, const PooledIndexerPlan& plan,
                                const PooledIndexerWeights& weights, ggml_tensor* x);
// The layer's choice; `appended` is what append_pooled_keys() gave, query_input is c_q or x.
exec::Graph::Selected build_pooled_indexer(StepBuilder& builder, const PooledIndexerPlan& plan,
                                           const PooledIndexerWeights& weights, ggml_tensor* x,
                                           ggml_tensor* query_input, ggml_tensor* appended);

}  // namespace stet::model
