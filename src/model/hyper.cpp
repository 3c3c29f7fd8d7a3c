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
constexpr float kMagnitude = 2.0F;  // of what has no key for it
constexpr std::string_view kEnd = "output_hc";

// What a branch reads of the streams, and how its result is written to them.
struct Branch {
    ggml_tensor* input;    // [width, tokens]
    ggml_tensor* post;     // [streams, tokens]; null: nothing is written
    ggml_tensor* between;  // C [to, from, tokens]; null: the identity
};

class Streams {
  public:
    Streams(StepBuilder& builder, ggml_tensor* x)
        : builder_(builder), context_(builder.context()), plan_(builder.config().hyper) {
        x = ggml_reshape_3d(context_, x, x->ne[0], 1, x->ne[1]);
        streams_ = ggml_repeat_4d(context_, x, x->ne[0], plan_.streams, x->ne[2], 1);
    }

    Branch open(const HyperWeights& weights) const;
    void write(ggml_tensor* y, const Branch& branch);
    void add_ngrams(const NgramPlan& plan, const NgramWeights& weights) {
        streams_ = build_ngram(builder_, plan, weights, streams_);
    }
    void only_outputs();
    ggml_tensor* end(const HyperWeights& weights) const;

  private:
    Branch open_low_rank(const HyperWeights& weights) const;
    ggml_tensor* mean(ggml_tensor* streams) const;
    ggml_tensor* mixes(const HyperWeights& weights) const;
    ggml_tensor* pre(ggml_tensor* mixes, const HyperWeights& weights) const;
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

ggml_tensor* Streams::pre(ggml_tensor* mixes, const HyperWeights& weights) const {
    return ggml_scale_bias(context_, gate(mixes, weights, 0), 1.0F, plan_.epsilon);
}

Branch Streams::open(const HyperWeights& weights) const {
    if (plan_.kind == HyperConnections::low_rank) return open_low_rank(weights);
    ggml_tensor* mixed = mixes(weights);
    Branch branch{};
    branch.input = ggml_dsv4_hc_pre(context_, streams_, pre(mixed, weights));
    const float bias = plan_.kind == HyperConnections::independent ? plan_.epsilon : 0.0F;
    branch.post = ggml_scale_bias(context_, gate(mixed, weights, 1), plan_.magnitude, bias);
    if (plan_.sinkhorn_steps != 0) {
        branch.between =
            ggml_dsv4_hc_comb(context_, mixed, weights.scale, weights.base, plan_.epsilon,
                              static_cast<std::int32_t>(plan_.sinkhorn_steps));
    }
    return branch;
}

Branch Streams::open_low_rank(const HyperWeights& weights) const {
    const std::int64_t width = streams_->ne[0];
    const std::int64_t tokens = streams_->ne[2];
    const float share = 1.0F / static_cast<float>(plan_.streams);
    ggml_tensor* normed = ggml_mul(context_, builder_.rms_norm(streams_, {}), weights.norm);
    ggml_tensor* all = ggml_reshape_2d(context_, normed, width * plan_.streams, tokens);
    ggml_tensor* low = ggml_scale(context_, builder_.product(all, weights.down), share);
    ggml_tensor* gate = builder_.product(ggml_silu(context_, low), weights.up);
    gate = ggml_reshape_3d(context_, ggml_sigmoid(context_, gate), width, plan_.streams, tokens);
    Branch branch{};
    branch.input = mean(ggml_mul(context_, normed, gate));
    if (!weights.inject) return branch;
    ggml_tensor* post = ggml_scale(context_, builder_.product(all, weights.inject), share);
    branch.post = ggml_scale(context_, ggml_sigmoid(context_, post), plan_.magnitude);
    return branch;
}

void Streams::write(ggml_tensor* y, const Branch& branch) {
    if (branch.between != nullptr) {
        streams_ = ggml_dsv4_hc_post(context_, y, streams_, branch.post, branch.between);
        return;
    }
    const std::int64_t tokens = y->ne[1];
    ggml_tensor* all = ggml_repeat_4d(context_, ggml_reshape_3d(context_, y, y->ne[0], 1, tokens),
                                      y->ne[0], plan_.streams, tokens, 1);
    ggml_tensor* post = ggml_reshape_3d(context_, branch.post, 1, plan_.streams, tokens);
    streams_ = ggml_add(context_, streams_, ggml_mul(context_, all, post));
}

void Streams::only_outputs() {
    const std::int64_t width = streams_->ne[0];
    ggml_tensor* all = ggml_reshape_2d(context_, streams_, width * plan_.streams, streams_->ne[2]);
    all = builder_.only_outputs(all);
    streams_ = ggml_reshape_3d(context_, all, width, plan_.streams, all->ne[1]);
}

ggml_tensor* Streams::mean(ggml_tensor* streams) const {
    const auto stream = [&](std::uint32_t i) {
        return ggml_view_2d(context_, streams, streams->ne[0], streams->ne[2], streams->nb[2],
                            i * streams->nb[1]);
    };
    ggml_tensor* sum = stream(0);
    for (std::uint32_t i = 1; i < plan_.streams; ++i) sum = ggml_add(context_, sum, stream(i));
    return ggml_scale(context_, sum, 1.0F / static_cast<float>(plan_.streams));
}

ggml_tensor* Streams::end(const HyperWeights& weights) const {
    if (plan_.kind == HyperConnections::sinkhorn_mean) return mean(streams_);
    if (plan_.kind == HyperConnections::low_rank) return open_low_rank(weights).input;
    return ggml_dsv4_hc_pre(context_, streams_, pre(mixes(weights), weights));
}

}  // namespace

