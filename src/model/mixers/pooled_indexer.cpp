#include "model/mixers/pooled_indexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/try.h"
#include "exec/sparse/pooled_keys.h"
#include "model/config.h"
#include "model/mixers/indexer.h"
#include "model/mixers/recurrent.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

constexpr std::uint32_t kRowsMax = 1U << 24;
constexpr std::uint32_t kRatioMax = 1U << 12;

// Tokens of a pooled key; 0: the layer has no indexer.
Result<std::uint32_t> resolve_ratio(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    if (context.row.key_pools == KeyPools::weighted) {
        return keys.uint("attention.indexer.kpool", 2, kRatioMax);
    }
    STET_ASSIGN(const auto ratios,
                keys.per_layer("attention.compress_ratios", context.layers,
                               std::vector<std::uint32_t>(context.layers, 0), kRatioMax));
    for (const std::uint32_t ratio : ratios) {
        if (ratio == 1 || (ratio != 0 && ratios[layer] != 0 && ratio != ratios[layer])) {
            return Status(
                Code::unimplemented,
                fmt::format("{}: {} has {} beside {}, only one ratio above 1 is "
                            "supported",
                            keys.file().path().string(), keys.full("attention.compress_ratios"),
                            ratio, ratios[layer]));
        }
    }
    return ratios[layer];
}

Status resolve_weighted(const ResolveContext& context, PooledIndexerPlan& plan) {
    const Keys& keys = context.keys;
    plan.rope = {};
    plan.norm_epsilon = keys.number_or("attention.layer_norm_epsilon", 0.0F);
    if (keys.flag_or("attention.indexer.kpool_select_tail", true)) return {};
    return Status(
        Code::unimplemented,
        fmt::format("{}: {} is false, only true is supported", keys.file().path().string(),
                    keys.full("attention.indexer.kpool_select_tail")));
}

Status add_planes(const ResolveContext& context, PooledIndexerPlan& plan) {
    SchemaBuilder& schema = context.schema;
    const auto add = [&](const char* group, memory::Lifetime lifetime, std::uint32_t parameter,
                         const char* plane) {
        return schema.add(group, lifetime, parameter, plane, context.slot, schema.types().k,
                          plan.key_size);
    };
    STET_ASSIGN(plan.key, add("indexer", memory::Lifetime::tokens, 0, "k"));
    if (plan.kind == KeyPools::weighted) {
        STET_ASSIGN(plan.gate, add("indexer", memory::Lifetime::tokens, 0, "gate"));
    }
    STET_ASSIGN(plan.pooled, add("pooled", memory::Lifetime::every, plan.ratio, "k"));
    return {};
}

}  // namespace

Result<std::optional<PooledIndexerPlan>> resolve_pooled_indexer(const ResolveContext& context,
                                                                std::size_t layer,
                                                                const Rope& rope) {
    const Keys& keys = context.keys;
    PooledIndexerPlan plan;
    plan.kind = context.row.key_pools;
    if (plan.kind == KeyPools::none) return std::optional<PooledIndexerPlan>();
    STET_ASSIGN(plan.ratio, resolve_ratio(context, layer));
    if (plan.ratio == 0) return std::optional<PooledIndexerPlan>();
    STET_ASSIGN(plan.is_own, has_own_indexer(context, layer));
    if (!plan.is_own) {
        STET_TRY(check_earlier_choice(context, layer));
        return std::optional(plan);
    }
    STET_ASSIGN(const auto rows, keys.uint("attention.indexer.top_k", plan.ratio, kRowsMax));
    plan.pools_max = rows / plan.ratio;
    if (rows % plan.ratio != 0) {
        return Status(
            Code::corruption,
            fmt::format("{}: {} is {}, expected a multiple of {}", keys.file().path().string(),
                        keys.full("attention.indexer.top_k"), rows, plan.ratio));
    }
    STET_ASSIGN(plan.heads, keys.uint("attention.indexer.head_count", 1, kHeadsMax));
    STET_ASSIGN(plan.key_size, keys.uint("attention.indexer.key_length",
                                         std::max(rope.dimensions, 1U), kHeadSizeMax));
    plan.rope = rope;
    if (plan.kind == KeyPools::weighted) STET_TRY(resolve_weighted(context, plan));
    STET_TRY(add_planes(context, plan));
    return std::optional(plan);
}

