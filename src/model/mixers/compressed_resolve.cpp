#include <fmt/format.h>

#include <cmath>

#include "base/try.h"
#include "model/config.h"
#include "model/mixers/compressed.h"

namespace stet::model {
namespace {

constexpr std::uint32_t kShortRatio = 4;
constexpr std::uint32_t kLongRatio = 128;
constexpr std::uint32_t kRowsMax = 1U << 24;

Status resolve_sizes(const ResolveContext& context, std::size_t layer, CompressedPlan& plan) {
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto heads,
                keys.per_layer("attention.head_count", context.layers, {}, kHeadsMax));
    plan.heads = heads[layer];
    STET_ASSIGN(plan.head_size, keys.uint("attention.key_length", 1, kHeadSizeMax));
    STET_ASSIGN(const auto value_size,
                keys.uint_or("attention.value_length", plan.head_size, 1, kHeadSizeMax));
    STET_ASSIGN(plan.query_rank, keys.uint("attention.q_lora_rank", 1, kWidthMax));
    STET_ASSIGN(plan.groups, keys.uint("attention.output_group_count", 1, kHeadsMax));
    STET_ASSIGN(plan.output_rank, keys.uint("attention.output_lora_rank", 1, kWidthMax));
    STET_ASSIGN(plan.window, keys.uint("attention.sliding_window", 1, kTokensMax));
    if (plan.heads == 0 || plan.heads % plan.groups != 0 || value_size != plan.head_size) {
        return Status(
            Code::corruption,
            fmt::format("{}: layer {} has {} heads of {} and values of {} in {} output groups",
                        keys.file().path().string(), layer, plan.heads, plan.head_size, value_size,
                        plan.groups));
    }
    plan.scale = 1.0F / std::sqrt(static_cast<float>(plan.head_size));
    return {};
}

// Layers with compressed rows have a base of their own and YaRN, others neither.
Status resolve_rotation(const ResolveContext& context, std::uint32_t ratio, CompressedPlan& plan) {
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto size,
                keys.uint_or("rope.dimension_count", plan.head_size, 2, plan.head_size));
    if (size % 2 != 0) {
        return keys.out_of_range("rope.dimension_count", std::to_string(size), 2, plan.head_size);
    }
    STET_ASSIGN(plan.rope,
                resolve_rope(keys, context.row.rope, size, context.config.context_length));
    Rope& rope = plan.rope;
    rope.has_factors = false;
    if (ratio == 0) {
        rope.frequency_scale = 1.0F;
        rope.extrapolation_factor = 0.0F;
        rope.attention_factor = 1.0F;
        return {};
    }
    STET_ASSIGN(rope.base, keys.number("attention.compress_rope_freq_base"));
    // The kernel multiplies by what is divided by here.
    rope.attention_factor = rope.extrapolation_factor == 0.0F
                                ? 1.0F
                                : 1.0F / (1.0F + 0.1F * std::log(1.0F / rope.frequency_scale));
    return {};
}

Result<CompressorPlan> resolve_compressor(const ResolveContext& context, std::uint32_t ratio,
                                          std::uint32_t size, const Rope& rope,
                                          const std::string& group, const std::string& part) {
    SchemaBuilder& schema = context.schema;
    CompressorPlan plan;
    plan.size = size;
    plan.ratio = ratio;
    plan.overlaps = ratio == kShortRatio;
    plan.rope = rope;
    STET_ASSIGN(plan.rows, schema.add(group, memory::Lifetime::every, ratio, "k", context.slot,
                                      schema.types().k, size));
    const std::uint32_t kept = (plan.overlaps ? 2 : 1) * ratio * plan.features();
    const auto add = [&](const char* what) {
        return schema.add("compressor", memory::Lifetime::fixed, 0, part + what, context.slot,
                          memory::ElementType::f32, kept);
    };
    STET_ASSIGN(plan.values, add("_kv"));
    STET_ASSIGN(plan.scores, add("_score"));
    return plan;
}

Status resolve_index(const ResolveContext& context, CompressedPlan& plan) {
    const Keys& keys = context.keys;
    IndexerPlan index;
    STET_ASSIGN(index.rows_max, keys.uint("attention.indexer.top_k", 1, kRowsMax));
    STET_ASSIGN(index.heads, keys.uint("attention.indexer.head_count", 1, kHeadsMax));
    STET_ASSIGN(index.key_size,
                keys.uint("attention.indexer.key_length", plan.rope.dimensions, kHeadSizeMax));
    STET_ASSIGN(index.hadamard, hadamard_size(context, index.key_size));
    index.rope = plan.rope;
    index.rotates_last = true;
    index.ratio = kShortRatio;
    STET_ASSIGN(plan.indexer_compressor, resolve_compressor(context, kShortRatio, index.key_size,
                                                            plan.rope, "indexer4", "lid"));
    plan.indexer_compressor->hadamard = index.hadamard;
    index.k = plan.indexer_compressor->rows;
    plan.indexer = index;
    return {};
}

}  // namespace

Result<CompressedPlan> resolve_compressed(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    SchemaBuilder& schema = context.schema;
    CompressedPlan plan;
    STET_TRY(resolve_sizes(context, layer, plan));
    STET_ASSIGN(const auto ratios,
                keys.per_layer("attention.compress_ratios", context.layers, {}, kTokensMax));
    const std::uint32_t ratio = ratios[layer];
    STET_TRY(resolve_rotation(context, ratio, plan));
    // As the reference keeps rows: turned where heads are as long as the indexer's.
    STET_ASSIGN(const auto index_size, keys.uint("attention.indexer.key_length", 1, kHeadSizeMax));
    if (index_size == plan.head_size) {
        STET_ASSIGN(plan.hadamard, hadamard_size(context, plan.head_size));
    }
    STET_ASSIGN(plan.k,
                schema.add_rows(plan.window, "k", context.slot, schema.types().k, plan.head_size));
    if (ratio == 0) return plan;
    if (ratio != kShortRatio && ratio != kLongRatio) {
        return Status(
            Code::unimplemented,
            fmt::format("{}: layer {} compresses {} tokens, supported are {} and {}",
                        keys.file().path().string(), layer, ratio, kShortRatio, kLongRatio));
    }
    STET_ASSIGN(plan.compressor, resolve_compressor(context, ratio, plan.head_size, plan.rope,
                                                    fmt::format("compressed{}", ratio),
                                                    ratio == kShortRatio ? "csa" : "hca"));
    plan.compressor->hadamard = plan.hadamard;
    if (ratio == kShortRatio) STET_TRY(resolve_index(context, plan));
    return plan;
}

}  // namespace stet::model
