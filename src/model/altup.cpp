#include "model/altup.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

constexpr float kHalfRoot = 0.70710678F;

// x is [width, tokens, streams] throughout.
class Altup {
  public:
    Altup(StepBuilder& builder, ggml_tensor* for_layers)
        : builder_(builder),
          context_(builder.context()),
          config_(builder.config()),
          for_layers_(for_layers),
          streams_(config_.altup_streams) {}

    ggml_tensor* spread(ggml_tensor* x);
    ggml_tensor* layer(std::size_t index, ggml_tensor* x);
    ggml_tensor* collect(ggml_tensor* x);

  private:
    ggml_tensor* stream(ggml_tensor* x, std::size_t which) {
        return ggml_view_2d(context_, x, x->ne[0], x->ne[1], x->nb[1], which * x->nb[2]);
    }
    ggml_tensor* others(ggml_tensor* x) {
        return ggml_view_3d(context_, x, x->ne[0], x->ne[1], streams_ - 1, x->nb[1], x->nb[2],
                            x->nb[2]);
    }
    // As long as `like`, for each token.
    ggml_tensor* resized(ggml_tensor* x, ggml_tensor* like);
    ggml_tensor* length(ggml_tensor* x) {
        return ggml_sqrt(context_, ggml_sum_rows(context_, ggml_sqr(context_, x)));
    }
    ggml_tensor* modalities(const AltupLayerWeights& weights, ggml_tensor* active);
    ggml_tensor* predict(const AltupLayerWeights& weights, ggml_tensor* x);
    ggml_tensor* correct(const AltupLayerWeights& weights, ggml_tensor* predicted, ggml_tensor* y);
    ggml_tensor* own_embedding(std::size_t index, const LayerWeights& weights, ggml_tensor* x);

    StepBuilder& builder_;
    ggml_context* context_;
    const Config& config_;
    ggml_tensor* for_layers_;
    const std::int64_t streams_;
};

ggml_tensor* Altup::resized(ggml_tensor* x, ggml_tensor* like) {
    return ggml_div(context_, ggml_mul(context_, x, length(like)), length(x));
}

ggml_tensor* Altup::spread(ggml_tensor* x) {
    ggml_tensor* copies = ggml_repeat_4d(context_, x, x->ne[0], x->ne[1], streams_ - 1, 1);
    ggml_tensor* more = ggml_mul_mat(context_, builder_.weights().altup.spread, copies);
    return ggml_concat(context_, x, resized(more, x), 2);
}

ggml_tensor* Altup::collect(ggml_tensor* x) {
    ggml_tensor* first = stream(x, 0);
    ggml_tensor* more = ggml_mul_mat(context_, builder_.weights().altup.collect, others(x));
    more = resized(more, first);
    ggml_tensor* sum = first;
    for (std::size_t i = 0; i + 1 < config_.altup_streams; ++i) {
        sum = ggml_add(context_, sum, stream(more, i));
    }
    return ggml_scale(context_, sum, 1.0F / static_cast<float>(streams_));
}

// tanh(W norm(active) / width), [streams, tokens].
ggml_tensor* Altup::modalities(const AltupLayerWeights& weights, ggml_tensor* active) {
    ggml_tensor* x = builder_.norm(active, weights.router_norm);
    x = ggml_scale(context_, x, 1.0F / static_cast<float>(config_.width));
    return ggml_tanh(context_, builder_.product(x, weights.router));
}

ggml_tensor* Altup::predict(const AltupLayerWeights& weights, ggml_tensor* x) {
    ggml_tensor* coefficients =
        builder_.product(modalities(weights, stream(x, 0)), weights.predict);
    coefficients = ggml_reshape_3d(context_, coefficients, streams_, streams_, builder_.tokens());
    ggml_tensor* by_token = ggml_cont(context_, ggml_permute(context_, x, 1, 2, 0, 3));
    ggml_tensor* mixed = ggml_mul_mat(context_, by_token, coefficients);
    mixed = ggml_cont(context_, ggml_permute(context_, mixed, 0, 2, 1, 3));
    return ggml_add(context_, mixed, x);
}

ggml_tensor* Altup::correct(const AltupLayerWeights& weights, ggml_tensor* predicted,
                            ggml_tensor* y) {
    ggml_tensor* coefficients = builder_.product(modalities(weights, y), weights.correct);
    coefficients = ggml_scale_bias(context_, coefficients, 1.0F, 1.0F);
    coefficients = ggml_cont_3d(context_, ggml_transpose(context_, coefficients), 1,
                                builder_.tokens(), streams_);
    ggml_tensor* news = ggml_sub(context_, y, stream(predicted, 0));
    news = ggml_repeat_4d(context_, news, news->ne[0], news->ne[1], streams_, 1);
    return ggml_add(context_, ggml_mul(context_, news, coefficients), predicted);
}

