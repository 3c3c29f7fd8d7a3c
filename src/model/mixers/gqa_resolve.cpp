#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/try.h"
#include "model/config.h"
#include "model/mixers/gqa.h"

namespace stet::model {
namespace {

constexpr std::uint32_t kFourth = 4;
constexpr float kEight = 8.0F;
// Llama 4: queries in layers without rotary embedding, and models without norms of heads.
constexpr float kUnrotatedTemperatureScale = 0.1F;
constexpr std::uint32_t kUnrotatedTemperatureLength = 8192;
constexpr std::uint32_t kExpertsWithoutQkNorm = 128;

// The model's window in tokens; 0: none.
Result<std::uint32_t> model_window(const ResolveContext& context) {
    const Architecture& row = context.row;
    if (row.window_period == 0) return 0U;
    if (row.window_layers != 0 && row.window_layers != context.layers) return 0U;
    STET_ASSIGN(const auto window,
                context.keys.uint_or("attention.sliding_window", row.window_default, 0,
                                     std::numeric_limits<std::uint32_t>::max()));
    return window != 0 && row.window_fixed != 0 ? row.window_fixed : window;
}

// Which layers see only a window: an array of flags, a period, or the architecture's default.
Result<bool> has_window(const ResolveContext& context, std::size_t layer) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    if (context.row.window_period == kWindowAll) return true;
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto flags, keys.flags(kPattern, context.layers));
    if (flags) return (*flags)[layer];
    if (context.row.window_period == kWindowArray) return keys.missing(kPattern);
    STET_ASSIGN(const auto period,
                keys.uint_or(kPattern, context.row.window_period, 0, kLayersMax));
    if (context.row.window_from_first) return period == 0 || layer % period != 0;
    return period == 0 || layer % period != period - 1;
}

Status resolve_window(const ResolveContext& context, std::size_t layer, GqaPlan& plan) {
    STET_ASSIGN(const auto window, model_window(context));
    if (window == 0) return {};
    STET_ASSIGN(const bool windowed, has_window(context, layer));
    if (!windowed) return {};
    plan.window_kind = context.row.window_chunked ? exec::Window::chunked : exec::Window::sliding;
    plan.window = window;
    return {};
}

Status resolve_heads(const ResolveContext& context, std::size_t layer, GqaPlan& plan) {
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto heads,
                keys.per_layer("attention.head_count", context.layers, {}, kHeadsMax));
    STET_ASSIGN(const auto kv_heads,
                keys.per_layer("attention.head_count_kv", context.layers, heads, kHeadsMax));
    plan.heads = heads[layer];
    plan.kv_heads = kv_heads[layer];
    if (plan.heads == 0 || plan.kv_heads == 0 || plan.heads % plan.kv_heads != 0) {
        return Status(Code::corruption,
                      fmt::format("{}: layer {} has {} heads over {} key/value heads",
                                  keys.file().path().string(), layer, plan.heads, plan.kv_heads));
    }
    // Hybrids may count no heads in their first layer.
    const std::uint32_t head_size = context.config.width / (heads[0] != 0 ? heads[0] : plan.heads);
    STET_ASSIGN(plan.key_size, keys.uint_or("attention.key_length", head_size, 1, kHeadSizeMax));
    STET_ASSIGN(plan.value_size,
                keys.uint_or("attention.value_length", head_size, 1, kHeadSizeMax));
    if (plan.window != 0) {
        STET_ASSIGN(plan.key_size,
                    keys.uint_or("attention.key_length_swa", plan.key_size, 1, kHeadSizeMax));
        STET_ASSIGN(plan.value_size,
                    keys.uint_or("attention.value_length_swa", plan.value_size, 1, kHeadSizeMax));
    }
    return {};
}

Result<bool> is_rotated(const ResolveContext& context, std::size_t layer, const GqaPlan& plan) {
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto window, model_window(context));
    switch (context.row.no_rope) {
        case NoRope::never:
            return true;
        case NoRope::fourth:
            return layer % kFourth != kFourth - 1;
        case NoRope::fourth_with_windows:
            return window == 0 || layer % kFourth != kFourth - 1;
        case NoRope::fourth_from_first:
            return window == 0 || layer % kFourth != 0;
        case NoRope::full_layers:
            return window == 0 || plan.window != 0;
        case NoRope::full_sparse_layers: {
            STET_ASSIGN(const auto dense,
                        keys.uint_or("leading_dense_block_count", 0, 0, kLayersMax));
            return window == 0 || plan.window != 0 || layer < dense;
        }
        case NoRope::by_finetuned:
            return keys.flag_or("rope.scaling.finetuned", true);
        case NoRope::by_pattern: {
            STET_ASSIGN(const auto pattern,
                        keys.per_layer("attention.rope_pattern", context.layers,
                                       std::vector<std::uint32_t>(context.layers, 1), 1));
            return pattern[layer] != 0;
        }
        case NoRope::unless_32_layers:
            return context.layers == 32;
    }
    return true;
}

