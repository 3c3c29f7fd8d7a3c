#include "model/mixers/rwkv.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "exec/recurrent/token_shift.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

constexpr std::uint32_t kShiftsMax = 2;
constexpr float kHeadNormEpsilon = 64e-5F;

}  // namespace

Result<RwkvPlan> resolve_rwkv(const ResolveContext& context) {
    const Keys& keys = context.keys;
    const std::uint32_t width = context.config.width;
    RwkvPlan plan;
    STET_ASSIGN(plan.head_size, keys.uint("wkv.head_size", 1, kHeadSizeMax));
    if (width % plan.head_size != 0) {
        return Status(Code::corruption,
                      fmt::format("{}: {} features in heads of {}", keys.file().path().string(),
                                  width, plan.head_size));
    }
    plan.heads = width / plan.head_size;
    STET_ASSIGN(const auto shifts, keys.uint_or("token_shift_count", kShiftsMax, 1, kShiftsMax));
    STET_ASSIGN(plan.shift, add_state(context, "r", std::uint64_t{shifts} * width));
    STET_ASSIGN(plan.state, add_state(context, "s", std::uint64_t{width} * plan.head_size));
    return plan;
}

ggml_tensor* build_token_shift(StepBuilder& builder, const PlaneSlot& slot, std::size_t index,
                               ggml_tensor* x) {
    const auto width = static_cast<std::uint32_t>(x->ne[0]);
    const std::uint64_t offset = builder.plane(slot).offset_bytes + index * width * sizeof(float);
    const std::array inputs = {x};
    return builder.graph().state_op({x->ne[0], builder.tokens(), 1, 1}, inputs, slot.group,
                                    [width, offset](const exec::StateOpContext& op) {
                                        exec::token_shift(width, offset, rows_of(op.out->src[0]),
                                                          mutable_rows_of(op.out), op.segments,
                                                          op.thread, op.threads);
                                    });
}

ggml_tensor* build_head_norm(StepBuilder& builder, const RwkvPlan& plan, const Norm& norm,
                             ggml_tensor* y) {
    ggml_context* context = builder.context();
    ggml_tensor* heads = ggml_reshape_3d(context, y, plan.head_size, plan.heads, builder.tokens());
    heads = ggml_norm(context, heads, kHeadNormEpsilon);
    y = ggml_mul(context, ggml_reshape_2d(context, heads, y->ne[0], y->ne[1]), norm.weight);
    return norm.bias != nullptr ? ggml_add(context, y, norm.bias) : y;
}

}  // namespace stet::model
