#include "model/ffn/activation.h"

#include <fmt/format.h>

#include <limits>

#include "base/try.h"

namespace stet::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// gpt-oss: parameters of its gated unit.
constexpr float kOaiAlpha = 1.702F;
constexpr float kOaiLimit = 7.0F;
// Gemma 3n keeps the best 5 % of a normal distribution: its 0.95 quantile.
constexpr float kSparsity = 1.6448533535F;

Status resolve_xielu(const Keys& keys, std::uint32_t layers, std::size_t layer,
                     ActivationPlan& plan) {
    const Keys own(keys.file(), "xielu");  // without the architecture's prefix
    for (const char* key : {"alpha_n", "alpha_p", "beta", "eps"}) {
        if (!own.has(key)) return own.missing(key);
    }
    STET_ASSIGN(const auto alpha_n, own.numbers_per_layer("alpha_n", layers, 0.0F));
    STET_ASSIGN(const auto alpha_p, own.numbers_per_layer("alpha_p", layers, 0.0F));
    STET_ASSIGN(const auto beta, own.numbers_per_layer("beta", layers, 0.0F));
    STET_ASSIGN(const auto epsilon, own.numbers_per_layer("eps", layers, 0.0F));
    plan.xielu_alpha_n = alpha_n[layer];
    plan.xielu_alpha_p = alpha_p[layer];
    plan.xielu_beta = beta[layer];
    plan.xielu_epsilon = epsilon[layer];
    return {};
}

// relu(x - (mean + sparsity * deviation)), over the features of each token.
ggml_tensor* keep_greatest(ggml_context* context, float sparsity, ggml_tensor* x) {
    ggml_tensor* mean = ggml_mean(context, x);
    ggml_tensor* square = ggml_sum_rows(context, ggml_sqr(context, ggml_sub(context, x, mean)));
    const auto others = static_cast<float>(x->ne[0] - 1);
    ggml_tensor* deviation = ggml_sqrt(context, ggml_scale(context, square, 1.0F / others));
    ggml_tensor* least = ggml_add(context, mean, ggml_scale(context, deviation, sparsity));
    return ggml_relu(context, ggml_sub(context, x, least));
}

// bound * tanh(x / bound).
ggml_tensor* bounded_by(ggml_context* context, ggml_tensor* x, float bound) {
    return ggml_scale(context, ggml_tanh(context, ggml_scale(context, x, 1.0F / bound)), bound);
}

ggml_tensor* act(ggml_context* context, const ActivationPlan& plan, ggml_tensor* x) {
    switch (plan.kind) {
        case Activation::silu:
        case Activation::swiglu_oai:  // always gated
            return ggml_silu(context, x);
        case Activation::gelu:
            return ggml_gelu(context, x);
        case Activation::relu:
            return ggml_relu(context, x);
        case Activation::relu_squared:
            return ggml_sqr(context, ggml_relu(context, x));
        case Activation::xielu:
            return ggml_xielu(context, x, plan.xielu_alpha_n, plan.xielu_alpha_p, plan.xielu_beta,
                              plan.xielu_epsilon);
        case Activation::situ: {
            ggml_tensor* bounded = bounded_by(context, x, plan.situ_gate);
            return ggml_mul(context, bounded, ggml_sigmoid(context, x));
        }
    }
    return x;
}

// ggml_clamp works in place.
ggml_tensor* clamped(ggml_context* context, ggml_tensor* x, float min, float max) {
    return ggml_clamp(context, ggml_cont(context, x), min, max);
}

}  // namespace

const char* shared_clamp_key(const Keys& keys, const Architecture& row) {
    return row.shared_clamp && !keys.has("swiglu_clamp_shexp") ? "swiglu_clamp_exp"
                                                               : "swiglu_clamp_shexp";
}

Result<ActivationPlan> resolve_activation(const Keys& keys, const Architecture& row,
                                          std::uint32_t layers, std::size_t layer,
                                          const char* clamp_key) {
    ActivationPlan plan;
    plan.kind = row.activation;
    if (row.clamp != SwigluClamp::none) {
        STET_ASSIGN(const auto limits, keys.numbers_per_layer(clamp_key, layers, 0.0F));
        // So little is no limit in files that have one for each layer.
        constexpr float kLeastLimit = 1e-6F;
        plan.clamp = limits[layer] > kLeastLimit ? limits[layer] : 0.0F;
        plan.clamp_kind = row.clamp;
    }
    if (layer < row.sparse_layers) plan.sparsity = kSparsity;
    if (plan.kind == Activation::situ) {
        STET_ASSIGN(plan.situ_gate, keys.number("activation.situ_beta"));
        STET_ASSIGN(plan.situ_up, keys.number("activation.situ_linear_beta"));
        if (plan.situ_gate <= 0.0F) {
            return Status(
                Code::corruption,
                fmt::format("{}: {} is {}, expected more than 0", keys.file().path().string(),
                            keys.full("activation.situ_beta"), plan.situ_gate));
        }
    }
    if (plan.kind == Activation::xielu) STET_TRY(resolve_xielu(keys, layers, layer, plan));
    return plan;
}

ggml_tensor* activate(ggml_context* context, const ActivationPlan& plan, ggml_tensor* gate,
                      ggml_tensor* up) {
    if (gate == nullptr) return act(context, plan, up);
    if (plan.sparsity != 0.0F) gate = keep_greatest(context, plan.sparsity, gate);
    if (plan.clamp != 0.0F) {
        up = clamped(context, up, -plan.clamp, plan.clamp);
        if (plan.clamp_kind == SwigluClamp::activated) {
            gate = ggml_silu(context, ggml_cont(context, gate));
            return ggml_mul(context, clamped(context, gate, -kInfinity, plan.clamp), up);
        }
        gate = clamped(context, gate, -kInfinity, plan.clamp);
    }
    switch (plan.kind) {
        case Activation::silu:
            return ggml_swiglu_split(context, gate, up);
        case Activation::gelu:
            return ggml_geglu_split(context, gate, up);
        case Activation::relu:
            return ggml_reglu_split(context, gate, up);
        case Activation::swiglu_oai:
            return ggml_swiglu_oai(context, gate, up, kOaiAlpha, kOaiLimit);
        case Activation::relu_squared:
        case Activation::xielu:
            break;
        case Activation::situ:
            // Halves of one matrix are strided.
            if (plan.situ_up > 0.0F) {
                up = bounded_by(context, ggml_cont(context, up), plan.situ_up);
            }
            break;
    }
    return ggml_mul(context, act(context, plan, ggml_cont(context, gate)), up);
}

}  // namespace stet::model
