#include "model/mixers/gqa.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/try.h"
#include "model/mixers/head_gate.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

struct Heads {
    ggml_tensor* q = nullptr;     // [key_size, heads, tokens]
    ggml_tensor* k = nullptr;     // [key_size, kv_heads, tokens]; null: an earlier layer's
    ggml_tensor* v = nullptr;     // [value_size * kv_heads, tokens]
    ggml_tensor* gate = nullptr;  // [key_size * heads, tokens], before the sigmoid
};

// The norm of a head, of each head with a weight of its own, or of all heads at once: its shape
// tells.
Result<Norm> load_head_norm(Tensors& tensors, const std::string& name, std::uint64_t size,
                            std::uint64_t heads) {
    const gguf::Tensor* found = tensors.file().find_tensor(name + ".weight");
    if (found == nullptr) return Norm();
    if (found->shape[0] == size * heads) return tensors.norm(name, size * heads, Need::required);
    if (found->dimensions == 1) return tensors.norm(name, size, Need::required);
    Norm norm;
    const std::uint64_t length = found->shape[0] == 1 ? 1 : size;
    STET_ASSIGN(norm.weight, tensors.find(name + ".weight", {length, heads}, Need::required,
                                          Tensors::Use::values));
    return norm;
}

Status load_projections(Tensors& tensors, const std::string& base, const GqaPlan& plan,
                        GqaWeights& weights) {
    const std::uint64_t width = tensors.width();
    const std::uint64_t q_size = plan.heads * plan.query_columns();
    const std::uint64_t k_size = std::uint64_t{plan.kv_heads} * plan.key_size;
    const std::uint64_t v_size = std::uint64_t{plan.kv_heads} * plan.value_size;
    STET_ASSIGN(weights.qkv,
                tensors.linear(base + "qkv", width, q_size + k_size + v_size, Need::optional));
    if (weights.qkv) return {};
    STET_ASSIGN(weights.q, tensors.linear(base + "q", width, q_size, Need::required));
    if (!plan.has_rows) return {};
    STET_ASSIGN(weights.k, tensors.linear(base + "k", width, k_size, Need::required));
    const bool from_k = plan.v_from_k && k_size == v_size;
    STET_ASSIGN(weights.v, tensors.linear(base + "v", width, v_size,
                                          from_k ? Need::optional : Need::required));
    return {};
}

// q_size + k_size + v_size features of x at most, limited and cut.
Heads project(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
              ggml_tensor* x) {
    ggml_context* context = builder.context();
    const auto q_size = static_cast<std::int64_t>(plan.heads * plan.query_columns());
    const std::int64_t k_size = std::int64_t{plan.kv_heads} * plan.key_size;
    const std::int64_t v_size = std::int64_t{plan.kv_heads} * plan.value_size;
    const auto product = [&](const Linear& linear) {
        ggml_tensor* y = builder.product(x, linear);
        return plan.clamp > 0.0F ? ggml_clamp(context, y, -plan.clamp, plan.clamp) : y;
    };
    if (weights.qkv) {
        ggml_tensor* qkv = product(weights.qkv);
        Heads heads{builder.part(qkv, 0, q_size)};
        if (plan.has_rows) {
            heads.k = builder.part(qkv, q_size, k_size);
            heads.v = builder.part(qkv, q_size + k_size, v_size);
        }
        return heads;
    }
    Heads heads{product(weights.q)};
    if (plan.has_rows) {
        heads.k = product(weights.k);
        heads.v = weights.v ? product(weights.v) : heads.k;
    }
    return heads;
}

// Takes the gate out of heads.q.
void split_gate(StepBuilder& builder, const GqaPlan& plan, Heads& heads) {
    if (plan.gate != AttentionGate::in_queries) return;
    ggml_context* context = builder.context();
    ggml_tensor* both =
        ggml_reshape_3d(context, heads.q, 2 * plan.key_size, plan.heads, builder.tokens());
    const auto half = [&](std::size_t which) {
        ggml_tensor* part =
            ggml_view_3d(context, both, plan.key_size, plan.heads, builder.tokens(), both->nb[1],
                         both->nb[2], which * plan.key_size * sizeof(float));
        return ggml_cont_2d(context, part, std::int64_t{plan.key_size} * plan.heads,
                            builder.tokens());
    };
    heads.q = half(0);
    heads.gate = half(1);
}

// x [size * heads, tokens] or [size, heads, tokens] -> [size, heads, tokens].
ggml_tensor* norm_heads(StepBuilder& builder, ggml_tensor* x, const Norm& norm, bool weightless,
                        std::int64_t size, std::int64_t heads) {
    ggml_context* context = builder.context();
    if (norm && norm.weight->ne[0] == size * heads) {
        x = builder.norm(ggml_reshape_2d(context, x, size * heads, builder.tokens()), norm);
    }
    x = ggml_reshape_3d(context, x, size, heads, builder.tokens());
    if (norm && norm.weight->ne[0] != size * heads) return builder.norm(x, norm);
    return weightless ? builder.rms_norm(x, {}) : x;
}

