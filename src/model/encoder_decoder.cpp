#include "model/encoder_decoder.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "exec/relative_attention.h"
#include "model/config.h"
#include "model/ffn/activation.h"
#include "model/mixers/recurrent.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

constexpr std::size_t kNodesPerLayer = 64;
constexpr std::size_t kNodesOutside = 32;
constexpr std::uint32_t kBucketsMax = 4096;

Status resolve_sizes(const Keys& keys, Config& config) {
    EncoderDecoder& plan = config.encoder;
    STET_ASSIGN(plan.encoder_layers, keys.uint("block_count", 1, kLayersMax));
    STET_ASSIGN(plan.decoder_layers,
                keys.uint_or("decoder_block_count", plan.encoder_layers, 1, kLayersMax));
    STET_ASSIGN(plan.heads, keys.uint("attention.head_count", 1, kHeadsMax));
    STET_ASSIGN(const auto kv_heads,
                keys.uint_or("attention.head_count_kv", plan.heads, 1, kHeadsMax));
    STET_ASSIGN(plan.size,
                keys.uint_or("attention.key_length", config.width / plan.heads, 1, kHeadSizeMax));
    STET_ASSIGN(const auto value_size,
                keys.uint_or("attention.value_length", plan.size, 1, kHeadSizeMax));
    STET_ASSIGN(plan.ffn_size, keys.uint("feed_forward_length", 1, kWidthMax));
    STET_ASSIGN(plan.buckets, keys.uint("attention.relative_buckets_count", 4, kBucketsMax));
    STET_ASSIGN(const auto start,
                keys.uint_or("decoder_start_token_id", 0, 0, config.vocabulary - 1));
    plan.start_token = static_cast<std::int32_t>(start);
    if (kv_heads == plan.heads && value_size == plan.size && plan.buckets % 4 == 0) return {};
    return Status(Code::unimplemented,
                  fmt::format("{}: {} heads of {} over {} key/value heads of {} with {} buckets of "
                              "distances; only equal heads and a multiple of 4 are supported",
                              keys.file().path().string(), plan.heads, plan.size, kv_heads,
                              value_size, plan.buckets));
}

Result<EncoderDecoderWeights::Attention> load_attention(Tensors& tensors, const Config& config,
                                                        const std::string& base) {
    const std::uint64_t width = config.width;
    const std::uint64_t features = config.encoder.features();
    EncoderDecoderWeights::Attention weights;
    STET_ASSIGN(weights.norm, tensors.norm(base + "_norm", width, Need::required));
    STET_ASSIGN(weights.q, tensors.linear(base + "_q", width, features, Need::required));
    STET_ASSIGN(weights.k, tensors.linear(base + "_k", width, features, Need::required));
    STET_ASSIGN(weights.v, tensors.linear(base + "_v", width, features, Need::required));
    STET_ASSIGN(weights.out, tensors.linear(base + "_o", features, width, Need::required));
    return weights;
}

// Layers of "enc" or "dec".
Result<std::vector<EncoderDecoderWeights::Layer>> load_stack(Tensors& tensors, const Config& config,
                                                             const char* stack,
                                                             std::uint32_t count) {
    const EncoderDecoder& plan = config.encoder;
    const std::uint64_t width = config.width;
    const bool is_decoder = std::string_view(stack) == "dec";
    std::vector<EncoderDecoderWeights::Layer> layers;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::string base = fmt::format("{}.blk.{}.", stack, i);
        EncoderDecoderWeights::Layer layer;
        STET_ASSIGN(layer.own, load_attention(tensors, config, base + "attn"));
        // Of most models only the first layer has a table, which is that of all.
        STET_ASSIGN(layer.own.bias,
                    tensors.find(base + "attn_rel_b.weight", {plan.heads, plan.buckets},
                                 i == 0 ? Need::required : Need::optional));
        if (layer.own.bias == nullptr) layer.own.bias = layers[0].own.bias;
        if (is_decoder) {
            STET_ASSIGN(layer.cross, load_attention(tensors, config, base + "cross_attn"));
        }
        STET_ASSIGN(layer.ffn_norm, tensors.norm(base + "ffn_norm", width, Need::required));
        STET_ASSIGN(layer.gate,
                    tensors.linear(base + "ffn_gate", width, plan.ffn_size, Need::optional));
        STET_ASSIGN(layer.up,
                    tensors.linear(base + "ffn_up", width, plan.ffn_size, Need::required));
        STET_ASSIGN(layer.down,
                    tensors.linear(base + "ffn_down", plan.ffn_size, width, Need::required));
        layers.push_back(layer);
    }
    return layers;
}

