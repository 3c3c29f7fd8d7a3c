#include "model/mixers/block_indexer.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

constexpr std::uint32_t kBlocksMax = 1U << 24;
constexpr std::uint32_t kBlockRowsMax = 1U << 16;

ggml_tensor* heads(StepBuilder& builder, const BlockIndexerPlan& plan, const Linear& linear,
                   const Norm& norm, std::uint32_t count, ggml_tensor* x) {
    ggml_tensor* y = builder.product(x, linear);
    y = ggml_reshape_3d(builder.context(), y, plan.key_size, count, builder.tokens());
    return builder.rotate(builder.norm(y, norm), plan.rope);
}

}  // namespace

Result<std::optional<BlockIndexerPlan>> resolve_block_indexer(const ResolveContext& context,
                                                              std::size_t layer,
                                                              std::uint32_t kv_heads,
                                                              const Rope& rope) {
    const Keys& keys = context.keys;
    const std::string name = fmt::format("blk.{}.indexer.q_proj.weight", layer);
    if (keys.file().find_tensor(name) == nullptr) return std::optional<BlockIndexerPlan>();
    BlockIndexerPlan plan;
    STET_ASSIGN(plan.heads, keys.uint("attention.indexer.head_count", kv_heads, kv_heads));
    STET_ASSIGN(plan.key_size,
                keys.uint("attention.indexer.key_length", rope.dimensions, kHeadSizeMax));
    plan.rope = rope;
    plan.rule.choosers = plan.heads;
    STET_ASSIGN(plan.rule.blocks_max, keys.uint("attention.indexer.top_k", 1, kBlocksMax));
    STET_ASSIGN(plan.rule.block_rows, keys.uint("attention.indexer.block_size", 1, kBlockRowsMax));
    STET_ASSIGN(plan.rule.local_blocks, keys.uint("attention.indexer.local_blocks", 0, kBlocksMax));
    SchemaBuilder& schema = context.schema;
    STET_ASSIGN(plan.k, schema.add("indexer", memory::Lifetime::tokens, 0, "k", context.slot,
                                   schema.types().k, plan.key_size));
    return std::optional(plan);
}

Result<BlockIndexerWeights> load_block_indexer(Tensors& tensors, std::size_t layer,
                                               const BlockIndexerPlan& plan) {
    using Need = Tensors::Need;
    const std::string base = fmt::format("blk.{}.indexer.", layer);
    const std::uint64_t width = tensors.width();
    BlockIndexerWeights weights;
    STET_ASSIGN(weights.q,
                tensors.linear(base + "q_proj", width, std::uint64_t{plan.heads} * plan.key_size,
                               Need::required));
    STET_ASSIGN(weights.k, tensors.linear(base + "k_proj", width, plan.key_size, Need::required));
    STET_ASSIGN(weights.q_norm, tensors.norm(base + "q_norm", plan.key_size, Need::required));
    STET_ASSIGN(weights.k_norm, tensors.norm(base + "k_norm", plan.key_size, Need::required));
    return weights;
}

ggml_tensor* append_block_keys(StepBuilder& builder, const BlockIndexerPlan& plan,
                               const BlockIndexerWeights& weights, ggml_tensor* x) {
    ggml_tensor* k = heads(builder, plan, weights.k, weights.k_norm, 1, x);
    k = ggml_reshape_2d(builder.context(), k, plan.key_size, builder.tokens());
    return builder.graph().append_rows(k, builder.plane(plan.k), plan.k.group);
}

exec::Graph::Selected build_block_indexer(StepBuilder& builder, const BlockIndexerPlan& plan,
                                          const BlockIndexerWeights& weights, ggml_tensor* x,
                                          ggml_tensor* appended) {
    ggml_tensor* q = heads(builder, plan, weights.q, weights.q_norm, plan.heads, x);
    const exec::IndexerShape shape{plan.heads, plan.key_size, builder.plane(plan.k)};
    const std::array<ggml_tensor*, 1> after = {appended};
    return builder.graph().select_rows(q, nullptr, shape, plan.rule, plan.k.group, after);
}

}  // namespace stet::model
