// A gate on what the heads of attention give: W_o sees y times sigmoid(gate x), for each head or
// for each element of it. The tensor's shape tells which.
#pragma once

#include <cstdint>
#include <string>

#include "model/architectures.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

class StepBuilder;

// Heads of one result.
struct HeadCount {
    std::uint32_t heads = 0;
    std::uint32_t size = 0;  // of each
};

// `base` is "blk.N.attn_". No weight where `kind` has none, or has it optionally.
Result<Linear> load_head_gate(Tensors& tensors, const std::string& base, AttentionGate kind,
                              const HeadCount& count);
// y f32 [size * heads, tokens], x f32 [width, tokens]. Without a weight: y.
ggml_tensor* apply_head_gate(StepBuilder& builder, AttentionGate kind, const Linear& gate,
                             const HeadCount& count, ggml_tensor* y, ggml_tensor* x);

}  // namespace stet::model
