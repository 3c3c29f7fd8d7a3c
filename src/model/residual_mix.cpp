#include "model/residual_mix.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

class ResidualMix {
  public:
    explicit ResidualMix(StepBuilder& builder)
        : builder_(builder), context_(builder.context()), config_(builder.config()) {}

    ggml_tensor* layer(std::size_t index, ggml_tensor* x);
    ggml_tensor* mix(ggml_tensor* x, ggml_tensor* weight);

  private:
    ggml_tensor* mixer(const LayerPlan& plan, const LayerWeights& weights, ggml_tensor* x);
    void keep(ggml_tensor* x);
    ggml_tensor* with_kept(ggml_tensor* x);

    StepBuilder& builder_;
    ggml_context* context_;
    const Config& config_;
    ggml_tensor* kept_ = nullptr;  // [width, states, tokens]
};

ggml_tensor* ResidualMix::with_kept(ggml_tensor* x) {
    ggml_tensor* one = ggml_reshape_3d(context_, x, x->ne[0], 1, x->ne[1]);
    return kept_ == nullptr ? one : ggml_concat(context_, kept_, one, 1);
}

void ResidualMix::keep(ggml_tensor* x) {
    kept_ = with_kept(x);
}

ggml_tensor* ResidualMix::mix(ggml_tensor* x, ggml_tensor* weight) {
    if (kept_ == nullptr) return x;
    ggml_tensor* states = with_kept(x);
    ggml_tensor* scores = ggml_mul(context_, builder_.rms_norm(states, {}), weight);
    scores = ggml_sum_rows(context_, scores);
    scores = ggml_reshape_2d(context_, scores, states->ne[1], states->ne[2]);
    return ggml_dsv4_hc_pre(context_, states, ggml_soft_max(context_, scores));
}

// Null when nothing more is wanted.
ggml_tensor* ResidualMix::mixer(const LayerPlan& plan, const LayerWeights& weights,
                                ggml_tensor* x) {
    ggml_tensor* mixed = build_mixer(builder_, plan.mixers[0], weights.mixers[0],
                                     builder_.norm(x, weights.mixer_norm));
    if (!builder_.only_state()) return mixed;
    if (mixed != nullptr) builder_.expand(mixed);
    return nullptr;
}

ggml_tensor* ResidualMix::layer(std::size_t index, ggml_tensor* x) {
    const LayerPlan& plan = config_.layers[index];
    const LayerWeights& weights = builder_.weights().layers[plan.weights];
    ggml_tensor* seen = mix(x, weights.residual_mix.mixer);
    const bool is_kept = index % config_.residual_block == 0;
    if (is_kept) keep(x);
    ggml_tensor* mixed = mixer(plan, weights, seen);
    if (mixed == nullptr) return nullptr;
    x = is_kept ? mixed : ggml_add(context_, x, mixed);
    seen = mix(x, weights.residual_mix.ffn);
    const FfnInput in{builder_.norm(seen, weights.ffn_norm), x, x};
    return ggml_add(context_, x, build_ffn(builder_, plan.ffn, weights.ffn, in));
}

}  // namespace

Result<ResidualMixWeights> load_residual_mix(Tensors& tensors, const Config& config,
                                             std::size_t layer) {
    const std::string base = fmt::format("blk.{}.", layer);
    ResidualMixWeights weights;
    STET_ASSIGN(weights.mixer, tensors.find(base + "attn_res_score.weight", {config.width},
                                            Tensors::Need::required));
    STET_ASSIGN(weights.ffn, tensors.find(base + "ffn_res_score.weight", {config.width},
                                          Tensors::Need::required));
    return weights;
}

ggml_tensor* build_residual_mix(StepBuilder& builder, ggml_tensor* x, std::size_t last_with_rows) {
    ResidualMix residual(builder);
    for (std::size_t i = 0; i < builder.config().layers.size(); ++i) {
        builder.set_only_state(i == last_with_rows && builder.outputs() == 0);
        x = residual.layer(i, x);
        if (x == nullptr) return nullptr;
    }
    return builder.only_outputs(residual.mix(x, builder.weights().residual_mix_output));
}

}  // namespace stet::model
