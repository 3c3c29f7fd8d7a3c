#include "model/ffn/dense.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {

using Need = Tensors::Need;

Result<DensePlan> resolve_dense(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    STET_ASSIGN(const auto sizes,
                keys.per_layer("feed_forward_length", context.layers,
                               std::vector<std::uint32_t>(context.layers, 0), kWidthMax));
    DensePlan plan;
    plan.size = sizes[layer] / row.ffn_divisor;
    plan.gated = row.gated;
    plan.bias = row.biases == Biases::all || row.biases == Biases::all_but_output;
    STET_ASSIGN(plan.activation,
                resolve_activation(keys, row, context.layers, layer, shared_clamp_key(keys, row)));
    return plan;
}

Result<DenseWeights> load_dense(Tensors& tensors, std::size_t layer, const DensePlan& plan,
                                const char* suffix) {
    const std::string base = fmt::format("blk.{}.ffn", layer);
    const auto name = [&](const char* role) { return fmt::format("{}_{}{}", base, role, suffix); };
    const std::uint64_t width = tensors.width();
    const std::uint64_t size = plan.size;
    DenseWeights weights;
    if (plan.is_bare) return weights;
    const gguf::Tensor* up = tensors.file().find_tensor(name("up") + ".weight");
    weights.is_fused = up != nullptr && up->shape[1] == 2 * size;
    if (!weights.is_fused) {
        STET_ASSIGN(weights.gate, tensors.linear(name("gate"), width, size,
                                                 plan.gated ? Need::required : Need::optional));
    }
    STET_ASSIGN(weights.up, tensors.linear(name("up"), width, weights.is_fused ? 2 * size : size,
                                           Need::required));
    STET_ASSIGN(weights.down, tensors.linear(name("down"), size, width, Need::required));
    if (!plan.bias) weights.gate.bias = weights.up.bias = weights.down.bias = nullptr;
    if (*suffix == '\0') {
        STET_ASSIGN(weights.divisors, tensors.find(base + ".act.scales", {size}, Need::optional));
        STET_ASSIGN(weights.sub_norm, tensors.norm(base + "_sub_norm", size, Need::optional));
    }
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const DensePlan& plan, const DenseWeights& weights,
                   ggml_tensor* x) {
    if (plan.is_bare) return activate(builder.context(), plan.activation, nullptr, x);
    ggml_tensor* up = builder.product(x, weights.up);
    ggml_tensor* gate = weights.gate ? builder.product(x, weights.gate) : nullptr;
    if (weights.is_fused) {
        gate = builder.part(up, 0, plan.size);
        up = builder.part(up, plan.size, plan.size);
    }
    ggml_tensor* hidden = activate(builder.context(), plan.activation, gate, up);
    if (weights.divisors != nullptr) hidden = ggml_div(builder.context(), hidden, weights.divisors);
    if (weights.sub_norm) hidden = builder.norm(hidden, weights.sub_norm);
    return builder.product(hidden, weights.down);
}

}  // namespace stet::model
