#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/try.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

// Upper bounds of graph nodes: what one layer and what the rest can need.
constexpr std::size_t kNodesPerLayer = 256;
constexpr std::size_t kNodesOutside = 128;
// Steps of so few tokens come again and again, and spend much of their time where threads meet.
constexpr std::uint32_t kAdaptiveTokensMax = 8;

class Decoder {
  public:
    explicit Decoder(StepBuilder& builder)
        : builder_(builder),
          context_(builder.context()),
          config_(builder.config()),
          row_(*builder.config().architecture),
          weights_(builder.weights()) {}

    // `hidden`: the answer is what the head would read.
    void build(bool hidden);

  private:
    // What a layer's branches read.
    struct Branches {
        ggml_tensor* x;       // the residual stream
        ggml_tensor* normed;  // norm(x) that the mixer reads
        ggml_tensor* mixed;   // what it adds; null: nothing
    };

    ggml_tensor* embed();
    // What layers get of the tokens beside the stream, [layer_embedding, layers, tokens].
    ggml_tensor* embed_for_layers(ggml_tensor* x);
    ggml_tensor* run(ggml_tensor* x);
    // x after executed layers [begin, end); null when the step wants nothing more of it.
    ggml_tensor* layers(std::size_t begin, std::size_t end, ggml_tensor* x);
    ggml_tensor* stacks(ggml_tensor* high);
    ggml_tensor* layer(std::size_t index, ggml_tensor* x);
    // False when the step wants nothing more: it only fills the state, and no later layer has any.
    bool mix(const LayerPlan& plan, const LayerWeights& weights, Branches& branches);
    ggml_tensor* feed(const LayerPlan& plan, const LayerWeights& weights, const Branches& branches,
                      ggml_tensor* x);
    ggml_tensor* finish(std::size_t index, const LayerWeights& weights, ggml_tensor* x);
    ggml_tensor* pre_norm(ggml_tensor* x, const Norm& norm);
    ggml_tensor* post_norm(ggml_tensor* x, const Norm& norm);
    ggml_tensor* add(ggml_tensor* branch, ggml_tensor* x);
    void head(ggml_tensor* x);

    bool is_last(std::size_t index) const { return index + 1 == config_.layers.size(); }

    StepBuilder& builder_;
    ggml_context* context_;
    const Config& config_;
    const Architecture& row_;
    const Weights& weights_;
    ggml_tensor* embedded_ = nullptr;
    ggml_tensor* for_layers_ = nullptr;
    std::size_t last_with_rows_ = 0;
};

ggml_tensor* Decoder::embed() {
    ggml_tensor* x = ggml_get_rows(context_, weights_.embedding, builder_.token_ids());
    if (config_.embedding_scale != 1.0F) x = ggml_scale(context_, x, config_.embedding_scale);
    if (weights_.position_embedding != nullptr) {
        ggml_tensor* at =
            ggml_get_rows(context_, weights_.position_embedding, builder_.positions());
        x = ggml_add(context_, x, at);
    }
    if (row_.embedding_norm != EmbeddingNorm::none) x = builder_.norm(x, weights_.embedding_norm);
    return x;
}

ggml_tensor* Decoder::embed_for_layers(ggml_tensor* x) {
    const auto size = static_cast<std::int64_t>(config_.layer_embedding);
    const auto count = static_cast<std::int64_t>(config_.layers.size());
    const auto shaped = [&](ggml_tensor* y) {
        return ggml_reshape_3d(context_, y, size, count, builder_.tokens());
    };
    ggml_tensor* of_token = ggml_get_rows(context_, weights_.layer_embedding, builder_.token_ids());
    of_token = ggml_scale(context_, shaped(of_token), std::sqrt(static_cast<float>(size)));
    ggml_tensor* of_x = builder_.product(x, weights_.layer_embedding_projection);
    of_x = ggml_scale(context_, of_x, 1.0F / std::sqrt(static_cast<float>(config_.width)));
    of_x = builder_.norm(shaped(of_x), weights_.layer_embedding_norm);
    constexpr float kHalfRoot = 0.70710678F;
    return ggml_scale(context_, ggml_add(context_, of_x, of_token), kHalfRoot);
}

ggml_tensor* Decoder::pre_norm(ggml_tensor* x, const Norm& norm) {
    return row_.pre_norm == PreNorm::none ? x : builder_.norm(x, norm);
}

