#include "model/ngram.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "base/try.h"
#include "exec/recurrent/short_conv.h"
#include "model/config.h"
#include "model/hyper.h"
#include "model/mixers/recurrent.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

constexpr std::uint32_t kSizeMax = 8;
constexpr std::uint32_t kHeadsPerSizeMax = 64;
constexpr float kLeast = 1e-6F;  // of what a root is taken of

// At least `count` numbers.
Result<std::vector<std::uint64_t>> numbers(const Keys& keys, const char* key, std::size_t count) {
    const auto* values = keys.file().get_ints(keys.full(key));
    if (values == nullptr) return keys.missing(key);
    if (values->size() < count) {
        return Status(Code::corruption,
                      fmt::format("{}: {} has {} entries, expected {}", keys.file().path().string(),
                                  keys.full(key), values->size(), count));
    }
    std::vector<std::uint64_t> result;
    for (std::size_t i = 0; i < count; ++i) {
        result.push_back(static_cast<std::uint64_t>((*values)[i]));
    }
    return result;
}

// Whether the layer is the one that has them.
Result<bool> is_named(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    const auto* layers = keys.file().get_ints(keys.full("ple.layers"));
    if (layers == nullptr || layers->empty()) return false;
    if (layers->size() > 1) {
        return Status(
            Code::unimplemented,
            fmt::format("{}: {} names {} layers, only one is supported",
                        keys.file().path().string(), keys.full("ple.layers"), layers->size()));
    }
    return (*layers)[0] == static_cast<std::int64_t>(layer);
}

Status resolve_hash(const Keys& keys, NgramPlan& plan) {
    STET_ASSIGN(plan.size, keys.uint("ple.ngram_size", 2, kSizeMax));
    STET_ASSIGN(const auto per_size, keys.uint("ple.heads_per_ngram", 1, kHeadsPerSizeMax));
    STET_ASSIGN(const auto end_token, keys.uint("ple.eos_token_id", 0, kTokensMax));
    plan.end_token = static_cast<std::int32_t>(end_token);
    STET_ASSIGN(plan.multipliers, numbers(keys, "ple.layer_multipliers", plan.size));
    const std::size_t heads = std::size_t{plan.size - 1} * per_size;
    STET_ASSIGN(const auto offsets, numbers(keys, "ple.head_offsets", heads));
    STET_ASSIGN(const auto vocabularies, numbers(keys, "ple.head_vocab_sizes", heads));
    constexpr std::uint64_t kRowsMax = std::numeric_limits<std::int32_t>::max();
    for (std::size_t i = 0; i < heads; ++i) {
        if (vocabularies[i] == 0 || vocabularies[i] > kRowsMax || offsets[i] > kRowsMax ||
            offsets[i] + vocabularies[i] > kRowsMax) {
            return Status(
                Code::corruption,
                fmt::format("{}: n-gram head {} has {} rows from {}, expected 1 to {}",
                            keys.file().path().string(), i, vocabularies[i], offsets[i], kRowsMax));
        }
        plan.heads.push_back({offsets[i], vocabularies[i]});
    }
    return {};
}

// x [width * streams or width, streams, tokens] normed by stream, times weight.
ggml_tensor* norm_streams(StepBuilder& builder, ggml_tensor* x, ggml_tensor* weight) {
    const Config& config = builder.config();
    ggml_context* context = builder.context();
    x = ggml_reshape_3d(context, x, config.width, config.hyper.streams, builder.tokens());
    return ggml_mul(context, builder.rms_norm(x, {}), weight);
}

ggml_tensor* table_rows(StepBuilder& builder, const NgramPlan& plan) {
    const auto count = static_cast<std::int64_t>(plan.heads.size()) * builder.tokens();
    return builder.graph().input(
        GGML_TYPE_I32, {count, 1, 1, 1}, [&plan](const exec::Step& step, ggml_tensor* tensor) {
            auto* out = static_cast<std::int32_t*>(tensor->data);
            for (std::size_t s = 0; s < step.sequences.size(); ++s) {
                const exec::Segment& sequence = step.sequences[s];
                const std::span<const std::int32_t> history = step.histories[s];
                const std::size_t first = history.size() - sequence.token_count;
                for (std::size_t i = 0; i < sequence.token_count; ++i) {
                    ngram_rows(plan, history, first + i,
                               out + (sequence.token_begin + i) * plan.heads.size());
                }
            }
        });
}

// sigmoid of the signed root of how well keys and streams agree, [1, streams, tokens].
ggml_tensor* build_gate(StepBuilder& builder, ggml_tensor* key, ggml_tensor* query) {
    ggml_context* context = builder.context();
    ggml_tensor* x = ggml_sum_rows(context, ggml_mul(context, key, query));
    x = ggml_scale(context, x, 1.0F / std::sqrt(static_cast<float>(builder.config().width)));
    ggml_tensor* size =
        ggml_clamp(context, ggml_abs(context, x), kLeast, std::numeric_limits<float>::infinity());
    x = ggml_mul(context, ggml_sgn(context, x), ggml_sqrt(context, size));
    return ggml_sigmoid(context, x);
}

ggml_tensor* convolve(StepBuilder& builder, const NgramPlan& plan, ggml_tensor* weight,
                      ggml_tensor* x) {
    const exec::ShortConv conv{.channels = static_cast<std::uint32_t>(x->ne[0]),
                               .taps = plan.taps,
                               .dilation = plan.size,
                               .offset_bytes = builder.plane(plan.history).offset_bytes};
    const std::array inputs = {x, builder.as_f32(weight)};
    return builder.graph().state_op(
        {x->ne[0], x->ne[1], 1, 1}, inputs, plan.history.group,
        [conv](const exec::StateOpContext& op) {
            exec::ShortConv mine = conv;
            mine.weight = static_cast<const float*>(op.out->src[1]->data);
            exec::short_conv(mine, rows_of(op.out->src[0]), mutable_rows_of(op.out), op.segments,
                             op.thread, op.threads);
        });
}

}  // namespace

