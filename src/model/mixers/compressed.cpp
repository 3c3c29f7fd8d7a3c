#include "model/mixers/compressed.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/try.h"
#include "model/mixers/head_parts.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

Result<CompressorWeights> load_compressor(Tensors& tensors, const std::string& base,
                                          const CompressorPlan& plan) {
    const std::uint64_t width = tensors.width();
    const std::uint64_t features = plan.features();
    CompressorWeights weights;
    STET_ASSIGN(weights.values, tensors.linear(base + "kv", width, features, Need::required));
    STET_ASSIGN(weights.scores, tensors.linear(base + "gate", width, features, Need::required));
    STET_ASSIGN(weights.position,
                tensors.find(base + "ape.weight", {features, plan.ratio}, Need::required));
    STET_ASSIGN(weights.norm, tensors.norm(base + "norm", plan.size, Need::required));
    return weights;
}

// Files have the groups' matrices side by side or one below the other.
Status load_output(Tensors& tensors, const std::string& base, const CompressedPlan& plan,
                   CompressedWeights& weights) {
    const std::uint64_t in = std::uint64_t{plan.heads / plan.groups} * plan.head_size;
    const std::uint64_t rank = plan.output_rank;
    const std::string name = base + "output_a.weight";
    const gguf::Tensor* found = tensors.file().find_tensor(name);
    if (found != nullptr && found->dimensions == 2) {
        STET_ASSIGN(weights.out_a, tensors.find(name, {in, rank * plan.groups}, Need::required));
    } else {
        STET_ASSIGN(weights.out_a, tensors.find(name, {in, rank, plan.groups}, Need::required));
    }
    STET_ASSIGN(weights.out_b, tensors.linear(base + "output_b", rank * plan.groups,
                                              tensors.width(), Need::required));
    return {};
}

class Layer {
  public:
    Layer(StepBuilder& builder, const CompressedPlan& plan, const CompressedWeights& weights)
        : builder_(builder), context_(builder.context()), plan_(plan), weights_(weights) {}

    ggml_tensor* build(ggml_tensor* x);

  private:
    ggml_tensor* turned(ggml_tensor* x) {
        return plan_.hadamard == 0 ? x : builder_.hadamard(x, plan_.hadamard);
    }
    // Appends the row of this step's tokens.
    ggml_tensor* append(ggml_tensor* x);
    // Compresses and appends what is complete; keeps the rest.
    ggml_tensor* compress(const CompressorPlan& plan, const CompressorWeights& weights,
                          ggml_tensor* x);
    ggml_tensor* attend(ggml_tensor* q, const exec::RowSelection* chosen,
                        std::vector<ggml_tensor*> after);
    ggml_tensor* out(ggml_tensor* y);

    StepBuilder& builder_;
    ggml_context* context_;
    const CompressedPlan& plan_;
    const CompressedWeights& weights_;
};

ggml_tensor* Layer::append(ggml_tensor* x) {
    ggml_tensor* row = builder_.rms_norm(builder_.product(x, weights_.kv), weights_.kv_norm);
    row = ggml_reshape_3d(context_, row, plan_.head_size, 1, builder_.tokens());
    row = turned(rotate_last(builder_, row, plan_.rope));
    row = ggml_reshape_2d(context_, row, plan_.head_size, builder_.tokens());
    return builder_.graph().append_rows(row, builder_.plane(plan_.k), plan_.k.group);
}

ggml_tensor* Layer::compress(const CompressorPlan& plan, const CompressorWeights& weights,
                             ggml_tensor* x) {
    const std::int64_t tokens = builder_.tokens();
    ggml_tensor* values = builder_.product(x, weights.values);
    ggml_tensor* scores = builder_.product(x, weights.scores);
    scores = ggml_add(context_, scores,
                      ggml_get_rows(context_, weights.position, builder_.positions_in(plan.ratio)));
    exec::Compressor compressor;
    compressor.size = plan.size;
    compressor.ratio = plan.ratio;
    compressor.overlaps = plan.overlaps;
    compressor.values_offset_bytes = builder_.plane(plan.values).offset_bytes;
    compressor.scores_offset_bytes = builder_.plane(plan.scores).offset_bytes;
    const std::array<ggml_tensor*, 2> inputs = {values, scores};
    ggml_tensor* rows = builder_.graph().state_op(
        {plan.size, tokens, 1, 1}, inputs, plan.values.group,
        [compressor](const exec::StateOpContext& op) {
            const auto rows_of = [](const ggml_tensor* tensor) {
                return exec::ConstRows{static_cast<const float*>(tensor->data),
                                       tensor->nb[1] / sizeof(float)};
            };
            exec::compress(compressor, rows_of(op.out->src[0]), rows_of(op.out->src[1]),
                           {static_cast<float*>(op.out->data), op.out->nb[1] / sizeof(float)},
                           op.segments, op.thread, op.threads);
        });
    rows = builder_.rms_norm(rows, weights.norm);
    rows = ggml_reshape_3d(context_, rows, plan.size, 1, tokens);
    // A row is at the place of its block's first token.
    rows = rotate_last(builder_, rows, plan.rope, builder_.block_starts(plan.ratio));
    if (plan.hadamard != 0) rows = builder_.hadamard(rows, plan.hadamard);
    rows = ggml_reshape_2d(context_, rows, plan.size, tokens);
    return builder_.graph().append_rows(rows, builder_.plane(plan.rows), plan.rows.group,
                                        plan.ratio);
}