Result<std::uint32_t> rotary_size(const ResolveContext& context, const GqaPlan& plan) {
    const Keys& keys = context.keys;
    if (context.row.rope_size == RopeSize::whole_head) return plan.key_size;
    STET_ASSIGN(auto size, keys.uint_or("rope.dimension_count", plan.key_size, 0, kHeadSizeMax));
    if (plan.window != 0) {
        STET_ASSIGN(size, keys.uint_or("rope.dimension_count_swa", size, 0, kHeadSizeMax));
    } else if (context.row.rope_size == RopeSize::half_full_layers) {
        size /= 2;
    }
    if (size > plan.key_size || size % 2 != 0) {
        return keys.out_of_range("rope.dimension_count", std::to_string(size), 0, plan.key_size);
    }
    return size;
}

// What windows change.
void adjust_window_rope(const ResolveContext& context, Rope& rope) {
    const Architecture& row = context.row;
    rope.base = context.keys.number_or(
        "rope.freq_base_swa", row.window_rope_base != 0.0F ? row.window_rope_base : rope.base);
    if (row.window_rope != WindowRope::same) rope.frequency_scale = 1.0F;
    if (row.window_rope == WindowRope::plain) {
        rope.extrapolation_factor = 0.0F;
        rope.attention_factor = 1.0F;
    }
    if (!row.window_rope_factors) rope.has_factors = false;
}

Status resolve_layer_rope(const ResolveContext& context, std::size_t layer, GqaPlan& plan) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    STET_ASSIGN(const bool rotated, is_rotated(context, layer, plan));
    if (!rotated || row.rope == RopeKind::none) return {};
    STET_ASSIGN(const auto size, rotary_size(context, plan));
    STET_ASSIGN(plan.rope, resolve_rope(keys, row.rope, size, context.config.context_length));
    Rope& rope = plan.rope;
    if (!row.rope_keys) {
        rope = {.kind = rope.kind, .dimensions = size, .has_factors = false};
        return {};
    }
    if (row.rope_with_sections != RopeKind::none && rope.has_sections()) {
        rope.kind = row.rope_with_sections;
    }
    const bool by_sections = rope.kind == RopeKind::mrope || rope.kind == RopeKind::imrope;
    if (by_sections && rope.sections[0] == 0 && rope.sections[1] == 0 && rope.sections[2] == 0) {
        return keys.missing("rope.dimension_sections");
    }
    rope.has_factors = row.rope_factors;
    rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", row.yarn_beta_fast);
    const float alpha = row.rope_alpha ? keys.number_or("rope.scaling.alpha", 0.0F) : 0.0F;
    if (alpha > 0.0F && plan.key_size > 2) {
        const auto head = static_cast<float>(plan.key_size);
        rope.base *= std::pow(alpha, head / (head - 2.0F));
    }
    if (plan.window != 0) adjust_window_rope(context, rope);
    return {};
}

void resolve_scale(const ResolveContext& context, GqaPlan& plan) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    const auto head = static_cast<float>(plan.key_size);
    plan.scale = 1.0F / std::sqrt(head);
    switch (row.score_scale) {
        case ScoreScale::root:
            break;
        case ScoreScale::inverse:
            plan.scale = 1.0F / head;
            break;
        case ScoreScale::one:
            plan.scale = 1.0F;
            break;
        case ScoreScale::by_key: {
            const float scale = keys.number_or("attention.scale", 0.0F);
            if (scale != 0.0F) plan.scale = scale;
            break;
        }
        case ScoreScale::by_output_key:
            plan.scale = keys.number_or("attention.output_scale", row.output_scale_default);
            break;
    }
    if (row.scale_by_width_layers == context.layers) {
        const std::uint32_t share = std::max(context.config.width / plan.heads, 1U);
        plan.scale = 1.0F / std::sqrt(static_cast<float>(share));
    }
    if (row.attention_softcap >= 0.0F) {
        plan.softcap = keys.number_or("attn_logit_softcapping", row.attention_softcap);
    }
    switch (row.alibi) {
        case Alibi::none:
            break;
        case Alibi::by_key:
            plan.alibi = keys.number_or("attention.max_alibi_bias", 0.0F);
            break;
        case Alibi::eight:
            plan.alibi = kEight;
            break;
        case Alibi::by_40_layers:
            plan.alibi = context.layers == 40 ? kEight : 0.0F;
            break;
    }
}

Status resolve_temperature(const ResolveContext& context, GqaPlan& plan) {
    const Keys& keys = context.keys;
    if (context.row.unrotated_temperature && plan.rope.kind == RopeKind::none) {
        plan.temperature_scale = kUnrotatedTemperatureScale;
        plan.temperature_length = kUnrotatedTemperatureLength;
        plan.temperature_offset = 1;
    }
    if (!context.row.query_temperature) return {};
    plan.temperature_scale = keys.number_or("attention.temperature_scale", 0.0F);
    plan.temperature_length = plan.rope.original_context;
    if (plan.temperature_scale != 0.0F && plan.temperature_length == 0) {
        return keys.missing("rope.scaling.original_context_length");
    }
    return {};
}

