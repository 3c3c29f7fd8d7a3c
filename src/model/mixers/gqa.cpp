#include "model/mixers/gqa.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/try.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

// Which layers see only a window: an array of flags, a period, or the architecture's default.
Result<bool> has_window(const Keys& keys, const Architecture& row, std::uint32_t layers,
                        std::size_t layer) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    STET_ASSIGN(const auto flags, keys.flags(kPattern, layers));
    if (flags) return (*flags)[layer];
    STET_ASSIGN(const auto period, keys.uint_or(kPattern, row.window_period, 0, kLayersMax));
    return period != 0 && layer % period != period - 1;
}

Status resolve_window(const ResolveContext& context, std::size_t layer, GqaPlan& plan) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    if (row.window_period == 0) return {};
    STET_ASSIGN(const auto window, keys.uint_or("attention.sliding_window", row.window_default, 0,
                                                std::numeric_limits<std::uint32_t>::max()));
    STET_ASSIGN(const bool windowed, has_window(keys, row, context.layers, layer));
    if (window == 0 || !windowed) return {};
    plan.window_kind = row.window_chunked ? exec::Window::chunked : exec::Window::sliding;
    plan.window = window;
    const float base = row.window_rope_base != 0.0F ? row.window_rope_base : plan.rope.base;
    plan.rope.base = keys.number_or("rope.freq_base_swa", base);
    // Scaling stretches the layers that see everything; Gemma 3's windows keep theirs.
    if (row.window_rope_base != 0.0F) plan.rope.frequency_scale = 1.0F;
    return {};
}

Status resolve_heads(const ResolveContext& context, std::size_t layer, GqaPlan& plan) {
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto heads,
                keys.per_layer("attention.head_count", context.layers, {}, kHeadsMax));
    STET_ASSIGN(const auto kv_heads,
                keys.per_layer("attention.head_count_kv", context.layers, heads, kHeadsMax));
    if (heads[0] == 0) return keys.missing("attention.head_count");
    plan.heads = heads[layer];
    plan.kv_heads = kv_heads[layer];
    if (plan.kv_heads == 0 || plan.heads % plan.kv_heads != 0) {
        return Status(Code::corruption,
                      fmt::format("{}: layer {} has {} heads over {} key/value heads",
                                  keys.file().path().string(), layer, plan.heads, plan.kv_heads));
    }
    const std::uint32_t head_size = context.config.width / heads[0];
    STET_ASSIGN(plan.key_size, keys.uint_or("attention.key_length", head_size, 1, kHeadSizeMax));
    STET_ASSIGN(plan.value_size,
                keys.uint_or("attention.value_length", head_size, 1, kHeadSizeMax));
    const std::uint32_t scaled_by = context.row.scale_by_width_layers == context.layers
                                        ? context.config.width / heads[0]
                                        : plan.key_size;
    plan.scale = 1.0F / std::sqrt(static_cast<float>(scaled_by));
    return {};
}

Status resolve_temperature(const Keys& keys, GqaPlan& plan) {
    plan.temperature_scale = keys.number_or("attention.temperature_scale", 0.0F);
    plan.temperature_length = plan.rope.original_context;
    if (plan.temperature_scale != 0.0F && plan.temperature_length == 0) {
        return keys.missing("rope.scaling.original_context_length");
    }
    return {};
}

struct Heads {
    ggml_tensor* q;  // [key_size, heads, tokens]
    ggml_tensor* k;  // [key_size, kv_heads, tokens]
    ggml_tensor* v;  // [value_size * kv_heads, tokens]
};

Heads project(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
              ggml_tensor* x) {
    const std::int64_t q_size = std::int64_t{plan.heads} * plan.key_size;
    const std::int64_t k_size = std::int64_t{plan.kv_heads} * plan.key_size;
    const std::int64_t v_size = std::int64_t{plan.kv_heads} * plan.value_size;
    Heads heads{};
    if (weights.qkv) {
        ggml_tensor* qkv = builder.product(x, weights.qkv);
        heads = {builder.part(qkv, 0, q_size), builder.part(qkv, q_size, k_size),
                 builder.part(qkv, q_size + k_size, v_size)};
    } else {
        heads = {builder.product(x, weights.q), builder.product(x, weights.k),
                 builder.product(x, weights.v)};
    }
    ggml_context* context = builder.context();
    heads.q = ggml_reshape_3d(context, heads.q, plan.key_size, plan.heads, builder.tokens());
    heads.k = ggml_reshape_3d(context, heads.k, plan.key_size, plan.kv_heads, builder.tokens());
    if (weights.q_norm) heads.q = builder.norm(heads.q, weights.q_norm);
    if (weights.k_norm) heads.k = builder.norm(heads.k, weights.k_norm);
    heads.q = builder.rotate(heads.q, plan.rope);
    heads.k = builder.rotate(heads.k, plan.rope);
    return heads;
}

