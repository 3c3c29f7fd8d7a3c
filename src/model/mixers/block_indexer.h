// Block-sparse attention (MiniMax-M3): each K/V head attends to the blocks of tokens whose best row
// has the highest score, and to the last blocks.
//
//   q_g = rope(norm(W_q x)) of each K/V head g;  k = rope(norm(W_k x));  score(row) = q_g . k
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

struct BlockIndexerPlan {
    std::uint32_t heads = 0;  // as many as K/V heads
    std::uint32_t key_size = 0;
    exec::SelectionShape rule;
    Rope rope;
    PlaneSlot k;
};

struct BlockIndexerWeights {
    Linear q, k;
    Norm q_norm, k_norm;
};

// Nothing in layers without indexer.q_proj. `rope` is that of the layer's attention.
Result<std::optional<BlockIndexerPlan>> resolve_block_indexer(const ResolveContext& context,
                                                              std::size_t layer,
                                                              std::uint32_t kv_heads,
                                                              const Rope& rope);
Result<BlockIndexerWeights> load_block_indexer(Tensors& tensors, std::size_t layer,
                                               const BlockIndexerPlan& plan);
ggml_tensor* append_block_keys(StepBuilder& builder, const BlockIndexerPlan& plan,
                               const BlockIndexerWeights& weights, ggml_tensor* x);
exec::Graph::Selected build_block_indexer(StepBuilder& builder, const BlockIndexerPlan& plan,
                                          const BlockIndexerWeights& weights, ggml_tensor* x,
                                          ggml_tensor* appended);

}  // namespace stet::model