// What one sequence's queries see of the pages of a decoder layer.
struct PagedRows {
    exec::PlaneView k, v;
    std::size_t encoded_group;
    std::uint64_t encoded_offset;

    std::vector<exec::RelativeSpan> spans(const exec::StateOpContext& op, bool is_cross) const {
        std::vector<exec::RelativeSpan> result;
        for (std::size_t i = 0; i < op.segments.size(); ++i) {
            const exec::Segment& segment = op.segments[i];
            const exec::Segment& block = op.step.segments[encoded_group][i];
            const float* count = exec::base_row(block, encoded_offset);
            const auto encoded = count == nullptr ? 0 : static_cast<std::uint64_t>(*count);
            exec::RelativeSpan& span = result.emplace_back();
            span.token_begin = segment.token_begin;
            span.token_count = segment.token_count;
            span.position = segment.position;
            span.causal = !is_cross;
            span.row_begin = is_cross ? 0 : encoded;
            span.row_end = is_cross ? encoded : segment.position + segment.token_count;
            span.pages = segment.pages;
            span.k_plane = k;
            span.v_plane = v;
        }
        return result;
    }
};

class Stack {
  public:
    explicit Stack(StepBuilder& builder)
        : builder_(builder),
          context_(builder.context()),
          config_(builder.config()),
          plan_(builder.config().encoder),
          weights_(builder.weights().encoder_decoder) {}

    ggml_tensor* decode(ggml_tensor* x);
    ggml_tensor* encode(ggml_tensor* x);

  private:
    using Attention = EncoderDecoderWeights::Attention;

    exec::RelativeAttention shape(bool both_ways) const {
        exec::RelativeAttention shape;
        shape.heads = plan_.heads;
        shape.size = plan_.size;
        shape.buckets = plan_.buckets;
        shape.both_ways = both_ways;
        return shape;
    }
    // Writes the number of encoded tokens: that before the step, or that of the step.
    void keep_count(ggml_tensor* x, bool encodes);
    ggml_tensor* attend_plain(const Attention& weights, ggml_tensor* x);
    // `after`: rows that must be appended first.
    ggml_tensor* attend_pages(std::size_t layer, const Attention& weights, ggml_tensor* x,
                              std::span<ggml_tensor* const> after);
    std::array<ggml_tensor*, 2> append(std::size_t layer, const Attention& weights, ggml_tensor* x);
    ggml_tensor* feed(const EncoderDecoderWeights::Layer& layer, ggml_tensor* x);

    StepBuilder& builder_;
    ggml_context* context_;
    const Config& config_;
    const EncoderDecoder& plan_;
    const EncoderDecoderWeights& weights_;
};

void Stack::keep_count(ggml_tensor* x, bool encodes) {
    const std::uint64_t offset = builder_.plane(plan_.encoded).offset_bytes;
    const std::array inputs = {x};
    builder_.expand(builder_.graph().state_op(
        {1, 1, 1, 1}, inputs, plan_.encoded.group,
        [offset, encodes](const exec::StateOpContext& op) {
            if (op.thread != 0) return;
            for (const exec::Segment& segment : op.segments) {
                float* count = exec::new_row(segment, offset);
                exec::start_from(exec::base_row(segment, offset), count, 0, 1);
                if (encodes) *count = static_cast<float>(segment.token_count);
            }
            *static_cast<float*>(op.out->data) = 0.0F;
        }));
}

