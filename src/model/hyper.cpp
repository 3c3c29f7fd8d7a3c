#include "model/hyper.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

constexpr std::uint32_t kStreamsMax = 64;
// What the kernel of the doubly stochastic matrix is made for.
constexpr std::uint32_t kSinkhornStreams = 4;
constexpr std::uint32_t kSinkhornStepsMax = 1000;
constexpr float kSinkhornMagnitude = 2.0F;

// How a branch reads and writes the streams.
struct Coefficients {
    ggml_tensor* pre;      // [streams, tokens]
    ggml_tensor* post;     // [streams, tokens]
    ggml_tensor* between;  // C [to, from, tokens]; null: the identity
};

class Streams {
  public:
    Streams(StepBuilder& builder, ggml_tensor* x)
        : builder_(builder), context_(builder.context()), plan_(builder.config().hyper) {
        x = ggml_reshape_3d(context_, x, x->ne[0], 1, x->ne[1]);
        streams_ = ggml_repeat_4d(context_, x, x->ne[0], plan_.streams, x->ne[2], 1);
    }

    Coefficients coefficients(const HyperWeights& weights) const;
    // What a branch reads, [width, tokens].
    ggml_tensor* read(ggml_tensor* pre) const { return ggml_dsv4_hc_pre(context_, streams_, pre); }
    void write(ggml_tensor* y, const Coefficients& coefficients);
    void only_outputs();
    ggml_tensor* end(const HyperWeights& weights) const;

  private:
    ggml_tensor* mean() const;
    ggml_tensor* mixes(const HyperWeights& weights) const;
    // sigmoid(scale[which] * mixes + base) of `streams` of both that begin at which * streams.
    ggml_tensor* gate(ggml_tensor* mixes, const HyperWeights& weights, std::size_t which) const;

    StepBuilder& builder_;
    ggml_context* context_;
    const Hyper& plan_;
    ggml_tensor* streams_;  // [width, streams, tokens]
};

ggml_tensor* Streams::mixes(const HyperWeights& weights) const {
    const std::int64_t size = streams_->ne[0] * streams_->ne[1];
    ggml_tensor* all = ggml_reshape_2d(context_, streams_, size, streams_->ne[2]);
    return ggml_mul_mat(context_, weights.mixes, builder_.rms_norm(all, {}));
}

ggml_tensor* Streams::gate(ggml_tensor* mixes, const HyperWeights& weights,
                           std::size_t which) const {
    const std::size_t first = which * plan_.streams;
    ggml_tensor* scale = ggml_view_1d(context_, weights.scale, 1, which * sizeof(float));
    ggml_tensor* base = ggml_view_1d(context_, weights.base, plan_.streams, first * sizeof(float));
    ggml_tensor* x = builder_.part(mixes, static_cast<std::int64_t>(first), plan_.streams);
    return ggml_sigmoid(context_, ggml_add(context_, ggml_mul(context_, x, scale), base));
}

Coefficients Streams::coefficients(const HyperWeights& weights) const {
    ggml_tensor* mixed = mixes(weights);
    Coefficients result{};
    result.pre = ggml_scale_bias(context_, gate(mixed, weights, 0), 1.0F, plan_.epsilon);
    const float bias = plan_.kind == HyperConnections::independent ? plan_.epsilon : 0.0F;
    result.post = ggml_scale_bias(context_, gate(mixed, weights, 1), plan_.magnitude, bias);
    if (plan_.sinkhorn_steps != 0) {
        result.between =
            ggml_dsv4_hc_comb(context_, mixed, weights.scale, weights.base, plan_.epsilon,
                              static_cast<std::int32_t>(plan_.sinkhorn_steps));
    }
    return result;
}

void Streams::write(ggml_tensor* y, const Coefficients& coefficients) {
    if (coefficients.between != nullptr) {
        streams_ =
            ggml_dsv4_hc_post(context_, y, streams_, coefficients.post, coefficients.between);
        return;
    }
    const std::int64_t tokens = y->ne[1];
    ggml_tensor* all = ggml_repeat_4d(context_, ggml_reshape_3d(context_, y, y->ne[0], 1, tokens),
                                      y->ne[0], plan_.streams, tokens, 1);
    ggml_tensor* post = ggml_reshape_3d(context_, coefficients.post, 1, plan_.streams, tokens);
    streams_ = ggml_add(context_, streams_, ggml_mul(context_, all, post));
}