exec::AttentionShape attention_shape(const StepBuilder& builder, const GqaPlan& plan) {
    exec::AttentionShape shape;
    shape.heads = plan.heads;
    shape.kv_heads = plan.kv_heads;
    shape.key_size = plan.key_size;
    shape.value_size = plan.value_size;
    shape.k = builder.plane(plan.k);
    shape.v = builder.plane(plan.v);
    shape.v_head_stride = plan.value_size;
    shape.scale = plan.scale;
    shape.softcap = plan.softcap;
    shape.causal = plan.causal;
    shape.window_kind = plan.window_kind;
    shape.window = plan.window;
    return shape;
}

}  // namespace

Result<GqaPlan> resolve_gqa(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    GqaPlan plan;
    plan.causal = row.causal;
    STET_TRY(resolve_heads(context, layer, plan));
    STET_ASSIGN(const auto rotary,
                keys.uint_or("rope.dimension_count", plan.key_size, 0, kHeadSizeMax));
    if (rotary > plan.key_size || rotary % 2 != 0) {
        return keys.out_of_range("rope.dimension_count", std::to_string(rotary), 0, plan.key_size);
    }
    STET_ASSIGN(plan.rope, resolve_rope(keys, row.rope, rotary, context.config.context_length));
    STET_TRY(resolve_window(context, layer, plan));
    if (row.attention_softcap) plan.softcap = keys.number_or("attn_logit_softcapping", 50.0F);
    if (row.query_temperature) STET_TRY(resolve_temperature(keys, plan));
    SchemaBuilder& schema = context.schema;
    STET_ASSIGN(plan.k, schema.add_rows(plan.window, "k", layer, schema.types().k,
                                        plan.kv_heads * plan.key_size));
    STET_ASSIGN(plan.v, schema.add_rows(plan.window, "v", layer, schema.types().v,
                                        plan.kv_heads * plan.value_size));
    return plan;
}

Result<GqaWeights> load(Tensors& tensors, std::size_t layer, const GqaPlan& plan) {
    const std::string base = fmt::format("blk.{}.attn_", layer);
    const std::uint64_t width = tensors.width();
    const std::uint64_t q_size = std::uint64_t{plan.heads} * plan.key_size;
    const std::uint64_t k_size = std::uint64_t{plan.kv_heads} * plan.key_size;
    const std::uint64_t v_size = std::uint64_t{plan.kv_heads} * plan.value_size;
    GqaWeights weights;
    STET_ASSIGN(weights.qkv,
                tensors.linear(base + "qkv", width, q_size + k_size + v_size, Need::optional));
    if (!weights.qkv) {
        STET_ASSIGN(weights.q, tensors.linear(base + "q", width, q_size, Need::required));
        STET_ASSIGN(weights.k, tensors.linear(base + "k", width, k_size, Need::required));
        STET_ASSIGN(weights.v, tensors.linear(base + "v", width, v_size, Need::required));
    }
    STET_ASSIGN(weights.q_norm, tensors.norm(base + "q_norm", plan.key_size, Need::optional));
    STET_ASSIGN(weights.k_norm, tensors.norm(base + "k_norm", plan.key_size, Need::optional));
    STET_ASSIGN(weights.out,
                tensors.linear(base + "output", std::uint64_t{plan.heads} * plan.value_size, width,
                               Need::required));
    STET_ASSIGN(weights.sinks, tensors.find(base + "sinks.weight", {plan.heads}, Need::optional));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
                   ggml_tensor* x) {
    ggml_context* context = builder.context();
    exec::Graph& graph = builder.graph();
    const exec::AttentionShape shape = attention_shape(builder, plan);
    const Heads heads = project(builder, plan, weights, x);
    ggml_tensor* k_rows = ggml_reshape_2d(
        context, heads.k, std::int64_t{plan.kv_heads} * plan.key_size, builder.tokens());
    const std::array appended = {graph.append_rows(k_rows, shape.k, plan.k.group),
                                 graph.append_rows(heads.v, shape.v, plan.v.group)};
    if (builder.only_state()) {
        for (ggml_tensor* rows : appended) builder.expand(rows);
        return nullptr;
    }
    ggml_tensor* q = heads.q;
    if (plan.temperature_scale != 0.0F) {
        q = ggml_mul(context, q,
                     builder.query_temperature(plan.temperature_scale, plan.temperature_length,
                                               plan.temperature_offset));
    }
    return builder.product(graph.attention(q, shape, plan.k.group, appended, weights.sinks),
                           weights.out);
}

}  // namespace stet::model
