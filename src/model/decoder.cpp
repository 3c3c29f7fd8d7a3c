#include "model/decoder.h"

#include <array>
#include <utility>

#include "base/try.h"

namespace stet::model {
namespace {

// Upper bounds of graph nodes: what one layer and what the rest can need.
constexpr std::size_t kNodesPerLayer = 64;
constexpr std::size_t kNodesOutside = 64;

class DecoderBuilder {
  public:
    DecoderBuilder(const Config& config, const Weights& weights, exec::Graph& graph,
                   std::uint32_t tokens, std::uint32_t outputs)
        : config_(config),
          weights_(weights),
          graph_(graph),
          context_(graph.context()),
          tokens_(tokens),
          outputs_(outputs) {}

    void build();

  private:
    struct Heads {
        ggml_tensor* q;  // [key_size, heads, tokens]
        ggml_tensor* k;  // [key_size, kv_heads, tokens]
        ggml_tensor* v;  // [value_size * kv_heads, tokens]
    };

    ggml_tensor* input_i32(std::uint32_t size);
    ggml_tensor* norm(ggml_tensor* x, const Norm& norm);
    ggml_tensor* product(ggml_tensor* x, const Linear& linear);
    ggml_tensor* rotate(ggml_tensor* x, const Rope& rope);
    ggml_tensor* softcap(ggml_tensor* x, float cap);
    ggml_tensor* only_outputs(ggml_tensor* x);

    ggml_tensor* embed();
    Heads project(std::size_t layer, ggml_tensor* x);
    // Null when nothing after the appended rows is wanted.
    ggml_tensor* attend(std::size_t layer, ggml_tensor* x);
    ggml_tensor* feed_forward(const LayerWeights& layer, ggml_tensor* x);