void Streams::only_outputs() {
    const std::int64_t width = streams_->ne[0];
    ggml_tensor* all = ggml_reshape_2d(context_, streams_, width * plan_.streams, streams_->ne[2]);
    all = builder_.only_outputs(all);
    streams_ = ggml_reshape_3d(context_, all, width, plan_.streams, all->ne[1]);
}

ggml_tensor* Streams::mean() const {
    const auto stream = [&](std::uint32_t i) {
        return ggml_view_2d(context_, streams_, streams_->ne[0], streams_->ne[2], streams_->nb[2],
                            i * streams_->nb[1]);
    };
    ggml_tensor* sum = stream(0);
    for (std::uint32_t i = 1; i < plan_.streams; ++i) sum = ggml_add(context_, sum, stream(i));
    return ggml_scale(context_, sum, 1.0F / static_cast<float>(plan_.streams));
}

ggml_tensor* Streams::end(const HyperWeights& weights) const {
    if (plan_.kind == HyperConnections::sinkhorn_mean) return mean();
    ggml_tensor* pre = gate(mixes(weights), weights, 0);
    return read(ggml_scale_bias(context_, pre, 1.0F, plan_.epsilon));
}

}  // namespace

Result<Hyper> resolve_hyper(const Keys& keys, const Architecture& row) {
    Hyper plan;
    plan.kind = row.hyper_connections;
    if (plan.kind == HyperConnections::none) return plan;
    STET_ASSIGN(plan.epsilon, keys.number("hyper_connection.epsilon"));
    if (plan.kind == HyperConnections::independent) {
        STET_ASSIGN(plan.streams, keys.uint("hyper_connection.count", 1, kStreamsMax));
        STET_ASSIGN(plan.magnitude, keys.number("hyper_connection.magnitude"));
        return plan;
    }
    STET_ASSIGN(plan.streams,
                keys.uint("hyper_connection.count", kSinkhornStreams, kSinkhornStreams));
    STET_ASSIGN(plan.sinkhorn_steps,
                keys.uint("hyper_connection.sinkhorn_iterations", 1, kSinkhornStepsMax));
    plan.magnitude = kSinkhornMagnitude;
    return plan;
}

Result<HyperWeights> load_hyper(Tensors& tensors, const Config& config, const std::string& name) {
    const Hyper& plan = config.hyper;
    const std::uint64_t streams = plan.streams;
    std::uint64_t size = streams;
    std::uint64_t scales = 1;
    if (name != "output_hc") {
        const bool is_sinkhorn = plan.sinkhorn_steps != 0;
        size = 2 * streams + (is_sinkhorn ? streams * streams : 0);
        scales = is_sinkhorn ? 3 : 2;
    }
    HyperWeights weights;
    STET_ASSIGN(weights.mixes, tensors.find(name + "_fn.weight", {streams * config.width, size},
                                            Need::required, Tensors::Use::product));
    STET_ASSIGN(weights.base, tensors.find(name + "_base.weight", {size}, Need::required));
    STET_ASSIGN(weights.scale, tensors.find(name + "_scale.weight", {scales}, Need::required));
    return weights;
}

ggml_tensor* build_hyper(StepBuilder& builder, ggml_tensor* x, std::size_t last_with_rows) {
    const Config& config = builder.config();
    Streams streams(builder, x);
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        const LayerPlan& plan = config.layers[i];
        const LayerWeights& weights = builder.weights().layers[plan.weights];
        builder.set_only_state(i == last_with_rows && builder.outputs() == 0);
        for (std::size_t m = 0; m < plan.mixers.size(); ++m) {
            const Coefficients of_mixer = streams.coefficients(weights.hyper_mixer);
            ggml_tensor* normed = builder.norm(streams.read(of_mixer.pre), weights.mixer_norm);
            ggml_tensor* y = build_mixer(builder, plan.mixers[m], weights.mixers[m], normed);
            if (builder.only_state()) {
                if (y != nullptr) builder.expand(y);
                return nullptr;
            }
            streams.write(y, of_mixer);
        }
        if (i + 1 == config.layers.size()) streams.only_outputs();
        const Coefficients of_ffn = streams.coefficients(weights.hyper_ffn);
        ggml_tensor* read = streams.read(of_ffn.pre);
        const FfnInput in{builder.norm(read, weights.ffn_norm), read, read};
        streams.write(build_ffn(builder, plan.ffn, weights.ffn, in), of_ffn);
    }
    return streams.end(builder.weights().hyper_end);
}

}  // namespace stet::model
