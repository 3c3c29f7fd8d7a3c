// Lightning indexer (DeepSeek-V3.2): chooses the rows that a layer of latent attention attends to.
//
//   q = rope(W_q_b c_q) of each indexer head;  k = rope(norm(W_k x));  w = W_w x / sqrt(size *
//   heads) the top_k rows of highest sum_h w_h * max(0, q_h . k)
//
// c_q is what attention makes its own queries of. Both q and k go through the same orthonormal
// Hadamard matrix in most models; that changes no score, but it is how rows of a state are kept.
// Layers without an indexer of their own use what the last one before them chose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "exec/graph.h"
#include "model/rope.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct IndexerPlan {
    bool is_own = true;  // false: an earlier layer's choice
    std::uint32_t heads = 0;
    std::uint32_t key_size = 0;
    std::uint32_t rows_max = 0;  // chosen
    Rope rope;
    bool rotates_last = false;   // the last dimensions rotate, not the first
    std::uint32_t hadamard = 0;  // size of the matrix, which divides key_size; 0: none
    float norm_epsilon = 0.0F;
    std::uint32_t ratio = 1;  // > 1: rows of so many tokens, which are not made here
    PlaneSlot k;
};

struct IndexerWeights {
    Linear q;        // from c_q, to heads * key_size
    Linear k;        // to key_size
    Norm k_norm;     // layer norm
    Linear weights;  // to heads
};

// Size of the Hadamard matrix for heads of `size`: 0 where the architecture has none.
Result<std::uint32_t> hadamard_size(const ResolveContext& context, std::uint32_t size);
// Whether the layer chooses itself (IndexerLayers).
Result<bool> has_own_indexer(const ResolveContext& context, std::size_t layer);
// That a layer before this one has chosen.
Status check_earlier_choice(const ResolveContext& context, std::size_t layer);
// Nothing in layers that attend to all they see. `rope` is that of the layer's attention.
Result<std::optional<IndexerPlan>> resolve_indexer(const ResolveContext& context, std::size_t layer,
                                                   const Rope& rope);
// query_rank: size of c_q.
Result<IndexerWeights> load_indexer(Tensors& tensors, std::size_t layer, const IndexerPlan& plan,
                                    std::uint64_t query_rank);
// Appends the layer's indexer keys.
ggml_tensor* append_indexer_keys(StepBuilder& builder, const IndexerPlan& plan,
                                 const IndexerWeights& weights, ggml_tensor* x);
// The layer's choice; `appended` is what append_indexer_keys() gave.
exec::Graph::Selected build_indexer(StepBuilder& builder, const IndexerPlan& plan,
                                    const IndexerWeights& weights, ggml_tensor* x,
                                    ggml_tensor* query_input, ggml_tensor* appended);

}  // namespace stet::model
