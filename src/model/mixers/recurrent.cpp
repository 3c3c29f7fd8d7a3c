#include "model/mixers/recurrent.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "exec/recurrent/short_conv.h"
#include "model/config.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

constexpr std::uint64_t kStateRowMax = std::uint64_t{1} << 28;  // elements: a gigabyte a layer

}  // namespace

Result<PlaneSlot> add_state(const ResolveContext& context, std::string_view plane,
                            std::uint64_t elements) {
    if (elements == 0 || elements > kStateRowMax) {
        return Status(Code::corruption,
                      fmt::format("{}: layer {} has {} elements of state '{}', expected 1 to {}",
                                  context.keys.file().path().string(), context.slot, elements,
                                  plane, kStateRowMax));
    }
    return context.schema.add_block(plane, context.slot, static_cast<std::uint32_t>(elements));
}

Result<ggml_tensor*> find_f32(Tensors& tensors, const std::string& name, Tensors::Shape shape,
                              Tensors::Need need) {
    STET_ASSIGN(ggml_tensor * found, tensors.find(name, shape, need));
    if (found != nullptr && found->type != GGML_TYPE_F32) {
        return Status(Code::unimplemented, fmt::format("{}: tensor {} is {}, expected f32",
                                                       tensors.file().path().string(), name,
                                                       ggml_type_name(found->type)));
    }
    return found;
}

Result<std::uint32_t> resolve_taps(const ResolveContext& context, std::string_view key) {
    return context.keys.uint(key, 2, exec::kShortConvTapsMax);
}

Result<PlaneSlot> add_short_conv_state(const ResolveContext& context, std::uint32_t taps,
                                       std::uint64_t channels) {
    return add_state(context, "r", (taps - 1) * channels);
}

Result<ShortConvWeights> load_short_conv(Tensors& tensors, const std::string& name,
                                         std::uint32_t taps, std::uint64_t channels) {
    ShortConvWeights weights;
    STET_ASSIGN(weights.weight,
                find_f32(tensors, name + ".weight", {taps, channels}, Tensors::Need::required));
    STET_ASSIGN(weights.bias,
                find_f32(tensors, name + ".bias", {channels}, Tensors::Need::optional));
    return weights;
}

ggml_tensor* build_short_conv(StepBuilder& builder, const PlaneSlot& rows,
                              const ShortConvWeights& weights, ggml_tensor* x) {
    const std::array inputs = {x};
    const exec::ShortConv conv{.channels = static_cast<std::uint32_t>(weights.weight->ne[1]),
                               .taps = static_cast<std::uint32_t>(weights.weight->ne[0]),
                               .offset_bytes = builder.plane(rows).offset_bytes};
    return builder.graph().state_op(
        {x->ne[0], builder.tokens(), 1, 1}, inputs, rows.group,
        [conv, weights](const exec::StateOpContext& op) {
            exec::ShortConv mine = conv;
            mine.weight = static_cast<const float*>(weights.weight->data);
            if (weights.bias != nullptr) mine.bias = static_cast<const float*>(weights.bias->data);
            exec::short_conv(mine, rows_of(op.out->src[0]), mutable_rows_of(op.out), op.segments,
                             op.thread, op.threads);
        });
}

ggml_tensor* build_ssm_scan(StepBuilder& builder, exec::SsmScan scan, const PlaneSlot& slot,
                            const ggml_tensor* decay, std::span<ggml_tensor* const> inputs) {
    scan.offset_bytes = builder.plane(slot).offset_bytes;
    const std::int64_t channels = std::int64_t{scan.heads} * scan.head_size;
    return builder.graph().state_op(
        {channels, builder.tokens(), 1, 1}, inputs, slot.group,
        [scan, decay](const exec::StateOpContext& op) {
            exec::SsmScan mine = scan;
            mine.decay = static_cast<const float*>(decay->data);
            exec::ssm_scan(mine,
                           {rows_of(op.out->src[0]), rows_of(op.out->src[1]),
                            rows_of(op.out->src[2]), rows_of(op.out->src[3])},
                           mutable_rows_of(op.out), op.segments, op.thread, op.threads);
        });
}

ggml_tensor* view_part(StepBuilder& builder, ggml_tensor* x, std::int64_t offset,
                       std::int64_t size) {
    return ggml_view_2d(builder.context(), x, size, x->ne[1], x->nb[1],
                        static_cast<std::size_t>(offset) * sizeof(float));
}

exec::ConstRows rows_of(const ggml_tensor* tensor) {
    return {static_cast<const float*>(tensor->data), tensor->nb[1] / sizeof(float)};
}

exec::Rows mutable_rows_of(ggml_tensor* tensor) {
    return {static_cast<float*>(tensor->data), tensor->nb[1] / sizeof(float)};
}

}  // namespace stet::model