Result<PooledIndexerWeights> load_pooled_indexer(Tensors& tensors, std::size_t layer,
                                                 const PooledIndexerPlan& plan,
                                                 std::uint64_t query_rank) {
    PooledIndexerWeights weights;
    if (!plan.is_own) return weights;
    const std::string block = fmt::format("blk.{}.", layer);
    const std::string base = block + "indexer.";
    const std::uint64_t width = tensors.width();
    const std::uint64_t size = plan.key_size;
    STET_ASSIGN(weights.k_norm, tensors.norm(base + "k_norm", size, Need::required));
    if (plan.kind == KeyPools::mean) {
        STET_ASSIGN(weights.q,
                    tensors.linear(base + "q_proj", width, plan.heads * size, Need::required));
        STET_ASSIGN(weights.q_norm, tensors.norm(base + "q_norm", size, Need::required));
        STET_ASSIGN(weights.k, tensors.linear(base + "k_proj", width, size, Need::required));
        return weights;
    }
    STET_ASSIGN(weights.q,
                tensors.linear(base + "attn_q_b", query_rank, plan.heads * size, Need::required));
    STET_ASSIGN(weights.k, tensors.linear(base + "attn_k", width, size, Need::required));
    STET_ASSIGN(weights.weights, tensors.linear(base + "proj", width, plan.heads, Need::required));
    STET_ASSIGN(weights.gate,
                tensors.linear(block + "indexer_compressor_gate", width, size, Need::required));
    STET_ASSIGN(weights.bias, find_f32(tensors, block + "indexer_compressor_ape.weight",
                                       {size, plan.ratio}, Need::required));
    return weights;
}

ggml_tensor* append_pooled_keys(StepBuilder& builder, const PooledIndexerPlan& plan,
                                const PooledIndexerWeights& weights, ggml_tensor* x) {
    exec::Graph& graph = builder.graph();
    const std::int64_t tokens = builder.tokens();
    const bool is_weighted = plan.kind == KeyPools::weighted;
    exec::PooledKeys shape;
    shape.size = plan.key_size;
    shape.ratio = plan.ratio;
    shape.key = builder.plane(plan.key);
    ggml_tensor* k = builder.product(x, weights.k);
    if (is_weighted) k = builder.layer_norm(k, weights.k_norm, plan.norm_epsilon);
    std::vector<ggml_tensor*> inputs = {graph.append_rows(k, shape.key, plan.key.group)};
    if (is_weighted) {
        shape.gate = builder.plane(plan.gate);
        ggml_tensor* gate = builder.product(x, weights.gate);
        inputs.push_back(graph.append_rows(gate, *shape.gate, plan.gate.group));
    }
    ggml_tensor* pooled = graph.state_op(
        {plan.key_size, tokens, 1, 1}, inputs, plan.key.group,
        [shape, bias = weights.bias](const exec::StateOpContext& op) {
            exec::PooledKeys mine = shape;
            if (bias != nullptr) mine.bias = static_cast<const float*>(bias->data);
            exec::pool_keys(mine, mutable_rows_of(op.out), op.segments, op.thread, op.threads);
        });
    if (!is_weighted) {
        pooled = builder.rms_norm(pooled, weights.k_norm);
        pooled = ggml_reshape_3d(builder.context(), pooled, plan.key_size, 1, tokens);
        pooled = builder.rotate_to_block_starts(pooled, plan.rope, plan.ratio);
        pooled = ggml_reshape_2d(builder.context(), pooled, plan.key_size, tokens);
    }
    return graph.append_rows(pooled, builder.plane(plan.pooled), plan.pooled.group, plan.ratio);
}

exec::Graph::Selected build_pooled_indexer(StepBuilder& builder, const PooledIndexerPlan& plan,
                                           const PooledIndexerWeights& weights, ggml_tensor* x,
                                           ggml_tensor* query_input, ggml_tensor* appended) {
    ggml_context* context = builder.context();
    ggml_tensor* q = builder.product(query_input, weights.q);
    q = ggml_reshape_3d(context, q, plan.key_size, plan.heads, builder.tokens());
    ggml_tensor* w = nullptr;
    if (plan.kind == KeyPools::weighted) {
        const auto size = static_cast<float>(plan.key_size) * static_cast<float>(plan.heads);
        w = ggml_scale(context, builder.product(x, weights.weights), 1.0F / std::sqrt(size));
    } else {
        q = builder.rotate(builder.rms_norm(q, weights.q_norm), plan.rope);
        w = builder.graph().input(GGML_TYPE_F32, {plan.heads, builder.tokens(), 1, 1},
                                  [](const exec::Step&, ggml_tensor* tensor) {
                                      std::fill_n(static_cast<float*>(tensor->data),
                                                  ggml_nelements(tensor), 1.0F);
                                  });
    }
    const exec::IndexerShape shape{plan.heads, plan.key_size, builder.plane(plan.pooled)};
    const exec::SelectionShape rule{
        .blocks_max = plan.pools_max, .ratio = plan.ratio, .stands_for_tokens = true};
    const std::array<ggml_tensor*, 1> after = {appended};
    return builder.graph().select_rows(q, w, shape, rule, plan.pooled.group, after);
}

}  // namespace stet::model