Heads norm_and_rotate(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
                      Heads heads) {
    ggml_context* context = builder.context();
    const auto ready = [&](ggml_tensor* x, const Norm& norm, bool weightless, std::int64_t count) {
        if (plan.norm_after_rope) {
            x = ggml_reshape_3d(context, x, plan.key_size, count, builder.tokens());
            x = builder.rotate(x, plan.rope);
            return norm_heads(builder, x, norm, weightless, plan.key_size, count);
        }
        x = norm_heads(builder, x, norm, weightless, plan.key_size, count);
        return builder.rotate(x, plan.rope);
    };
    heads.q = ready(heads.q, weights.q_norm, plan.weightless_q_norm, plan.heads);
    if (!plan.has_rows) return heads;
    heads.k = ready(heads.k, weights.k_norm, plan.weightless_k_norm, plan.kv_heads);
    if (plan.weightless_v_norm) {
        ggml_tensor* v =
            ggml_reshape_3d(context, heads.v, plan.value_size, plan.kv_heads, builder.tokens());
        heads.v = ggml_reshape_2d(context, builder.rms_norm(v, {}),
                                  std::int64_t{plan.kv_heads} * plan.value_size, builder.tokens());
    }
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
    shape.max_alibi_bias = plan.alibi;
    shape.causal = plan.causal;
    shape.window_kind = plan.window_kind;
    shape.window = plan.window;
    return shape;
}

// What the layer's indexer keeps; null: it has none.
ggml_tensor* append_index(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
                          ggml_tensor* x) {
    if (plan.indexer) return append_block_keys(builder, *plan.indexer, weights.indexer, x);
    if (!plan.pooled_indexer) return nullptr;
    return append_pooled_keys(builder, *plan.pooled_indexer, weights.pooled_indexer, x);
}

exec::Graph::Selected choose(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
                             ggml_tensor* x, ggml_tensor* appended) {
    if (plan.indexer) {
        return build_block_indexer(builder, *plan.indexer, weights.indexer, x, appended);
    }
    return build_pooled_indexer(builder, *plan.pooled_indexer, weights.pooled_indexer, x, x,
                                appended);
}

}  // namespace

Result<GqaWeights> load(Tensors& tensors, std::size_t layer, const GqaPlan& plan) {
    const std::string base = fmt::format("blk.{}.attn_", layer);
    const std::uint64_t out_size = std::uint64_t{plan.heads} * plan.value_size;
    GqaWeights weights;
    STET_TRY(load_projections(tensors, base, plan, weights));
    STET_ASSIGN(weights.q_norm,
                load_head_norm(tensors, base + "q_norm", plan.key_size, plan.heads));
    if (plan.has_rows && weights.q_norm) {  // MPT: alone, a norm of keys has no effect
        STET_ASSIGN(weights.k_norm,
                    load_head_norm(tensors, base + "k_norm", plan.key_size, plan.kv_heads));
    }
    STET_ASSIGN(weights.gate,
                load_head_gate(tensors, base, plan.gate, {plan.heads, plan.value_size}));
    STET_ASSIGN(weights.sub_norm, tensors.norm(base + "sub_norm", out_size, Need::optional));
    STET_ASSIGN(weights.out,
                tensors.linear(base + "output", out_size, tensors.width(), Need::required));
    if (plan.biases != Biases::all) weights.out.bias = nullptr;
    if (plan.biases == Biases::none) {
        for (Linear* linear : {&weights.qkv, &weights.q, &weights.k, &weights.v}) {
            linear->bias = nullptr;
        }
    }
    STET_ASSIGN(weights.sinks, tensors.find(base + "sinks.weight", {plan.heads}, Need::optional));
    if (plan.indexer) {
        STET_ASSIGN(weights.indexer, load_block_indexer(tensors, layer, *plan.indexer));
    }
    if (plan.pooled_indexer) {
        STET_ASSIGN(weights.pooled_indexer,
                    load_pooled_indexer(tensors, layer, *plan.pooled_indexer, tensors.width()));
    }
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const GqaPlan& plan, const GqaWeights& weights,
                   ggml_tensor* x) {
    ggml_context* context = builder.context();
    exec::Graph& graph = builder.graph();
    const exec::AttentionShape shape = attention_shape(builder, plan);
    Heads heads = project(builder, plan, weights, x);
    split_gate(builder, plan, heads);
    heads = norm_and_rotate(builder, plan, weights, heads);
    // Shared rows are there already: x comes after the layer that appended them.
    std::vector<ggml_tensor*> appended;
    if (plan.has_rows) {
        ggml_tensor* k_rows = ggml_reshape_2d(
            context, heads.k, std::int64_t{plan.kv_heads} * plan.key_size, builder.tokens());
        appended = {graph.append_rows(k_rows, shape.k, plan.k.group),
                    graph.append_rows(heads.v, shape.v, plan.v.group)};
    }
    ggml_tensor* keys = append_index(builder, plan, weights, x);
    if (builder.only_state()) {
        for (ggml_tensor* rows : appended) builder.expand(rows);
        if (keys != nullptr) builder.expand(keys);
        return nullptr;
    }
    ggml_tensor* q = heads.q;
    if (plan.temperature_scale != 0.0F) {
        q = ggml_mul(context, q,
                     builder.query_temperature(plan.temperature_scale, plan.temperature_length,
                                               plan.temperature_offset));
    }
    ggml_tensor* y = nullptr;
    if (keys != nullptr) {
        const exec::Graph::Selected selected = choose(builder, plan, weights, x, keys);
        appended.push_back(selected.done);
        const std::array<exec::GroupRows, 1> sources = {
            exec::GroupRows{plan.k.group, {shape.k, shape.v, 1, selected.rows}}};
        y = graph.attention(q, shape, sources, appended, weights.sinks);
    } else {
        y = graph.attention(q, shape, plan.k.group, appended, weights.sinks);
    }
    if (heads.gate != nullptr) y = ggml_mul(context, y, ggml_sigmoid(context, heads.gate));
    y = apply_head_gate(builder, plan.gate, weights.gate, {plan.heads, plan.value_size}, y, x);
    if (weights.sub_norm) y = builder.norm(y, weights.sub_norm);
    y = builder.product(y, weights.out);
    return plan.output_scale == 1.0F ? y : ggml_scale(context, y, plan.output_scale);
}

}  // namespace stet::model