Result<Hyper> resolve_hyper(const Keys& keys, const Architecture& row) {
    Hyper plan;
    plan.kind = row.hyper_connections;
    if (plan.kind == HyperConnections::none) return plan;
    if (plan.kind == HyperConnections::low_rank) {
        STET_ASSIGN(plan.streams, keys.uint("hyper_connection.count", 2, kStreamsMax));
        STET_ASSIGN(plan.rank, keys.uint("hyper_connection.low_rank", 1, kWidthMax));
        plan.magnitude = kMagnitude;
        return plan;
    }
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
    plan.magnitude = kMagnitude;
    return plan;
}

Result<ggml_tensor*> find_stream_norm(Tensors& tensors, const Config& config,
                                      const std::string& name) {
    const std::uint64_t width = config.width;
    const std::uint64_t streams = config.hyper.streams;
    const gguf::Tensor* found = tensors.file().find_tensor(name + ".weight");
    if (found == nullptr || found->dimensions != 1) {
        return tensors.find(name + ".weight", {width, streams}, Need::required,
                            Tensors::Use::values);
    }
    return tensors.find(name + ".weight", {width * streams}, Need::required, Tensors::Use::values);
}

namespace {

Result<HyperWeights> load_low_rank(Tensors& tensors, const Config& config,
                                   const std::string& name) {
    const std::uint64_t size = std::uint64_t{config.hyper.streams} * config.width;
    HyperWeights weights;
    STET_ASSIGN(weights.norm, find_stream_norm(tensors, config, name + "_norm"));
    STET_ASSIGN(weights.down,
                tensors.linear(name + "_down", size, config.hyper.rank, Need::required));
    STET_ASSIGN(weights.up, tensors.linear(name + "_up", config.hyper.rank, size, Need::required));
    if (name == kEnd) return weights;
    STET_ASSIGN(weights.inject,
                tensors.linear(name + "_inject", size, config.hyper.streams, Need::required));
    return weights;
}

}  // namespace

Result<HyperWeights> load_hyper(Tensors& tensors, const Config& config, const std::string& name) {
    const Hyper& plan = config.hyper;
    if (plan.kind == HyperConnections::low_rank) return load_low_rank(tensors, config, name);
    const std::uint64_t streams = plan.streams;
    std::uint64_t size = streams;
    std::uint64_t scales = 1;
    if (name != kEnd) {
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
    const bool has_norms = config.architecture->pre_norm != PreNorm::in_streams;
    const auto normed = [&](ggml_tensor* input, const Norm& norm) {
        return has_norms ? builder.norm(input, norm) : input;
    };
    Streams streams(builder, x);
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        const LayerPlan& plan = config.layers[i];
        const LayerWeights& weights = builder.weights().layers[plan.weights];
        builder.set_only_state(i == last_with_rows && builder.outputs() == 0);
        if (plan.ngram) streams.add_ngrams(*plan.ngram, weights.ngram);
        for (std::size_t m = 0; m < plan.mixers.size(); ++m) {
            const Branch branch = streams.open(weights.hyper_mixer);
            ggml_tensor* y = build_mixer(builder, plan.mixers[m], weights.mixers[m],
                                         normed(branch.input, weights.mixer_norm));
            if (builder.only_state()) {
                if (y != nullptr) builder.expand(y);
                return nullptr;
            }
            streams.write(y, branch);
        }
        if (i + 1 == config.layers.size()) streams.only_outputs();
        const Branch branch = streams.open(weights.hyper_ffn);
        const FfnInput in{normed(branch.input, weights.ffn_norm), branch.input, branch.input};
        streams.write(build_ffn(builder, plan.ffn, weights.ffn, in), branch);
    }
    return streams.end(builder.weights().hyper_end);
}

}  // namespace stet::model
