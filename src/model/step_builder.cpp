#include "model/step_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "exec/product/product.h"

namespace stet::model {
namespace {

void copy_i32(std::span<const std::int32_t> values, ggml_tensor* tensor) {
    STET_CHECK(static_cast<std::size_t>(ggml_nelements(tensor)) == values.size());
    std::memcpy(tensor->data, values.data(), values.size_bytes());
}

// Places of a token in M-RoPE: time, height, width, and one more.
constexpr std::uint32_t kSections = GGML_MROPE_SECTIONS;

bool has_sections(const Rope& rope) {
    return rope.kind == RopeKind::mrope || rope.kind == RopeKind::imrope;
}

// Sylvester's: the sign of element (i, j) is that of the number of bits that i and j share.
void fill_hadamard(const exec::Step&, ggml_tensor* tensor) {
    const auto size = static_cast<std::uint32_t>(tensor->ne[0]);
    const float value = 1.0F / std::sqrt(static_cast<float>(size));
    auto* out = static_cast<float*>(tensor->data);
    for (std::uint32_t i = 0; i < size; ++i) {
        for (std::uint32_t j = 0; j < size; ++j) {
            *out++ = std::popcount(i & j) % 2 == 0 ? value : -value;
        }
    }
}

}  // namespace

StepBuilder::StepBuilder(const Config& config, const Weights& weights, exec::Graph& graph,
                         std::uint32_t tokens, std::uint32_t outputs)
    : config_(config),
      weights_(weights),
      graph_(graph),
      context_(graph.context()),
      tokens_(tokens),
      outputs_(outputs) {}

ggml_tensor* StepBuilder::input(std::string name, ggml_type type, exec::Graph::Shape shape,
                                exec::Graph::Fill fill) {
    ggml_tensor*& known = inputs_[std::move(name)];
    if (known == nullptr) known = graph_.input(type, shape, std::move(fill));
    return known;
}

ggml_tensor* StepBuilder::token_ids() {
    return input(
        "tokens", GGML_TYPE_I32, {tokens_, 1, 1, 1},
        [](const exec::Step& step, ggml_tensor* tensor) { copy_i32(step.tokens, tensor); });
}

ggml_tensor* StepBuilder::positions() {
    return input(
        "positions", GGML_TYPE_I32, {tokens_, 1, 1, 1},
        [](const exec::Step& step, ggml_tensor* tensor) { copy_i32(step.positions, tensor); });
}

// Text has one position for time, height and width, and none in the fourth place.
ggml_tensor* StepBuilder::mrope_positions() {
    return input("mrope positions", GGML_TYPE_I32, {std::int64_t{kSections} * tokens_, 1, 1, 1},
                 [](const exec::Step& step, ggml_tensor* tensor) {
                     auto* out = static_cast<std::int32_t*>(tensor->data);
                     for (std::uint32_t i = 0; i + 1 < kSections; ++i) {
                         out = std::ranges::copy(step.positions, out).out;
                     }
                     std::fill_n(out, step.positions.size(), 0);
                 });
}

ggml_tensor* StepBuilder::positions_in(std::uint32_t ratio) {
    return input(fmt::format("positions in {}", ratio), GGML_TYPE_I32, {tokens_, 1, 1, 1},
                 [ratio](const exec::Step& step, ggml_tensor* tensor) {
                     auto* out = static_cast<std::int32_t*>(tensor->data);
                     for (const std::int32_t position : step.positions) {
                         *out++ = position % static_cast<std::int32_t>(ratio);
                     }
                 });
}

ggml_tensor* StepBuilder::block_starts(std::uint32_t ratio, std::uint32_t copies) {
    return input(fmt::format("{} times starts of blocks of {}", copies, ratio), GGML_TYPE_I32,
                 {std::int64_t{copies} * tokens_, 1, 1, 1},
                 [ratio, copies](const exec::Step& step, ggml_tensor* tensor) {
                     auto* out = static_cast<std::int32_t*>(tensor->data);
                     const auto before = static_cast<std::int32_t>(ratio) - 1;
                     for (std::uint32_t i = 0; i < copies; ++i) {
                         for (const std::int32_t position : step.positions) {
                             *out++ = std::max(position - before, 0);
                         }
                     }
                 });
}

ggml_tensor* StepBuilder::output_rows() {
    return input(
        "output rows", GGML_TYPE_I32, {outputs_, 1, 1, 1},
        [](const exec::Step& step, ggml_tensor* tensor) { copy_i32(step.output_rows, tensor); });
}

ggml_tensor* StepBuilder::query_temperature(float scale, std::uint32_t length,
                                            std::uint32_t offset) {
    return input(fmt::format("query temperature {} {} {}", scale, length, offset), GGML_TYPE_F32,
                 {1, 1, tokens_, 1}, [=](const exec::Step& step, ggml_tensor* tensor) {
                     auto* out = static_cast<float*>(tensor->data);
                     for (const std::int32_t position : step.positions) {
                         const std::uint32_t periods =
                             (static_cast<std::uint32_t>(position) + offset) / length;
                         *out++ = 1.0F + scale * std::log1p(static_cast<float>(periods));
                     }
                 });
}

ggml_tensor* StepBuilder::norm(ggml_tensor* x, const Norm& norm) {
    return config_.norm == NormKind::rms ? rms_norm(x, norm, config_.norm_epsilon)
                                         : layer_norm(x, norm, config_.norm_epsilon);
}

ggml_tensor* StepBuilder::rms_norm(ggml_tensor* x, const Norm& norm) {
    return rms_norm(x, norm, config_.norm_epsilon);
}

ggml_tensor* StepBuilder::rms_norm(ggml_tensor* x, const Norm& norm, float epsilon) {
    x = ggml_rms_norm(context_, x, epsilon);
    if (norm.weight != nullptr) x = ggml_mul(context_, x, norm.weight);
    if (norm.bias != nullptr) x = ggml_add(context_, x, norm.bias);
    return x;
}

ggml_tensor* StepBuilder::layer_norm(ggml_tensor* x, const Norm& norm, float epsilon) {
    x = ggml_norm(context_, x, epsilon);
    if (norm.weight != nullptr) x = ggml_mul(context_, x, norm.weight);
    if (norm.bias != nullptr) x = ggml_add(context_, x, norm.bias);
    return x;
}

ggml_tensor* StepBuilder::rounded(ggml_tensor* x) {
    ggml_tensor*& known = rounded_[x];
    if (known != nullptr) return known;
    const std::int64_t row_blocks = x->ne[0] / static_cast<std::int64_t>(exec::kPackedColumns);
    const std::int64_t row_floats =
        row_blocks * static_cast<std::int64_t>(sizeof(exec::RoundedBlock) / sizeof(float));
    ggml_tensor* rows = ggml_is_contiguous(x) ? x : ggml_cont(context_, x);
    known = graph_.state_op(
        {row_floats, ggml_nrows(x), 1, 1}, std::array{rows}, exec::Graph::kStepGroup,
        [](const exec::StateOpContext& op) {
            const auto blocks = static_cast<std::size_t>(
                ggml_nelements(op.out->src[0]) / static_cast<std::int64_t>(exec::kPackedColumns));
            const auto [begin, end] = op.share(blocks);
            exec::round_activations(
                static_cast<const float*>(op.out->src[0]->data) + begin * exec::kPackedColumns,
                end - begin, static_cast<exec::RoundedBlock*>(op.out->data) + begin);
        });
    return known;
}

ggml_tensor* StepBuilder::packed_product(ggml_tensor* x, const Linear& linear) {
    const auto rows = static_cast<std::int64_t>(linear.packed->rows());
    return graph_.state_op(
        {rows, x->ne[1], x->ne[2], x->ne[3]}, std::array{rounded(x)}, exec::Graph::kStepGroup,
        [packed = linear.packed, bias = linear.bias](const exec::StateOpContext& op) {
            const auto [begin, end] = op.share(packed->groups());
            exec::multiply(*packed, static_cast<const exec::RoundedBlock*>(op.out->src[0]->data),
                           static_cast<std::size_t>(ggml_nrows(op.out)), begin, end,
                           bias == nullptr ? nullptr : static_cast<const float*>(bias->data),
                           static_cast<float*>(op.out->data), packed->rows());
        });
}

ggml_tensor* StepBuilder::q8_rows_product(ggml_tensor* x, const ggml_tensor* weight) {
    return graph_.state_op({weight->ne[1], x->ne[1], x->ne[2], x->ne[3]}, std::array{rounded(x)},
                           exec::Graph::kStepGroup, [weight](const exec::StateOpContext& op) {
                               const auto rows = static_cast<std::size_t>(weight->ne[1]);
                               const auto [begin, end] = op.share(rows);
                               exec::multiply_q8_rows(
                                   static_cast<const std::uint8_t*>(weight->data),
                                   static_cast<std::size_t>(weight->ne[0]) / exec::kPackedColumns,
                                   static_cast<const exec::RoundedBlock*>(op.out->src[0]->data),
                                   static_cast<std::size_t>(ggml_nrows(op.out)), begin, end,
                                   static_cast<float*>(op.out->data), rows);
                           });
}

ggml_tensor* StepBuilder::product(ggml_tensor* x, const Linear& linear) {
    if (linear.packed != nullptr) return packed_product(x, linear);
    if (linear.is_q8_rows) return q8_rows_product(x, linear.weight);
    ggml_tensor* y = ggml_mul_mat(context_, linear.weight, x);
    if (linear.scale != nullptr) y = ggml_mul(context_, y, linear.scale);
    return linear.bias != nullptr ? ggml_add(context_, y, linear.bias) : y;
}

ggml_tensor* StepBuilder::rotate(ggml_tensor* x, const Rope& rope) {
    if (rope.kind == RopeKind::none || rope.dimensions == 0) return x;
    return rotate(x, rope, has_sections(rope) ? mrope_positions() : positions());
}

ggml_tensor* StepBuilder::rotate(ggml_tensor* x, const Rope& rope, ggml_tensor* positions) {
    ggml_tensor* factors = rope.has_factors ? weights_.rope_factors : nullptr;
    const int dimensions = static_cast<int>(rope.dimensions);
    const int context = static_cast<int>(rope.original_context);
    if (has_sections(rope)) {
        std::array<int, GGML_MROPE_SECTIONS> sections = rope.sections;
        const int mode =
            rope.kind == RopeKind::mrope ? GGML_ROPE_TYPE_MROPE : GGML_ROPE_TYPE_IMROPE;
        return ggml_rope_multi(context_, x, positions, factors, dimensions, sections.data(), mode,
                               context, rope.base, rope.frequency_scale, rope.extrapolation_factor,
                               rope.attention_factor, rope.beta_fast, rope.beta_slow);
    }
    const int mode = rope.kind == RopeKind::neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
    return ggml_rope_ext(context_, x, positions, factors, dimensions, mode, context, rope.base,
                         rope.frequency_scale, rope.extrapolation_factor, rope.attention_factor,
                         rope.beta_fast, rope.beta_slow);
}

// With sections: for time, height, width and the fourth place, as the reference has pooled keys.
ggml_tensor* StepBuilder::rotate_to_block_starts(ggml_tensor* x, const Rope& rope,
                                                 std::uint32_t ratio) {
    if (rope.kind == RopeKind::none || rope.dimensions == 0) return x;
    return rotate(x, rope, block_starts(ratio, has_sections(rope) ? kSections : 1));
}

ggml_tensor* StepBuilder::unrotate(ggml_tensor* x, const Rope& rope) {
    ggml_tensor* factors = rope.has_factors ? weights_.rope_factors : nullptr;
    const int mode = rope.kind == RopeKind::neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
    return ggml_rope_ext_back(context_, x, positions(), factors, static_cast<int>(rope.dimensions),
                              mode, static_cast<int>(rope.original_context), rope.base,
                              rope.frequency_scale, rope.extrapolation_factor,
                              rope.attention_factor, rope.beta_fast, rope.beta_slow);
}

ggml_tensor* StepBuilder::softcap(ggml_tensor* x, float cap) {
    if (cap == 0.0F) return x;
    x = ggml_scale(context_, x, 1.0F / cap);
    return ggml_scale(context_, ggml_tanh(context_, x), cap);
}

ggml_tensor* StepBuilder::as_f32(ggml_tensor* weight) {
    return weight->type == GGML_TYPE_F32 ? weight : ggml_cast(context_, weight, GGML_TYPE_F32);
}

ggml_tensor* StepBuilder::part(ggml_tensor* x, std::int64_t offset, std::int64_t size) {
    return ggml_cont(context_, ggml_view_2d(context_, x, size, x->ne[1], x->nb[1],
                                            static_cast<std::size_t>(offset) * sizeof(float)));
}

ggml_tensor* StepBuilder::hadamard(ggml_tensor* x, std::uint32_t size) {
    ggml_tensor* matrix =
        input(fmt::format("hadamard {}", size), GGML_TYPE_F32, {size, size, 1, 1}, fill_hadamard);
    ggml_tensor* runs = ggml_cont(context_, x);
    runs = ggml_reshape_2d(context_, runs, size, ggml_nelements(x) / size);
    runs = ggml_mul_mat(context_, matrix, runs);
    return ggml_reshape_4d(context_, runs, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
}

ggml_tensor* StepBuilder::only_outputs(ggml_tensor* x) {
    return outputs_ == tokens_ ? x : ggml_get_rows(context_, x, output_rows());
}

const memory::Group& StepBuilder::group(std::size_t group) const {
    return group == exec::Graph::kStepGroup ? config_.step_rows : config_.schema.groups[group];
}

exec::PlaneView StepBuilder::plane(const PlaneSlot& slot) const {
    const memory::Group& its = group(slot.group);
    return {its.plane_offset(slot.plane), its.planes[slot.plane].row_bytes,
            its.planes[slot.plane].type};
}

}  // namespace stet::model