Status resolve_norms(const ResolveContext& context, GqaPlan& plan) {
    const Architecture& row = context.row;
    plan.norm_after_rope = row.qk_norm_after_rope;
    plan.weightless_v_norm = row.weightless_v_norm;
    plan.v_from_k = row.v_from_k;
    plan.weightless_k_norm = row.weightless_qk == WeightlessQk::keys;
    if (row.weightless_qk == WeightlessQk::rotated && plan.rope.kind != RopeKind::none) {
        STET_ASSIGN(const auto experts, context.keys.uint_or("expert_count", 0, 0, kExpertsMax));
        plan.weightless_q_norm = plan.weightless_k_norm = experts != kExpertsWithoutQkNorm;
    }
    return {};
}

// Layers from the first that has no keys and values of its own reuse those of the last layer
// before it of the same kind.
Result<const GqaPlan*> shared_with(const ResolveContext& context, std::size_t layer,
                                   const GqaPlan& plan) {
    const Architecture& row = context.row;
    if (row.own_kv_layers == 0 && !row.shared_kv_key) return nullptr;
    std::uint32_t own = row.own_kv_layers != 0 ? row.own_kv_layers : context.layers;
    if (context.keys.has("attention.shared_kv_layers")) {
        STET_ASSIGN(const auto shared,
                    context.keys.uint("attention.shared_kv_layers", 0, context.layers - 1));
        own = context.layers - shared;
    }
    if (layer < own) return nullptr;
    for (std::size_t i = own; i-- > 0;) {
        for (const MixerPlan& mixer : context.config.layers[i].mixers) {
            const auto* earlier = std::get_if<GqaPlan>(&mixer);
            if (earlier != nullptr && earlier->window == plan.window) return earlier;
        }
    }
    return Status(Code::corruption,
                  fmt::format("{}: layer {} reuses keys and values, but no layer before {} has any "
                              "for it",
                              context.keys.file().path().string(), layer, own));
}

Status resolve_rows(const ResolveContext& context, std::size_t layer, GqaPlan& plan) {
    STET_ASSIGN(const GqaPlan* earlier, shared_with(context, layer, plan));
    if (earlier != nullptr) {
        if (earlier->kv_heads != plan.kv_heads || earlier->key_size != plan.key_size ||
            earlier->value_size != plan.value_size) {
            return Status(Code::corruption,
                          fmt::format("{}: layer {} reuses keys and values of another shape",
                                      context.keys.file().path().string(), layer));
        }
        plan.has_rows = false;
        plan.k = earlier->k;
        plan.v = earlier->v;
        return {};
    }
    SchemaBuilder& schema = context.schema;
    STET_ASSIGN(plan.k, schema.add_rows(plan.window, "k", context.slot, schema.types().k,
                                        plan.kv_heads * plan.key_size));
    STET_ASSIGN(plan.v, schema.add_rows(plan.window, "v", context.slot, schema.types().v,
                                        plan.kv_heads * plan.value_size));
    return {};
}

}  // namespace

Result<GqaPlan> resolve_gqa(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    GqaPlan plan;
    plan.causal = row.causal;
    if (row.causal && !keys.flag_or("attention.causal", true)) {
        return Status(Code::unimplemented,
                      fmt::format("{}: {} without causal attention is not supported",
                                  keys.file().path().string(), row.name));
    }
    STET_TRY(resolve_window(context, layer, plan));
    STET_TRY(resolve_heads(context, layer, plan));
    STET_TRY(resolve_layer_rope(context, layer, plan));
    STET_TRY(resolve_norms(context, plan));
    resolve_scale(context, plan);
    STET_TRY(resolve_temperature(context, plan));
    if (row.clamp_qkv) plan.clamp = keys.number_or("attention.clamp_kqv", 0.0F);
    plan.gate = row.attention_gate;
    if (plan.gate == AttentionGate::in_queries && plan.key_size != plan.value_size) {
        return keys.out_of_range("attention.value_length", std::to_string(plan.value_size),
                                 plan.key_size, plan.key_size);
    }
    plan.biases = row.biases;
    if (row.output_scale) {
        const float scale = keys.number_or("attention.value_scale", 0.0F);
        if (scale != 0.0F) plan.output_scale = scale;
    }
    STET_TRY(resolve_rows(context, layer, plan));
    if (!plan.has_rows || plan.window != 0) return plan;
    if (row.key_pools != KeyPools::none) {
        STET_ASSIGN(plan.pooled_indexer, resolve_pooled_indexer(context, layer, plan.rope));
    } else {
        STET_ASSIGN(plan.indexer, resolve_block_indexer(context, layer, plan.kv_heads, plan.rope));
    }
    return plan;
}

}  // namespace stet::model
