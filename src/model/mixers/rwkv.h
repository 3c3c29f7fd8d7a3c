// What the RWKV mixers share: heads with a matrix of state each, and the token before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/mixers/recurrent.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct RwkvPlan {
    std::uint32_t head_size = 0;
    std::uint32_t heads = 0;
    PlaneSlot shift;  // "r": the mixer's last x, then the channel mix's where there is one
    PlaneSlot state;  // "s": [heads][head_size][head_size]
};

Result<RwkvPlan> resolve_rwkv(const ResolveContext& context);

// x of the token before, f32 [width, tokens]; the state is `index` rows of width into the slot.
ggml_tensor* build_token_shift(StepBuilder& builder, const PlaneSlot& slot, std::size_t index,
                               ggml_tensor* x);

// Each head's features normed, then as a whole times weight plus bias. y f32 [width, tokens].
ggml_tensor* build_head_norm(StepBuilder& builder, const RwkvPlan& plan, const Norm& norm,
                             ggml_tensor* y);

}  // namespace stet::model