ggml_tensor* Altup::own_embedding(std::size_t index, const LayerWeights& weights, ggml_tensor* x) {
    ggml_tensor* its = ggml_view_2d(context_, for_layers_, for_layers_->ne[0], for_layers_->ne[2],
                                    for_layers_->nb[2], index * for_layers_->nb[1]);
    ggml_tensor* active = ggml_mul(context_, stream(x, 0), weights.altup.correct_scale);
    ggml_tensor* gate = ggml_gelu(context_, builder_.product(active, weights.embedding_gate));
    return builder_.norm(
        builder_.product(ggml_mul(context_, gate, its), weights.embedding_projection),
        weights.embedding_post_norm);
}

ggml_tensor* Altup::layer(std::size_t index, ggml_tensor* x) {
    const LayerPlan& plan = config_.layers[index];
    const LayerWeights& weights = builder_.weights().layers[plan.weights];
    const AltupLayerWeights& own = weights.altup;
    ggml_tensor* predicted = predict(own, x);
    ggml_tensor* active = stream(predicted, 0);
    ggml_tensor* normed = builder_.norm(active, weights.mixer_norm);
    ggml_tensor* mixed = build_mixer(builder_, plan.mixers[0], weights.mixers[0], normed);
    if (builder_.only_state()) return nullptr;
    ggml_tensor* low_rank = builder_.product(builder_.product(normed, own.low), own.high);
    low_rank = ggml_add(context_, builder_.norm(low_rank, own.low_rank_norm), normed);
    ggml_tensor* y = ggml_add(context_, builder_.norm(mixed, weights.mixer_post_norm), active);
    y = ggml_scale(context_, ggml_add(context_, y, low_rank), kHalfRoot);
    ggml_tensor* fed =
        build_ffn(builder_, plan.ffn, weights.ffn, {builder_.norm(y, weights.ffn_norm), y, active});
    y = ggml_add(context_, builder_.norm(fed, weights.ffn_post_norm), y);
    x = correct(own, predicted, y);
    ggml_tensor* more = own_embedding(index, weights, x);
    return ggml_concat(context_, stream(x, 0), ggml_add(context_, others(x), more), 2);
}

}  // namespace

Result<AltupWeights> load_altup(Tensors& tensors, const Config& config) {
    const std::uint64_t width = config.width;
    const std::uint64_t others = config.altup_streams - 1;
    AltupWeights weights;
    STET_ASSIGN(weights.spread,
                tensors.find("altup_proj.weight", {width, width, others}, Need::required));
    STET_ASSIGN(weights.collect,
                tensors.find("altup_unembd_proj.weight", {width, width, others}, Need::required));
    return weights;
}

Result<AltupLayerWeights> load_altup_layer(Tensors& tensors, const Config& config,
                                           std::size_t layer) {
    const std::string base = fmt::format("blk.{}.", layer);
    const std::uint64_t width = config.width;
    const std::uint64_t streams = config.altup_streams;
    AltupLayerWeights weights;
    STET_ASSIGN(weights.router_norm,
                tensors.norm(base + "altup_router_norm", width, Need::required));
    STET_ASSIGN(weights.router,
                tensors.linear(base + "altup_router", width, streams, Need::required));
    STET_ASSIGN(weights.predict, tensors.linear(base + "altup_predict_coef", streams,
                                                streams * streams, Need::required));
    STET_ASSIGN(weights.correct,
                tensors.linear(base + "altup_correct_coef", streams, streams, Need::required));
    STET_ASSIGN(weights.correct_scale,
                tensors.find(base + "altup_correct_scale.weight", {width}, Need::required));
    const gguf::Tensor* low = tensors.file().find_tensor(base + "laurel_l.weight");
    const std::uint64_t rank = low == nullptr ? 0 : low->shape[1];
    STET_ASSIGN(weights.low, tensors.linear(base + "laurel_l", width, rank, Need::required));
    STET_ASSIGN(weights.high, tensors.linear(base + "laurel_r", rank, width, Need::required));
    STET_ASSIGN(weights.low_rank_norm,
                tensors.norm(base + "laurel_post_norm", width, Need::required));
    return weights;
}

ggml_tensor* build_altup(StepBuilder& builder, ggml_tensor* x, ggml_tensor* for_layers,
                         std::size_t last_with_rows) {
    Altup altup(builder, for_layers);
    x = altup.spread(x);
    for (std::size_t i = 0; i < builder.config().layers.size(); ++i) {
        builder.set_only_state(i == last_with_rows && builder.outputs() == 0);
        x = altup.layer(i, x);
        if (x == nullptr) return nullptr;
    }
    return builder.only_outputs(altup.collect(x));
}

}  // namespace stet::model