void ngram_rows(const NgramPlan& plan, std::span<const std::int32_t> history, std::size_t index,
                std::int32_t* rows) {
    const std::size_t per_size = plan.heads.size() / (plan.size - 1);
    auto mixed = static_cast<std::uint64_t>(history[index]) * plan.multipliers[0];
    bool is_cut = false;
    for (std::size_t back = 1; back < plan.size; ++back) {
        is_cut = is_cut || back > index || history[index - back] == plan.end_token;
        const std::int32_t token = is_cut ? plan.end_token : history[index - back];
        mixed ^= static_cast<std::uint64_t>(token) * plan.multipliers[back];
        for (std::size_t i = 0; i < per_size; ++i) {
            const NgramPlan::Head& head = plan.heads[(back - 1) * per_size + i];
            *rows++ = static_cast<std::int32_t>(head.offset + mixed % head.vocabulary);
        }
    }
}

Result<std::optional<NgramPlan>> resolve_ngram(const ResolveContext& context, std::size_t layer,
                                               bool is_recurrent) {
    const Keys& keys = context.keys;
    if (!context.row.ngrams) return std::optional<NgramPlan>();
    STET_ASSIGN(const bool named, is_named(context, layer));
    if (!named) return std::optional<NgramPlan>();
    if (!is_recurrent) {
        return Status(Code::corruption,
                      fmt::format("{}: {} names layer {}, which is not a recurrent one",
                                  keys.file().path().string(), keys.full("ple.layers"), layer));
    }
    NgramPlan plan;
    STET_TRY(resolve_hash(keys, plan));
    STET_ASSIGN(plan.head_size, keys.uint("embedding_length_per_layer_input", 1, kWidthMax));
    STET_ASSIGN(plan.taps,
                keys.uint("ple.conv_kernel", 2, exec::kShortConvKeptMax / plan.size + 1));
    const std::uint64_t channels =
        std::uint64_t{context.config.hyper.streams} * context.config.width;
    STET_ASSIGN(plan.history, add_state(context, "p", channels * (plan.taps - 1) * plan.size));
    return std::optional(std::move(plan));
}

Result<NgramWeights> load_ngram(Tensors& tensors, const Config& config, std::size_t layer,
                                const NgramPlan& plan) {
    const std::string base = fmt::format("blk.{}.ple_", layer);
    const std::uint64_t channels = std::uint64_t{config.hyper.streams} * config.width;
    NgramWeights weights;
    // The table may have more rows than its heads need.
    std::uint64_t rows = 0;
    for (const NgramPlan::Head& head : plan.heads) {
        rows = std::max(rows, head.offset + head.vocabulary);
    }
    const std::string table = "per_layer_token_embd.weight";
    const gguf::Tensor* found = tensors.file().find_tensor(table);
    if (found != nullptr) rows = std::max<std::uint64_t>(rows, found->shape[1]);
    STET_ASSIGN(weights.table,
                tensors.find(table, {plan.head_size, rows}, Need::required, Tensors::Use::lookup));
    STET_ASSIGN(weights.key,
                tensors.linear(base + "key", plan.features(), channels, Need::required));
    STET_ASSIGN(weights.value,
                tensors.linear(base + "value", plan.features(), config.width, Need::required));
    STET_ASSIGN(weights.key_norm, find_stream_norm(tensors, config, base + "norm_key"));
    STET_ASSIGN(weights.query_norm, find_stream_norm(tensors, config, base + "norm_query"));
    STET_ASSIGN(weights.conv_norm, find_stream_norm(tensors, config, base + "norm_conv"));
    STET_ASSIGN(weights.conv,
                tensors.find(base + "conv1d.weight", {plan.taps, channels}, Need::required));
    return weights;
}

ggml_tensor* build_ngram(StepBuilder& builder, const NgramPlan& plan, const NgramWeights& weights,
                         ggml_tensor* streams) {
    ggml_context* context = builder.context();
    const std::int64_t tokens = builder.tokens();
    const std::int64_t width = streams->ne[0];
    const std::int64_t count = streams->ne[1];
    ggml_tensor* e = ggml_get_rows(context, weights.table, table_rows(builder, plan));
    e = ggml_reshape_2d(context, e, static_cast<std::int64_t>(plan.features()), tokens);
    ggml_tensor* key = norm_streams(builder, builder.product(e, weights.key), weights.key_norm);
    ggml_tensor* query = norm_streams(builder, streams, weights.query_norm);
    ggml_tensor* value =
        ggml_reshape_3d(context, builder.product(e, weights.value), width, 1, tokens);
    value = ggml_repeat_4d(context, value, width, count, tokens, 1);
    ggml_tensor* y = ggml_mul(context, value, build_gate(builder, key, query));
    ggml_tensor* normed = norm_streams(builder, y, weights.conv_norm);
    normed = ggml_reshape_2d(context, normed, width * count, tokens);
    ggml_tensor* mixed = ggml_silu(context, convolve(builder, plan, weights.conv, normed));
    mixed = ggml_reshape_3d(context, mixed, width, count, tokens);
    return ggml_add(context, streams, ggml_add(context, y, mixed));
}

}  // namespace stet::model