// Of a sequence's tokens to each other, in the step alone.
ggml_tensor* Stack::attend_plain(const Attention& weights, ggml_tensor* x) {
    const std::array inputs = {builder_.product(x, weights.q), builder_.product(x, weights.k),
                               builder_.product(x, weights.v), builder_.as_f32(weights.bias)};
    ggml_tensor* y = builder_.graph().state_op(
        {static_cast<std::int64_t>(plan_.features()), builder_.tokens(), 1, 1}, inputs,
        exec::Graph::kStepGroup, [first = shape(true)](const exec::StateOpContext& op) {
            exec::RelativeAttention mine = first;
            mine.bias = static_cast<const float*>(op.out->src[3]->data);
            std::vector<exec::RelativeSpan> spans;
            for (const exec::Segment& sequence : op.step.sequences) {
                exec::RelativeSpan& span = spans.emplace_back();
                span.token_begin = sequence.token_begin;
                span.token_count = span.row_end = sequence.token_count;
                span.k = rows_of(op.out->src[1]);
                span.v = rows_of(op.out->src[2]);
                span.k.data += sequence.token_begin * span.k.stride;
                span.v.data += sequence.token_begin * span.v.stride;
            }
            exec::relative_attention(mine, spans, rows_of(op.out->src[0]), mutable_rows_of(op.out),
                                     op.thread, op.threads);
        });
    return builder_.product(y, weights.out);
}

ggml_tensor* Stack::attend_pages(std::size_t layer, const Attention& weights, ggml_tensor* x,
                                 std::span<ggml_tensor* const> after) {
    const bool is_cross = weights.bias == nullptr;
    std::vector<ggml_tensor*> inputs = {builder_.product(x, weights.q)};
    if (!is_cross) inputs.push_back(builder_.as_f32(weights.bias));
    inputs.insert(inputs.end(), after.begin(), after.end());
    const PagedRows rows{builder_.plane(plan_.k[layer]), builder_.plane(plan_.v[layer]),
                         plan_.encoded.group, builder_.plane(plan_.encoded).offset_bytes};
    ggml_tensor* y = builder_.graph().state_op(
        {static_cast<std::int64_t>(plan_.features()), builder_.tokens(), 1, 1}, inputs,
        plan_.k[layer].group,
        [first = shape(false), rows, is_cross](const exec::StateOpContext& op) {
            exec::RelativeAttention mine = first;
            if (!is_cross) mine.bias = static_cast<const float*>(op.out->src[1]->data);
            exec::relative_attention(mine, rows.spans(op, is_cross), rows_of(op.out->src[0]),
                                     mutable_rows_of(op.out), op.thread, op.threads);
        });
    return builder_.product(y, weights.out);
}

std::array<ggml_tensor*, 2> Stack::append(std::size_t layer, const Attention& weights,
                                          ggml_tensor* x) {
    exec::Graph& graph = builder_.graph();
    const PlaneSlot& k = plan_.k[layer];
    const PlaneSlot& v = plan_.v[layer];
    return {graph.append_rows(builder_.product(x, weights.k), builder_.plane(k), k.group),
            graph.append_rows(builder_.product(x, weights.v), builder_.plane(v), v.group)};
}

ggml_tensor* Stack::feed(const EncoderDecoderWeights::Layer& layer, ggml_tensor* x) {
    ggml_tensor* normed = builder_.norm(x, layer.ffn_norm);
    ActivationPlan activation;
    activation.kind = layer.gate ? Activation::gelu : Activation::relu;
    ggml_tensor* gate = layer.gate ? builder_.product(normed, layer.gate) : nullptr;
    ggml_tensor* y = activate(context_, activation, gate, builder_.product(normed, layer.up));
    return ggml_add(context_, x, builder_.product(y, layer.down));
}

