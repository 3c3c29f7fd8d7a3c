#include "model/mixers/head_gate.h"

#include "model/step_builder.h"

namespace stet::model {

Result<Linear> load_head_gate(Tensors& tensors, const std::string& base, AttentionGate kind,
                              const HeadCount& count) {
    if (kind == AttentionGate::none || kind == AttentionGate::in_queries) return Linear();
    const std::string name = base + "gate";
    const gguf::Tensor* found = tensors.file().find_tensor(name + ".weight");
    const bool by_head = found != nullptr && found->shape[1] == count.heads;
    const std::uint64_t size = std::uint64_t{count.heads} * (by_head ? 1 : count.size);
    const bool optional = kind == AttentionGate::sigmoid_optional;
    return tensors.linear(name, tensors.width(), size,
                          optional ? Tensors::Need::optional : Tensors::Need::required);
}

ggml_tensor* apply_head_gate(StepBuilder& builder, AttentionGate kind, const Linear& gate,
                             const HeadCount& count, ggml_tensor* y, ggml_tensor* x) {
    if (!gate) return y;
    ggml_context* context = builder.context();
    ggml_tensor* factors = builder.product(x, gate);
    factors = kind == AttentionGate::softplus ? ggml_softplus(context, factors)
                                              : ggml_sigmoid(context, factors);
    if (factors->ne[0] == y->ne[0]) return ggml_mul(context, y, factors);
    const std::int64_t tokens = builder.tokens();
    ggml_tensor* heads = ggml_reshape_3d(context, y, count.size, count.heads, tokens);
    heads = ggml_mul(context, heads, ggml_reshape_3d(context, factors, 1, count.heads, tokens));
    return ggml_reshape_2d(context, heads, y->ne[0], tokens);
}

}  // namespace stet::model
