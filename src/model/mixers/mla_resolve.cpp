#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/try.h"
#include "model/config.h"
#include "model/mixers/mla.h"

namespace stet::model {
namespace {

Status resolve_window(const ResolveContext& context, std::size_t layer, MlaPlan& plan) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    if (context.row.window_period != kWindowArray) return {};
    STET_ASSIGN(const auto flags, context.keys.flags(kPattern, context.layers));
    if (!flags) return context.keys.missing(kPattern);
    if (!(*flags)[layer]) return {};
    plan.window_kind = exec::Window::sliding;
    STET_ASSIGN(plan.window, context.keys.uint("attention.sliding_window", 1, kTokensMax));
    return {};
}

// Sizes of opened heads: key_length_mla and value_length_mla where rows are absorbed, since
// key_length and value_length are those of the row then.
Status resolve_sizes(const ResolveContext& context, std::size_t layer, MlaPlan& plan) {
    const Keys& keys = context.keys;
    const auto has = [&](const char* role) {
        return keys.file().find_tensor(fmt::format("blk.{}.{}.weight", layer, role)) != nullptr;
    };
    plan.is_absorbed = !has("attn_kv_b");
    STET_ASSIGN(const auto heads,
                keys.per_layer("attention.head_count", context.layers, {}, kHeadsMax));
    plan.heads = heads[layer];
    if (plan.heads == 0) return keys.out_of_range("attention.head_count", "0", 1, kHeadsMax);
    const std::string ending = plan.window != 0 ? "_swa" : "";
    if (has("attn_q_a")) {
        STET_ASSIGN(plan.query_rank, keys.uint("attention.q_lora_rank", 1, kWidthMax));
    }
    STET_ASSIGN(plan.row_rank, keys.uint("attention.kv_lora_rank" + ending, 1, kWidthMax));
    const std::string key = "attention.key_length" + (plan.is_absorbed ? "_mla" + ending : "");
    const std::string value = "attention.value_length" + (plan.is_absorbed ? "_mla" + ending : "");
    STET_ASSIGN(plan.key_size, keys.uint(key, 1, kHeadSizeMax));
    STET_ASSIGN(plan.value_size, keys.uint(value, 1, kHeadSizeMax));
    const bool may_lack_rope = context.row.rope == RopeKind::none && plan.is_absorbed;
    STET_ASSIGN(plan.rope_size,
                keys.uint("rope.dimension_count", may_lack_rope ? 0 : 1, kHeadSizeMax));
    const std::uint32_t rope_max = plan.is_absorbed ? plan.key_size - 1 : plan.key_size;
    if (plan.rope_size > rope_max || plan.rope_size % 2 != 0) {
        return keys.out_of_range("rope.dimension_count", std::to_string(plan.rope_size), 2,
                                 rope_max);
    }
    return {};
}

// The same family applies YaRN's attention factor to the scores of plain and rotated dimensions
// alike: it is taken out of the rotation and squared into the scale.
void resolve_yarn(const ResolveContext& context, MlaPlan& plan) {
    const Keys& keys = context.keys;
    Rope& rope = plan.rope;
    const float factor = 1.0F / rope.frequency_scale;
    const float log_factor = std::log(factor);
    float multiplier = 0.0F;
    if (context.row.yarn_scores != YarnScores::unmultiplied) {
        // Files hold a tenth of it.
        multiplier = 10.0F * keys.number_or("rope.scaling.yarn_log_multiplier", 0.0F);
    }
    if (rope.extrapolation_factor != 0.0F) {
        float attention = yarn_magnitude(factor, 1.0F);
        if (multiplier != 0.0F) {
            const bool same = context.row.yarn_scores == YarnScores::multiplied_both;
            attention = same ? 1.0F : attention / yarn_magnitude(factor, multiplier);
        }
        rope.attention_factor = attention / (1.0F + 0.1F * log_factor) *
                                keys.number_or("rope.scaling.attn_factor", 1.0F);
    }
    const float original = rope.attention_factor * (1.0F + 0.1F * log_factor);
    const float scores = original * (1.0F + 0.1F * multiplier * log_factor);
    plan.scale *= scores * scores;
}

Status resolve_rotation(const ResolveContext& context, MlaPlan& plan) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    STET_ASSIGN(plan.rope,
                resolve_rope(keys, row.rope, plan.rope_size, context.config.context_length));
    Rope& rope = plan.rope;
    rope.has_factors = row.rope_factors;
    if (row.rope_with_sections != RopeKind::none && rope.has_sections()) {
        rope.kind = row.rope_with_sections;
    }
    plan.scale = 1.0F / std::sqrt(static_cast<float>(plan.key_size));
    if (row.yarn_scores != YarnScores::none) resolve_yarn(context, plan);
    if (plan.window == 0) return {};
    STET_ASSIGN(rope.base, keys.number("rope.freq_base_swa"));
    return {};
}

Status resolve_temperature(const ResolveContext& context, MlaPlan& plan) {
    const Keys& keys = context.keys;
    if (!context.row.query_temperature) return {};
    plan.temperature_scale = keys.number_or("attention.temperature_scale", 0.0F);
    if (plan.temperature_scale == 0.0F) return {};
    STET_ASSIGN(plan.temperature_length, keys.uint("attention.temperature_length", 1, kTokensMax));
    return {};
}

Status resolve_rows(const ResolveContext& context, MlaPlan& plan) {
    SchemaBuilder& schema = context.schema;
    if (plan.is_absorbed) {
        STET_ASSIGN(plan.k, schema.add_rows(plan.window, "k", context.slot, schema.types().k,
                                            plan.row_rank + plan.rope_size));
        return {};
    }
    STET_ASSIGN(plan.k, schema.add_rows(plan.window, "k", context.slot, schema.types().k,
                                        plan.heads * plan.key_size));
    STET_ASSIGN(plan.v, schema.add_rows(plan.window, "v", context.slot, schema.types().v,
                                        plan.heads * plan.value_size));
    return {};
}

}  // namespace

Result<MlaPlan> resolve_mla(const ResolveContext& context, std::size_t layer) {
    MlaPlan plan;
    plan.gate = context.row.attention_gate;
    STET_TRY(resolve_window(context, layer, plan));
    STET_TRY(resolve_sizes(context, layer, plan));
    STET_TRY(resolve_rotation(context, plan));
    STET_TRY(resolve_temperature(context, plan));
    STET_TRY(resolve_rows(context, plan));
    if (plan.window == 0 && plan.is_absorbed) {
        if (context.row.key_pools == KeyPools::none) {
            STET_ASSIGN(plan.indexer, resolve_indexer(context, layer, plan.rope));
        } else {
            STET_ASSIGN(plan.pooled_indexer, resolve_pooled_indexer(context, layer, plan.rope));
        }
    }
    if (plan.has_own_choice() && plan.query_rank == 0) {
        return context.keys.missing("attention.q_lora_rank");
    }
    return plan;
}

}  // namespace stet::model