ggml_tensor* Layer::attend(ggml_tensor* q, const exec::RowSelection* chosen,
                           std::vector<ggml_tensor*> after) {
    exec::AttentionShape shape;
    shape.heads = plan_.heads;
    shape.kv_heads = 1;
    shape.key_size = shape.value_size = plan_.head_size;
    shape.k = shape.v = builder_.plane(plan_.k);
    shape.scale = plan_.scale;
    shape.window_kind = exec::Window::sliding;
    shape.window = plan_.window;
    exec::Graph& graph = builder_.graph();
    if (!plan_.compressor) return graph.attention(q, shape, plan_.k.group, after, weights_.sinks);
    const exec::PlaneView rows = builder_.plane(plan_.compressor->rows);
    const std::array<exec::GroupRows, 2> sources = {
        exec::GroupRows{plan_.k.group, {shape.k, shape.k, 1, nullptr}},
        exec::GroupRows{plan_.compressor->rows.group,
                        {rows, rows, plan_.compressor->ratio, chosen}}};
    return graph.attention(q, shape, sources, after, weights_.sinks);
}

ggml_tensor* Layer::out(ggml_tensor* y) {
    const std::int64_t tokens = builder_.tokens();
    y = ggml_reshape_3d(context_, y, plan_.head_size, plan_.heads, tokens);
    y = unrotate_last(builder_, turned(y), plan_.rope);
    const std::int64_t size = std::int64_t{plan_.heads / plan_.groups} * plan_.head_size;
    y = ggml_reshape_3d(context_, y, size, plan_.groups, tokens);
    ggml_tensor* matrices =
        ggml_reshape_3d(context_, weights_.out_a, size, plan_.output_rank, plan_.groups);
    y = ggml_mul_mat(context_, matrices, ggml_permute(context_, y, 0, 2, 1, 3));
    y = ggml_cont(context_, ggml_permute(context_, y, 0, 2, 1, 3));
    y = ggml_reshape_2d(context_, y, std::int64_t{plan_.output_rank} * plan_.groups, tokens);
    return builder_.product(y, weights_.out_b);
}

ggml_tensor* Layer::build(ggml_tensor* x) {
    std::vector<ggml_tensor*> appended = {append(x)};
    ggml_tensor* keys = nullptr;
    if (plan_.compressor) appended.push_back(compress(*plan_.compressor, weights_.compressor, x));
    if (plan_.indexer) {
        keys = compress(*plan_.indexer_compressor, weights_.indexer_compressor, x);
        appended.push_back(keys);
    }
    if (builder_.only_state()) {
        for (ggml_tensor* rows : appended) builder_.expand(rows);
        return nullptr;
    }
    ggml_tensor* input = builder_.rms_norm(builder_.product(x, weights_.q_a), weights_.q_a_norm);
    ggml_tensor* q = builder_.product(input, weights_.q_b);
    q = ggml_reshape_3d(context_, q, plan_.head_size, plan_.heads, builder_.tokens());
    q = turned(rotate_last(builder_, builder_.rms_norm(q, {}), plan_.rope));
    exec::Graph::Selected selected;
    if (plan_.indexer) {
        selected = build_indexer(builder_, *plan_.indexer, weights_.indexer, x, input, keys);
        appended.push_back(selected.done);
    }
    return out(attend(q, selected.rows, std::move(appended)));
}

}  // namespace

Result<CompressedWeights> load(Tensors& tensors, std::size_t layer, const CompressedPlan& plan) {
    const std::string block = fmt::format("blk.{}.", layer);
    const std::string base = block + "attn_";
    const std::uint64_t width = tensors.width();
    const std::uint64_t rank = plan.query_rank;
    CompressedWeights weights;
    STET_ASSIGN(weights.q_a, tensors.linear(base + "q_a", width, rank, Need::required));
    STET_ASSIGN(weights.q_a_norm, tensors.norm(base + "q_a_norm", rank, Need::required));
    STET_ASSIGN(weights.q_b,
                tensors.linear(base + "q_b", rank, std::uint64_t{plan.heads} * plan.head_size,
                               Need::required));
    STET_ASSIGN(weights.kv, tensors.linear(base + "kv", width, plan.head_size, Need::required));
    STET_ASSIGN(weights.kv_norm, tensors.norm(base + "kv_a_norm", plan.head_size, Need::required));
    STET_ASSIGN(weights.sinks, tensors.find(base + "sinks.weight", {plan.heads}, Need::required));
    STET_TRY(load_output(tensors, base, plan, weights));
    if (plan.compressor) {
        STET_ASSIGN(weights.compressor,
                    load_compressor(tensors, base + "compressor_", *plan.compressor));
    }
    if (!plan.indexer) return weights;
    STET_ASSIGN(weights.indexer_compressor,
                load_compressor(tensors, block + "indexer_compressor_", *plan.indexer_compressor));
    STET_ASSIGN(weights.indexer, load_indexer(tensors, layer, *plan.indexer, rank));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const CompressedPlan& plan,
                   const CompressedWeights& weights, ggml_tensor* x) {
    return Layer(builder, plan, weights).build(x);
}

}  // namespace stet::model