ggml_tensor* Stack::decode(ggml_tensor* x) {
    keep_count(x, false);
    for (std::size_t i = 0; i < weights_.decoder.size(); ++i) {
        const EncoderDecoderWeights::Layer& layer = weights_.decoder[i];
        const bool is_last = i + 1 == weights_.decoder.size();
        ggml_tensor* normed = builder_.norm(x, layer.own.norm);
        const auto appended = append(i, layer.own, normed);
        if (is_last && builder_.outputs() == 0) {
            for (ggml_tensor* rows : appended) builder_.expand(rows);
            return nullptr;
        }
        x = ggml_add(context_, x, attend_pages(i, layer.own, normed, appended));
        normed = builder_.norm(x, layer.cross.norm);
        x = ggml_add(context_, x, attend_pages(i, layer.cross, normed, {}));
        if (is_last) x = builder_.only_outputs(x);
        x = feed(layer, x);
    }
    return x;
}

ggml_tensor* Stack::encode(ggml_tensor* x) {
    keep_count(x, true);
    for (const EncoderDecoderWeights::Layer& layer : weights_.encoder) {
        x = ggml_add(context_, x, attend_plain(layer.own, builder_.norm(x, layer.own.norm)));
        x = feed(layer, x);
    }
    x = builder_.norm(x, weights_.encoder_norm);
    for (std::size_t i = 0; i < weights_.decoder.size(); ++i) {
        for (ggml_tensor* rows : append(i, weights_.decoder[i].cross, x)) builder_.expand(rows);
    }
    return x;
}

}  // namespace

Status resolve_encoder_decoder(const Keys& keys, SchemaBuilder& schema, Config& config) {
    EncoderDecoder& plan = config.encoder;
    STET_TRY(resolve_sizes(keys, config));
    STET_ASSIGN(plan.encoded, schema.add("encoder", memory::Lifetime::fixed, 0, "tokens", 0,
                                         memory::ElementType::f32, 1));
    const auto features = static_cast<std::uint32_t>(plan.features());
    const StateTypes& types = schema.types();
    for (std::uint32_t i = 0; i < plan.decoder_layers; ++i) {
        for (const memory::ElementType type : {types.k, types.v}) {
            if (memory::row_bytes(type, plan.size) != 0) continue;
            return Status(Code::invalid_argument,
                          fmt::format("{}: heads of {} elements can't be kept as {}",
                                      keys.file().path().string(), plan.size,
                                      memory::element_type_name(type)));
        }
        STET_ASSIGN(const auto k, schema.add_rows(0, "k", i, types.k, features));
        STET_ASSIGN(const auto v, schema.add_rows(0, "v", i, types.v, features));
        plan.k.push_back(k);
        plan.v.push_back(v);
        LayerPlan layer;
        layer.weights = i;
        layer.has_rows = true;
        config.layers.push_back(std::move(layer));
    }
    return {};
}

Result<EncoderDecoderWeights> load_encoder_decoder(Tensors& tensors, const Config& config) {
    const EncoderDecoder& plan = config.encoder;
    EncoderDecoderWeights weights;
    STET_ASSIGN(weights.encoder, load_stack(tensors, config, "enc", plan.encoder_layers));
    STET_ASSIGN(weights.decoder, load_stack(tensors, config, "dec", plan.decoder_layers));
    STET_ASSIGN(weights.encoder_norm,
                tensors.norm("enc.output_norm", config.width, Need::required));
    return weights;
}

ggml_tensor* build_cross_decoder(StepBuilder& builder, ggml_tensor* x) {
    return Stack(builder).decode(x);
}

Result<std::unique_ptr<exec::Graph>> build_encoder(const Config& config, const Weights& weights,
                                                   exec::Backend& backend, std::uint32_t tokens,
                                                   bool hidden) {
    const EncoderDecoder& plan = config.encoder;
    auto graph = std::make_unique<exec::Graph>(
        (std::size_t{plan.encoder_layers} + plan.decoder_layers) * kNodesPerLayer + kNodesOutside);
    StepBuilder builder(config, weights, *graph, tokens, 0);
    ggml_tensor* encoded = Stack(builder).encode(
        ggml_get_rows(builder.context(), weights.embedding, builder.token_ids()));
    if (hidden) builder.answer(encoded);
    STET_TRY(graph->allocate(backend, false));
    return graph;
}

}  // namespace stet::model
