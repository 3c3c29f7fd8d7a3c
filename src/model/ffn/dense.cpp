#include "model/ffn/dense.h"

#include <fmt/format.h>

#include <limits>

#include "base/try.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

// gpt-oss: parameters of its gated unit.
constexpr float kOaiAlpha = 1.702F;
constexpr float kOaiLimit = 7.0F;

}  // namespace

Result<DenseWeights> load_dense(Tensors& tensors, std::size_t layer, const DensePlan& plan,
                                const char* suffix) {
    const auto name = [&](const char* role) {
        return fmt::format("blk.{}.ffn_{}{}", layer, role, suffix);
    };
    const std::uint64_t width = tensors.width();
    const std::uint64_t size = plan.size;
    DenseWeights weights;
    STET_ASSIGN(weights.gate, tensors.linear(name("gate"), width, size, Need::optional));
    const gguf::Tensor* up = tensors.file().find_tensor(name("up") + ".weight");
    weights.is_fused = !weights.gate && up != nullptr && up->shape[1] == 2 * size;
    STET_ASSIGN(weights.up, tensors.linear(name("up"), width, weights.is_fused ? 2 * size : size,
                                           Need::required));
    STET_ASSIGN(weights.down, tensors.linear(name("down"), size, width, Need::required));
    return weights;
}

ggml_tensor* activate(ggml_context* context, Activation activation, float clamp, ggml_tensor* gate,
                      ggml_tensor* up) {
    if (clamp != 0.0F && gate != nullptr) {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        gate = ggml_clamp(context, ggml_cont(context, gate), -kInfinity, clamp);
        up = ggml_clamp(context, ggml_cont(context, up), -clamp, clamp);
    }
    switch (activation) {
        case Activation::silu:
            return gate != nullptr ? ggml_swiglu_split(context, gate, up) : ggml_silu(context, up);
        case Activation::gelu:
            return gate != nullptr ? ggml_geglu_split(context, gate, up) : ggml_gelu(context, up);
        case Activation::relu:
            return gate != nullptr ? ggml_reglu_split(context, gate, up) : ggml_relu(context, up);
        case Activation::relu_squared:
            return gate != nullptr
                       ? ggml_mul(context, ggml_sqr(context, ggml_relu(context, gate)), up)
                       : ggml_sqr(context, ggml_relu(context, up));
        case Activation::swiglu_oai:
            return ggml_swiglu_oai(context, gate, up, kOaiAlpha, kOaiLimit);
    }
    return nullptr;
}

ggml_tensor* build(StepBuilder& builder, const DensePlan& plan, const DenseWeights& weights,
                   ggml_tensor* x) {
    ggml_tensor* up = builder.product(x, weights.up);
    ggml_tensor* gate = weights.gate ? builder.product(x, weights.gate) : nullptr;
    if (weights.is_fused) {
        gate = builder.part(up, 0, plan.size);
        up = builder.part(up, plan.size, plan.size);
    }
    return builder.product(activate(builder.context(), plan.activation, plan.clamp, gate, up),
                           weights.down);
}

}  // namespace stet::model
