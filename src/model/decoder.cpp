#include "model/decoder.h"

#include "base/try.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

// Upper bounds of graph nodes: what one layer and what the rest can need.
constexpr std::size_t kNodesPerLayer = 256;
constexpr std::size_t kNodesOutside = 128;

class Decoder {
  public:
    explicit Decoder(StepBuilder& builder)
        : builder_(builder),
          context_(builder.context()),
          config_(builder.config()),
          weights_(builder.weights()) {}

    void build();

  private:
    ggml_tensor* embed();
    // x after the layer; null when the step wants nothing of it but its state.
    ggml_tensor* layer(const LayerPlan& plan, ggml_tensor* x, bool is_last);
    // What the layer's mixers add to x.
    ggml_tensor* mix(const LayerPlan& plan, const LayerWeights& weights, ggml_tensor* x);
    ggml_tensor* add(ggml_tensor* branch, ggml_tensor* x);

    StepBuilder& builder_;
    ggml_context* context_;
    const Config& config_;
    const Weights& weights_;
};

ggml_tensor* Decoder::embed() {
    ggml_tensor* x = ggml_get_rows(context_, weights_.embedding, builder_.token_ids());
    return config_.embedding_scale == 1.0F ? x : ggml_scale(context_, x, config_.embedding_scale);
}

ggml_tensor* Decoder::add(ggml_tensor* branch, ggml_tensor* x) {
    if (config_.residual_scale != 1.0F)
        branch = ggml_scale(context_, branch, config_.residual_scale);
    return ggml_add(context_, branch, x);
}

ggml_tensor* Decoder::mix(const LayerPlan& plan, const LayerWeights& weights, ggml_tensor* x) {
    ggml_tensor* normed = builder_.norm(x, weights.mixer_norm);
    ggml_tensor* sum = nullptr;
    for (std::size_t i = 0; i < plan.mixers.size(); ++i) {
        ggml_tensor* mixed = build_mixer(builder_, plan.mixers[i], weights.mixers[i], normed);
        if (mixed == nullptr) continue;
        if (builder_.only_state()) builder_.expand(mixed);
        sum = sum == nullptr ? mixed : ggml_add(context_, sum, mixed);
    }
    return sum;
}

ggml_tensor* Decoder::layer(const LayerPlan& plan, ggml_tensor* x, bool is_last) {
    const LayerWeights& weights = weights_.layers[plan.weights];
    builder_.set_only_state(is_last && builder_.outputs() == 0);
    ggml_tensor* mixed = nullptr;
    if (!plan.mixers.empty()) mixed = mix(plan, weights, x);
    if (builder_.only_state()) return nullptr;
    if (is_last) {
        if (mixed != nullptr) mixed = builder_.only_outputs(mixed);
        x = builder_.only_outputs(x);
    }
    if (mixed != nullptr) {
        if (weights.mixer_post_norm) mixed = builder_.norm(mixed, weights.mixer_post_norm);
        x = add(mixed, x);
    }
    if (std::holds_alternative<NoFfn>(plan.ffn)) return x;
    ggml_tensor* fed =
        build_ffn(builder_, plan.ffn, weights.ffn, builder_.norm(x, weights.ffn_norm));
    if (weights.ffn_post_norm) fed = builder_.norm(fed, weights.ffn_post_norm);
    return add(fed, x);
}

void Decoder::build() {
    ggml_tensor* x = embed();
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
        x = layer(config_.layers[i], x, i + 1 == config_.layers.size());
        if (x == nullptr) return;
    }
    x = builder_.product(builder_.norm(x, weights_.output_norm), weights_.head);
    if (config_.logit_scale != 1.0F) x = ggml_scale(context_, x, config_.logit_scale);
    ggml_tensor* logits = builder_.softcap(x, config_.final_softcap);
    ggml_set_output(logits);
    builder_.graph().logits = logits;
    builder_.expand(logits);
}

}  // namespace

Result<std::unique_ptr<exec::Graph>> build_decoder(const Config& config, const Weights& weights,
                                                   exec::Backend& backend, std::uint32_t tokens,
                                                   std::uint32_t outputs) {
    auto graph =
        std::make_unique<exec::Graph>(config.layers.size() * kNodesPerLayer + kNodesOutside);
    if (!config.step_rows.planes.empty()) graph->reserve_step_rows(config.step_rows, tokens);
    StepBuilder builder(config, weights, *graph, tokens, outputs);
    Decoder(builder).build();
    STET_TRY(graph->allocate(backend));
    return graph;
}

}  // namespace stet::model