ggml_tensor* Decoder::post_norm(ggml_tensor* x, const Norm& norm) {
    if (!norm) return x;
    return row_.post_norm_epsilon != 0.0F ? builder_.rms_norm(x, norm, row_.post_norm_epsilon)
                                          : builder_.norm(x, norm);
}

ggml_tensor* Decoder::add(ggml_tensor* branch, ggml_tensor* x) {
    if (config_.residual_scale != 1.0F) {
        ggml_tensor*& scaled = row_.residual == Residual::normed ? x : branch;
        scaled = ggml_scale(context_, scaled, config_.residual_scale);
    }
    return ggml_add(context_, branch, x);
}

bool Decoder::mix(const LayerPlan& plan, const LayerWeights& weights, Branches& branches) {
    branches.normed = pre_norm(branches.x, weights.mixer_norm);
    branches.mixed = nullptr;
    for (std::size_t i = 0; i < plan.mixers.size(); ++i) {
        ggml_tensor* mixed =
            build_mixer(builder_, plan.mixers[i], weights.mixers[i], branches.normed);
        if (mixed == nullptr) continue;
        if (builder_.only_state()) builder_.expand(mixed);
        branches.mixed =
            branches.mixed == nullptr ? mixed : ggml_add(context_, branches.mixed, mixed);
    }
    return !builder_.only_state();
}

ggml_tensor* Decoder::feed(const LayerPlan& plan, const LayerWeights& weights,
                           const Branches& branches, ggml_tensor* x) {
    if (std::holds_alternative<NoFfn>(plan.ffn)) return x;
    FfnInput in{nullptr, x, branches.x};
    if (!plan.is_parallel) {
        in.normed = pre_norm(x, weights.ffn_norm);
    } else {
        in.normed =
            weights.ffn_norm ? builder_.norm(branches.x, weights.ffn_norm) : branches.normed;
    }
    ggml_tensor* fed = build_ffn(builder_, plan.ffn, weights.ffn, in);
    return add(post_norm(fed, weights.ffn_post_norm),
               row_.residual == Residual::normed ? in.normed : x);
}

// What follows the branches in some models.
ggml_tensor* Decoder::finish(std::size_t index, const LayerWeights& weights, ggml_tensor* x) {
    const auto only_wanted = [&](ggml_tensor* y) {
        return is_last(index) ? builder_.only_outputs(y) : y;
    };
    if (for_layers_ != nullptr) {
        ggml_tensor* its =
            ggml_view_2d(context_, for_layers_, for_layers_->ne[0], for_layers_->ne[2],
                         for_layers_->nb[2], index * for_layers_->nb[1]);
        ggml_tensor* gate = ggml_gelu(context_, builder_.product(x, weights.embedding_gate));
        ggml_tensor* y = ggml_mul(context_, gate, only_wanted(its));
        y = builder_.norm(builder_.product(y, weights.embedding_projection),
                          weights.embedding_post_norm);
        x = ggml_add(context_, x, y);
    }
    if (weights.output_scale == nullptr) return x;
    if (!row_.embedding_skip) return ggml_mul(context_, x, weights.output_scale);
    return ggml_add(context_, x, ggml_mul(context_, only_wanted(embedded_), weights.output_scale));
}

ggml_tensor* Decoder::layer(std::size_t index, ggml_tensor* x) {
    const LayerPlan& plan = config_.layers[index];
    const LayerWeights& weights = weights_.layers[plan.weights];
    const bool only_state = index == last_with_rows_ && builder_.outputs() == 0;
    const bool fed_has_state = keeps_state(plan.ffn);  // it needs all columns
    builder_.set_only_state(only_state && !fed_has_state);
    Branches branches{x, nullptr, nullptr};
    if (!mix(plan, weights, branches)) return nullptr;
    if (is_last(index) && !fed_has_state) {
        for (ggml_tensor** column : {&branches.x, &branches.mixed}) {
            if (*column != nullptr) *column = builder_.only_outputs(*column);
        }
        if (plan.is_parallel || row_.residual == Residual::normed) {
            branches.normed = builder_.only_outputs(branches.normed);
        }
    }
    x = row_.residual == Residual::normed ? branches.normed : branches.x;
    if (branches.mixed != nullptr) x = add(post_norm(branches.mixed, weights.mixer_post_norm), x);
    builder_.set_only_state(only_state);
    x = feed(plan, weights, branches, x);
    if (only_state) {
        builder_.expand(x);
        return nullptr;
    }
    if (is_last(index) && fed_has_state) x = builder_.only_outputs(x);
    x = finish(index, weights, x);
    if (plan.output_scale != 1.0F) x = ggml_scale(context_, x, plan.output_scale);
    return plan.norm_after ? builder_.norm(x, weights_.output_norm) : x;
}