    const Config& config_;
    const Weights& weights_;
    exec::Graph& graph_;
    ggml_context* context_;
    const std::uint32_t tokens_;
    const std::uint32_t outputs_;
};

ggml_tensor* DecoderBuilder::input_i32(std::uint32_t size) {
    ggml_tensor* tensor = ggml_new_tensor_1d(context_, GGML_TYPE_I32, size);
    ggml_set_input(tensor);
    return tensor;
}

ggml_tensor* DecoderBuilder::norm(ggml_tensor* x, const Norm& norm) {
    x = config_.architecture->norm == NormKind::rms ? ggml_rms_norm(context_, x, config_.norm_epsilon)
                                                    : ggml_norm(context_, x, config_.norm_epsilon);
    if (norm.weight != nullptr) x = ggml_mul(context_, x, norm.weight);
    if (norm.bias != nullptr) x = ggml_add(context_, x, norm.bias);
    return x;
}

ggml_tensor* DecoderBuilder::product(ggml_tensor* x, const Linear& linear) {
    ggml_tensor* y = ggml_mul_mat(context_, linear.weight, x);
    return linear.bias != nullptr ? ggml_add(context_, y, linear.bias) : y;
}

ggml_tensor* DecoderBuilder::rotate(ggml_tensor* x, const Rope& rope) {
    if (rope.kind == RopeKind::none || rope.dimensions == 0) return x;
    const int mode = rope.kind == RopeKind::neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
    return ggml_rope_ext(context_, x, graph_.positions, weights_.rope_factors,
                         static_cast<int>(rope.dimensions), mode,
                         static_cast<int>(rope.original_context), rope.base, rope.frequency_scale,
                         rope.extrapolation_factor, rope.attention_factor, rope.beta_fast,
                         rope.beta_slow);
}

ggml_tensor* DecoderBuilder::softcap(ggml_tensor* x, float cap) {
    if (cap == 0.0F) return x;
    x = ggml_scale(context_, x, 1.0F / cap);
    return ggml_scale(context_, ggml_tanh(context_, x), cap);
}

// Columns without wanted logits leave before the last feed-forward.
ggml_tensor* DecoderBuilder::only_outputs(ggml_tensor* x) {
    return outputs_ == tokens_ ? x : ggml_get_rows(context_, x, graph_.output_rows);
}

ggml_tensor* DecoderBuilder::embed() {
    ggml_tensor* x = ggml_get_rows(context_, weights_.embedding, graph_.tokens);
    return config_.embedding_scale == 1.0F ? x : ggml_scale(context_, x, config_.embedding_scale);
}

DecoderBuilder::Heads DecoderBuilder::project(std::size_t index, ggml_tensor* x) {
    const LayerPlan& plan = config_.layers[index];
    const LayerWeights& layer = weights_.layers[index];
    const std::int64_t q_size = std::int64_t{plan.heads} * plan.key_size;
    const std::int64_t k_size = std::int64_t{plan.kv_heads} * plan.key_size;
    const std::int64_t v_size = std::int64_t{plan.kv_heads} * plan.value_size;
    Heads heads{};
    if (layer.qkv) {
        ggml_tensor* qkv = product(x, layer.qkv);
        const auto part = [&](std::int64_t offset, std::int64_t size) {
            return ggml_cont(context_, ggml_view_2d(context_, qkv, size, tokens_, qkv->nb[1],
                                                    static_cast<std::size_t>(offset) * sizeof(float)));
        };
        heads = {part(0, q_size), part(q_size, k_size), part(q_size + k_size, v_size)};
    } else {
        heads = {product(x, layer.q), product(x, layer.k), product(x, layer.v)};
    }
    heads.q = ggml_reshape_3d(context_, heads.q, plan.key_size, plan.heads, tokens_);
    heads.k = ggml_reshape_3d(context_, heads.k, plan.key_size, plan.kv_heads, tokens_);
    if (layer.q_norm) heads.q = norm(heads.q, layer.q_norm);
    if (layer.k_norm) heads.k = norm(heads.k, layer.k_norm);
    heads.q = rotate(heads.q, plan.rope);
    heads.k = rotate(heads.k, plan.rope);
    return heads;
}

ggml_tensor* DecoderBuilder::attend(std::size_t index, ggml_tensor* x) {
    const LayerPlan& plan = config_.layers[index];
    const memory::Group& group = config_.schema.groups[plan.group];
    const auto view = [&](std::size_t plane) {
        return exec::PlaneView{group.plane_offset(plane), group.planes[plane].row_bytes,
                               group.planes[plane].type};
    };
    exec::AttentionShape shape;
    shape.heads = plan.heads;
    shape.kv_heads = plan.kv_heads;
    shape.key_size = plan.key_size;
    shape.value_size = plan.value_size;
    shape.k = view(plan.k_plane);
    shape.v = view(plan.v_plane);
    shape.v_head_stride = plan.value_size;
    shape.scale = config_.attention_scale;
    shape.softcap = config_.attention_softcap;
    shape.window_kind = plan.window_kind;
    shape.window = plan.window;

    const Heads heads = project(index, x);
    ggml_tensor* k_rows =
        ggml_reshape_2d(context_, heads.k, std::int64_t{plan.kv_heads} * plan.key_size, tokens_);
    const std::array appended = {graph_.append_rows(k_rows, shape.k, plan.group),
                                 graph_.append_rows(heads.v, shape.v, plan.group)};
    if (outputs_ == 0 && index + 1 == config_.layers.size()) {
        for (ggml_tensor* rows : appended) ggml_build_forward_expand(graph_.graph(), rows);
        return nullptr;
    }
    ggml_tensor* q = heads.q;
    if (graph_.query_scales != nullptr) q = ggml_mul(context_, q, graph_.query_scales);
    return product(graph_.attention(q, shape, plan.group, appended, nullptr),
                   weights_.layers[index].attention_out);
}

ggml_tensor* DecoderBuilder::feed_forward(const LayerWeights& layer, ggml_tensor* x) {
    ggml_tensor* up = product(x, layer.up);
    ggml_tensor* gate = layer.gate ? product(x, layer.gate) : nullptr;
    switch (config_.architecture->activation) {
        case Activation::silu:
            up = gate != nullptr ? ggml_swiglu_split(context_, gate, up) : ggml_silu(context_, up);
            break;
        case Activation::gelu:
            up = gate != nullptr ? ggml_geglu_split(context_, gate, up) : ggml_gelu(context_, up);
            break;
        case Activation::relu:
            up = gate != nullptr ? ggml_reglu_split(context_, gate, up) : ggml_relu(context_, up);
            break;
        case Activation::relu_squared:
            up = gate != nullptr
                     ? ggml_mul(context_, ggml_sqr(context_, ggml_relu(context_, gate)), up)
                     : ggml_sqr(context_, ggml_relu(context_, up));
            break;
    }
    return product(up, layer.down);
}

void DecoderBuilder::build() {
    graph_.tokens = input_i32(tokens_);
    graph_.positions = input_i32(tokens_);
    if (outputs_ > 0 && outputs_ < tokens_) graph_.output_rows = input_i32(outputs_);
    if (config_.query_temperature_scale != 0.0F) {
        graph_.query_scales = ggml_new_tensor_3d(context_, GGML_TYPE_F32, 1, 1, tokens_);
        graph_.query_scale_rule = {config_.query_temperature_scale, config_.query_temperature_length};
        ggml_set_input(graph_.query_scales);
    }
    ggml_tensor* x = embed();
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
        const LayerWeights& layer = weights_.layers[i];
        ggml_tensor* mixed = attend(i, norm(x, layer.attention_norm));
        if (mixed == nullptr) return;
        if (i + 1 == config_.layers.size()) {
            mixed = only_outputs(mixed);
            x = only_outputs(x);
        }
        if (layer.attention_post_norm) mixed = norm(mixed, layer.attention_post_norm);
        x = ggml_add(context_, mixed, x);
        ggml_tensor* fed = feed_forward(layer, norm(x, layer.ffn_norm));
        if (layer.ffn_post_norm) fed = norm(fed, layer.ffn_post_norm);
        x = ggml_add(context_, fed, x);
    }
    x = product(norm(x, weights_.output_norm), weights_.head);
    graph_.logits = softcap(x, config_.final_softcap);
    ggml_set_output(graph_.logits);
    ggml_build_forward_expand(graph_.graph(), graph_.logits);
}

}  // namespace

Result<std::unique_ptr<exec::Graph>> build_decoder(const Config& config, const Weights& weights,
                                                   exec::Backend& backend, std::uint32_t tokens,
                                                   std::uint32_t outputs) {
    auto graph =
        std::make_unique<exec::Graph>(config.layers.size() * kNodesPerLayer + kNodesOutside);
    DecoderBuilder(config, weights, *graph, tokens, outputs).build();
    STET_TRY(graph->allocate(backend));
    return graph;
}

}  // namespace stet::model
