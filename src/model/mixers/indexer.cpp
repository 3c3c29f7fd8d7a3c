#include "model/mixers/indexer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/try.h"
#include "model/config.h"
#include "model/mixers/head_parts.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

constexpr std::uint32_t kRowsMax = 1U << 24;
// GLM 5.2 and later, by their context: after the first three layers one in four has an indexer.
constexpr std::uint32_t kLongContext = 1U << 20;

}  // namespace

Result<bool> has_own_indexer(const ResolveContext& context, std::size_t layer) {
    constexpr std::string_view kTypes = "attention.indexer.types";
    const Keys& keys = context.keys;
    std::vector<std::uint32_t> types(context.layers, 1);
    switch (context.row.indexer) {
        case IndexerLayers::none:
        case IndexerLayers::all:
            return true;
        case IndexerLayers::by_key:
            if (!keys.has(kTypes)) return keys.missing(kTypes);
            break;
        case IndexerLayers::by_key_or_all:
            break;
        case IndexerLayers::by_key_or_context:
            for (std::size_t i = 0; i < types.size(); ++i) {
                if (context.config.context_length >= kLongContext) {
                    types[i] = i < 2 || (i - 2) % 4 == 0 ? 1 : 0;
                }
            }
            break;
    }
    STET_ASSIGN(types, keys.per_layer(kTypes, context.layers, types, 1));
    return types[layer] != 0;
}

Status check_earlier_choice(const ResolveContext& context, std::size_t layer) {
    for (const LayerPlan& earlier : context.config.layers) {
        for (const MixerPlan& mixer : earlier.mixers) {
            const auto* mla = std::get_if<MlaPlan>(&mixer);
            if (mla != nullptr && mla->has_own_choice()) return {};
        }
    }
    return Status(Code::corruption,
                  fmt::format("{}: layer {} uses the rows that an earlier layer chose, but none "
                              "before it has an indexer",
                              context.keys.file().path().string(), layer));
}

// The largest power of two times 64 that divides the key, as the reference has it.
Result<std::uint32_t> hadamard_size(const ResolveContext& context, std::uint32_t key_size) {
    if (!context.row.indexer_hadamard) return 0U;
    constexpr std::uint32_t kLeast = 64;
    if (key_size % kLeast != 0) {
        return Status(
            Code::corruption,
            fmt::format("{}: {} is {}, expected a multiple of {}",
                        context.keys.file().path().string(),
                        context.keys.full("attention.indexer.key_length"), key_size, kLeast));
    }
    std::uint32_t size = kLeast;
    while (key_size % (2 * size) == 0) size *= 2;
    return size;
}

Result<std::optional<IndexerPlan>> resolve_indexer(const ResolveContext& context, std::size_t layer,
                                                   const Rope& rope) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    if (row.indexer == IndexerLayers::none) return std::optional<IndexerPlan>();
    const bool optional = row.indexer == IndexerLayers::by_key;
    IndexerPlan plan;
    STET_ASSIGN(plan.rows_max, keys.uint_or("attention.indexer.top_k", 0, 0, kRowsMax));
    if (plan.rows_max == 0) {
        if (optional) return std::optional<IndexerPlan>();
        return keys.missing("attention.indexer.top_k");
    }
    STET_ASSIGN(plan.is_own, has_own_indexer(context, layer));
    if (!plan.is_own) {
        STET_TRY(check_earlier_choice(context, layer));
        return std::optional(plan);
    }
    STET_ASSIGN(plan.heads, keys.uint("attention.indexer.head_count", 1, kHeadsMax));
    STET_ASSIGN(plan.key_size,
                keys.uint("attention.indexer.key_length", rope.dimensions, kHeadSizeMax));
    plan.rope = rope;
    plan.rope.kind = row.indexer_rope;
    plan.rotates_last = row.indexer_rotates_last;
    STET_ASSIGN(plan.hadamard, hadamard_size(context, plan.key_size));
    plan.norm_epsilon =
        row.indexer_norm_epsilon < 0.0F ? context.config.norm_epsilon : row.indexer_norm_epsilon;
    SchemaBuilder& schema = context.schema;
    STET_ASSIGN(plan.k, schema.add("indexer", memory::Lifetime::tokens, 0, "k", context.slot,
                                   schema.types().k, plan.key_size));
    return std::optional(plan);
}

Result<IndexerWeights> load_indexer(Tensors& tensors, std::size_t layer, const IndexerPlan& plan,
                                    std::uint64_t query_rank) {
    using Need = Tensors::Need;
    IndexerWeights weights;
    if (!plan.is_own) return weights;
    const std::string base = fmt::format("blk.{}.indexer.", layer);
    const std::uint64_t width = tensors.width();
    STET_ASSIGN(weights.q,
                tensors.linear(base + "attn_q_b", query_rank,
                               std::uint64_t{plan.heads} * plan.key_size, Need::required));
    STET_ASSIGN(weights.weights, tensors.linear(base + "proj", width, plan.heads, Need::required));
    if (plan.ratio != 1) return weights;
    STET_ASSIGN(weights.k, tensors.linear(base + "attn_k", width, plan.key_size, Need::required));
    STET_ASSIGN(weights.k_norm, tensors.norm(base + "k_norm", plan.key_size, Need::required));
    return weights;
}

namespace {

// x [key_size, heads, tokens], ready for scores.
ggml_tensor* turned(StepBuilder& builder, const IndexerPlan& plan, ggml_tensor* x) {
    x = plan.rotates_last ? rotate_last(builder, x, plan.rope) : builder.rotate(x, plan.rope);
    return plan.hadamard == 0 ? x : builder.hadamard(x, plan.hadamard);
}

}  // namespace

ggml_tensor* append_indexer_keys(StepBuilder& builder, const IndexerPlan& plan,
                                 const IndexerWeights& weights, ggml_tensor* x) {
    ggml_context* context = builder.context();
    ggml_tensor* k = builder.product(x, weights.k);
    k = builder.layer_norm(k, weights.k_norm, plan.norm_epsilon);
    k = ggml_reshape_3d(context, k, plan.key_size, 1, builder.tokens());
    k = ggml_reshape_2d(context, turned(builder, plan, k), plan.key_size, builder.tokens());
    return builder.graph().append_rows(k, builder.plane(plan.k), plan.k.group);
}

exec::Graph::Selected build_indexer(StepBuilder& builder, const IndexerPlan& plan,
                                    const IndexerWeights& weights, ggml_tensor* x,
                                    ggml_tensor* query_input, ggml_tensor* appended) {
    ggml_context* context = builder.context();
    ggml_tensor* q = builder.product(query_input, weights.q);
    q = ggml_reshape_3d(context, q, plan.key_size, plan.heads, builder.tokens());
    q = turned(builder, plan, q);
    const auto size = static_cast<float>(plan.key_size) * static_cast<float>(plan.heads);
    ggml_tensor* w =
        ggml_scale(context, builder.product(x, weights.weights), 1.0F / std::sqrt(size));
    const exec::IndexerShape shape{plan.heads, plan.key_size, builder.plane(plan.k)};
    const exec::SelectionShape rule{.blocks_max = plan.rows_max, .ratio = plan.ratio};
    const std::array<ggml_tensor*, 1> after = {appended};
    return builder.graph().select_rows(q, w, shape, rule, plan.k.group, after);
}

}  // namespace stet::model