ggml_tensor* Decoder::layers(std::size_t begin, std::size_t end, ggml_tensor* x) {
    for (std::size_t i = begin; i < end && x != nullptr; ++i) x = layer(i, x);
    return x;
}

// low = norm(stack(high + low)) several times, then high = norm(stack(high + low)), and again.
ggml_tensor* Decoder::stacks(ggml_tensor* high) {
    const std::size_t size = config_.stacks.size;
    ggml_tensor* low = weights_.low_start;
    for (std::size_t i = 0; i * size < config_.layers.size(); ++i) {
        ggml_tensor* x = layers(i * size, (i + 1) * size, ggml_add(context_, high, low));
        if (x == nullptr) return nullptr;
        const bool is_high = i % (config_.stacks.low_cycles + 1) == config_.stacks.low_cycles;
        (is_high ? high : low) = pre_norm(x, {});
    }
    return high;
}

void Decoder::head(ggml_tensor* x) {
    x = builder_.product(x, weights_.head);
    if (config_.logit_scale != 1.0F) x = ggml_scale(context_, x, config_.logit_scale);
    x = builder_.softcap(x, config_.final_softcap);
    const std::int64_t missing = std::int64_t{config_.vocabulary} - x->ne[0];
    if (missing > 0) {
        static constexpr float kNever = -std::numeric_limits<float>::infinity();
        ggml_tensor* none = builder_.graph().input(
            GGML_TYPE_F32, {missing, x->ne[1], 1, 1}, [](const exec::Step&, ggml_tensor* tensor) {
                std::fill_n(static_cast<float*>(tensor->data), ggml_nelements(tensor), kNever);
            });
        x = ggml_concat(context_, none, x, 0);
    }
    builder_.answer(x);
}

// The embedding through all layers, wanted columns only.
ggml_tensor* Decoder::run(ggml_tensor* x) {
    if (config_.encoder.encoder_layers != 0) return build_cross_decoder(builder_, x);
    if (config_.residual_block != 0) return build_residual_mix(builder_, x, last_with_rows_);
    if (config_.altup_streams != 0) return build_altup(builder_, x, for_layers_, last_with_rows_);
    if (config_.hyper.streams != 0) return build_hyper(builder_, x, last_with_rows_);
    return config_.stacks.size != 0 ? stacks(x) : layers(0, config_.layers.size(), x);
}

void Decoder::build(bool hidden) {
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
        if (config_.layers[i].has_rows) last_with_rows_ = i;
    }
    embedded_ = embed();
    if (config_.layer_embedding != 0) for_layers_ = embed_for_layers(embedded_);
    ggml_tensor* x = run(embedded_);
    if (x == nullptr) return;
    // The stacks' last norm is the output's, and so is the streams' own.
    if (config_.stacks.size == 0 && row_.pre_norm != PreNorm::in_streams) {
        x = builder_.norm(x, weights_.output_norm);
    }
    if (hidden) return builder_.answer(ggml_cont(context_, x));
    head(x);
}

std::size_t node_count(const Config& config) {
    std::size_t nodes = config.layers.size() * kNodesPerLayer + kNodesOutside;
    for (const LayerPlan& layer : config.layers) nodes += extra_nodes(layer.ffn);
    return nodes;
}

}  // namespace

Result<std::unique_ptr<exec::Graph>> build_decoder(const Config& config, const Weights& weights,
                                                   exec::Backend& backend, std::uint32_t tokens,
                                                   std::uint32_t outputs, bool hidden) {
    auto graph = std::make_unique<exec::Graph>(node_count(config));
    if (!config.step_rows.planes.empty()) graph->reserve_step_rows(config.step_rows, tokens);
    StepBuilder builder(config, weights, *graph, tokens, outputs);
    Decoder(builder).build(hidden);
    STET_TRY(graph->allocate(backend, tokens <= kAdaptiveTokensMax));
    return graph;
}

}  // namespace stet::model
