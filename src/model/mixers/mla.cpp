#include "model/mixers/mla.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/try.h"
#include "model/mixers/head_gate.h"
#include "model/mixers/head_parts.h"
#include "model/step_builder.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

Status load_queries(Tensors& tensors, const std::string& base, const MlaPlan& plan,
                    MlaWeights& weights) {
    const std::uint64_t q_size = std::uint64_t{plan.heads} * plan.key_size;
    const std::uint64_t rank = plan.query_rank;
    if (rank == 0) {
        STET_ASSIGN(weights.q, tensors.linear(base + "q", tensors.width(), q_size, Need::required));
        return {};
    }
    STET_ASSIGN(weights.q_a, tensors.linear(base + "q_a", tensors.width(), rank, Need::required));
    STET_ASSIGN(weights.q_a_norm, tensors.norm(base + "q_a_norm", rank, Need::required));
    STET_ASSIGN(weights.q_b, tensors.linear(base + "q_b", rank, q_size, Need::required));
    return {};
}

Status load_rows(Tensors& tensors, const std::string& base, const MlaPlan& plan,
                 MlaWeights& weights) {
    const std::uint64_t rank = plan.row_rank;
    STET_ASSIGN(weights.kv_a, tensors.linear(base + "kv_a_mqa", tensors.width(),
                                             rank + plan.rope_size, Need::required));
    STET_ASSIGN(weights.kv_a_norm, tensors.norm(base + "kv_a_norm", rank, Need::required));
    STET_ASSIGN(weights.k_norm, tensors.norm(base + "k_norm", plan.rope_size, Need::optional));
    if (plan.is_absorbed) {
        STET_ASSIGN(weights.k_b,
                    tensors.find(base + "k_b.weight", {plan.plain_size(), rank, plan.heads},
                                 Need::required));
        STET_ASSIGN(weights.v_b, tensors.find(base + "v_b.weight",
                                              {rank, plan.value_size, plan.heads}, Need::required));
        return {};
    }
    STET_ASSIGN(weights.kv_b,
                tensors.linear(base + "kv_b", rank,
                               std::uint64_t{plan.heads} * (plan.plain_size() + plan.value_size),
                               Need::required));
    return {};
}

struct Row {
    ggml_tensor* latent;   // c [row_rank, tokens], contiguous
    ggml_tensor* rotated;  // k_r [rope_size, 1, tokens], contiguous; null: there is none
};

class Layer {
  public:
    Layer(StepBuilder& builder, const MlaPlan& plan, const MlaWeights& weights)
        : builder_(builder), context_(builder.context()), plan_(plan), weights_(weights) {}

    ggml_tensor* build(ggml_tensor* x);

  private:
    Row row(ggml_tensor* x);
    ggml_tensor* rotate(ggml_tensor* x);
    std::vector<ggml_tensor*> append(const exec::AttentionShape& shape, const Row& row);
    // What the layer's own indexer keeps; null: it has none.
    ggml_tensor* append_index(ggml_tensor* x);
    void choose(ggml_tensor* x, ggml_tensor* query_input, ggml_tensor* appended);
    ggml_tensor* query_input(ggml_tensor* x);
    ggml_tensor* queries(ggml_tensor* input);
    ggml_tensor* attend(ggml_tensor* q, const exec::AttentionShape& shape,
                        std::vector<ggml_tensor*> after);
    // q [key_size, heads, tokens] as the rows' keys want it.
    ggml_tensor* ready(ggml_tensor* q);
    // What attention gives for each head -> [value_size * heads, tokens].
    ggml_tensor* open(ggml_tensor* y);
    exec::AttentionShape shape() const;

    StepBuilder& builder_;
    ggml_context* context_;
    const MlaPlan& plan_;
    const MlaWeights& weights_;
};

ggml_tensor* Layer::rotate(ggml_tensor* x) {
    const bool as_is = plan_.rope.kind == RopeKind::none;
    return as_is ? ggml_cont(context_, x) : builder_.rotate(x, plan_.rope);
}

Row Layer::row(ggml_tensor* x) {
    ggml_tensor* both = builder_.product(x, weights_.kv_a);
    Row row{};
    row.latent = builder_.rms_norm(builder_.part(both, 0, plan_.row_rank), weights_.kv_a_norm);
    if (plan_.rope_size == 0) return row;
    ggml_tensor* rotated = ggml_view_3d(context_, both, plan_.rope_size, 1, builder_.tokens(),
                                        both->nb[1], both->nb[1], plan_.row_rank * sizeof(float));
    if (weights_.k_norm) {
        rotated = builder_.rms_norm(ggml_cont(context_, rotated), weights_.k_norm);
    }
    row.rotated = rotate(rotated);
    return row;
}

std::vector<ggml_tensor*> Layer::append(const exec::AttentionShape& shape, const Row& row) {
    exec::Graph& graph = builder_.graph();
    const std::int64_t tokens = builder_.tokens();
    if (plan_.is_absorbed && row.rotated == nullptr) {
        return {graph.append_rows(row.latent, shape.k, plan_.k.group)};
    }
    if (plan_.is_absorbed) {
        ggml_tensor* rotated = ggml_reshape_2d(context_, row.rotated, plan_.rope_size, tokens);
        ggml_tensor* rows = ggml_concat(context_, row.latent, rotated, 0);
        return {graph.append_rows(rows, shape.k, plan_.k.group)};
    }
    const std::int64_t heads = plan_.heads;
    const std::int64_t plain = plan_.plain_size();
    ggml_tensor* opened = builder_.product(row.latent, weights_.kv_b);
    opened = ggml_reshape_3d(context_, opened, plain + plan_.value_size, heads, tokens);
    ggml_tensor* k = ggml_repeat_4d(context_, row.rotated, plan_.rope_size, heads, tokens, 1);
    if (plain != 0) k = ggml_concat(context_, of_each_head(context_, opened, 0, plain), k, 0);
    k = ggml_reshape_2d(context_, k, plan_.key_size * heads, tokens);
    ggml_tensor* v = ggml_cont(context_, of_each_head(context_, opened, plain, plan_.value_size));
    v = ggml_reshape_2d(context_, v, plan_.value_size * heads, tokens);
    return {graph.append_rows(k, shape.k, plan_.k.group),
            graph.append_rows(v, shape.v, plan_.v.group)};
}

// What queries are made of: c_q, or x itself.
ggml_tensor* Layer::query_input(ggml_tensor* x) {
    if (weights_.q) return x;
    return builder_.rms_norm(builder_.product(x, weights_.q_a), weights_.q_a_norm);
}

ggml_tensor* Layer::queries(ggml_tensor* input) {
    ggml_tensor* q = builder_.product(input, weights_.q ? weights_.q : weights_.q_b);
    return ggml_reshape_3d(context_, q, plan_.key_size, plan_.heads, builder_.tokens());
}

ggml_tensor* Layer::ready(ggml_tensor* q) {
    const std::int64_t plain_size = plan_.plain_size();
    ggml_tensor* rotated = nullptr;
    if (plan_.rope_size != 0) {
        rotated = rotate(of_each_head(context_, q, plain_size, plan_.rope_size));
    }
    if (plain_size != 0) {
        ggml_tensor* plain = of_each_head(context_, q, 0, plain_size);
        if (plan_.is_absorbed) {
            // By head: W_k_b [plain, rank] times q_n [plain, tokens].
            plain = ggml_mul_mat(context_, weights_.k_b, ggml_permute(context_, plain, 0, 2, 1, 3));
            plain = ggml_permute(context_, plain, 0, 2, 1, 3);
        }
        rotated = rotated == nullptr ? ggml_cont(context_, plain)
                                     : ggml_concat(context_, plain, rotated, 0);
    }
    if (plan_.temperature_scale == 0.0F) return rotated;
    return ggml_mul(
        context_, rotated,
        builder_.query_temperature(plan_.temperature_scale, plan_.temperature_length, 0));
}

ggml_tensor* Layer::open(ggml_tensor* y) {
    if (!plan_.is_absorbed) return y;
    const std::int64_t heads = plan_.heads;
    const std::int64_t tokens = builder_.tokens();
    y = ggml_reshape_3d(context_, y, plan_.row_rank, heads, tokens);
    y = ggml_mul_mat(context_, weights_.v_b, ggml_permute(context_, y, 0, 2, 1, 3));
    y = ggml_cont(context_, ggml_permute(context_, y, 0, 2, 1, 3));
    return ggml_reshape_2d(context_, y, plan_.value_size * heads, tokens);
}

exec::AttentionShape Layer::shape() const {
    exec::AttentionShape shape;
    shape.heads = plan_.heads;
    shape.k = builder_.plane(plan_.k);
    shape.scale = plan_.scale;
    shape.window_kind = plan_.window_kind;
    shape.window = plan_.window;
    if (plan_.is_absorbed) {
        shape.kv_heads = 1;
        shape.key_size = plan_.row_rank + plan_.rope_size;
        shape.value_size = plan_.row_rank;
        shape.v = shape.k;
        return shape;
    }
    shape.kv_heads = plan_.heads;
    shape.key_size = plan_.key_size;
    shape.value_size = plan_.value_size;
    shape.v = builder_.plane(plan_.v);
    shape.v_head_stride = plan_.value_size;
    return shape;
}

// To all rows, or to those that an indexer chose.
ggml_tensor* Layer::attend(ggml_tensor* q, const exec::AttentionShape& shape,
                           std::vector<ggml_tensor*> after) {
    exec::Graph& graph = builder_.graph();
    if (!plan_.indexer && !plan_.pooled_indexer)
        return graph.attention(q, shape, plan_.k.group, after, weights_.sinks);
    const exec::Graph::Selected& selected = builder_.selected();
    after.push_back(selected.done);
    const std::array<exec::GroupRows, 1> sources = {
        exec::GroupRows{plan_.k.group, {shape.k, shape.v, 1, selected.rows}}};
    return graph.attention(q, shape, sources, after, weights_.sinks);
}

ggml_tensor* Layer::append_index(ggml_tensor* x) {
    if (!plan_.has_own_choice()) return nullptr;
    return plan_.indexer
               ? append_indexer_keys(builder_, *plan_.indexer, weights_.indexer, x)
               : append_pooled_keys(builder_, *plan_.pooled_indexer, weights_.pooled_indexer, x);
}

void Layer::choose(ggml_tensor* x, ggml_tensor* query_input, ggml_tensor* appended) {
    builder_.set_selected(
        plan_.indexer
            ? build_indexer(builder_, *plan_.indexer, weights_.indexer, x, query_input, appended)
            : build_pooled_indexer(builder_, *plan_.pooled_indexer, weights_.pooled_indexer, x,
                                   query_input, appended));
}

ggml_tensor* Layer::build(ggml_tensor* x) {
    const exec::AttentionShape shape = this->shape();
    std::vector<ggml_tensor*> appended = append(shape, row(x));
    ggml_tensor* keys = append_index(x);
    if (builder_.only_state()) {
        for (ggml_tensor* rows : appended) builder_.expand(rows);
        if (keys != nullptr) builder_.expand(keys);
        return nullptr;
    }
    ggml_tensor* input = query_input(x);
    if (keys != nullptr) choose(x, input, keys);
    ggml_tensor* y = attend(ready(queries(input)), shape, std::move(appended));
    y = apply_head_gate(builder_, plan_.gate, weights_.gate, {plan_.heads, plan_.value_size},
                        open(y), x);
    return builder_.product(y, weights_.out);
}

}  // namespace

Result<MlaWeights> load(Tensors& tensors, std::size_t layer, const MlaPlan& plan) {
    const std::string base = fmt::format("blk.{}.attn_", layer);
    MlaWeights weights;
    STET_TRY(load_queries(tensors, base, plan, weights));
    STET_TRY(load_rows(tensors, base, plan, weights));
    STET_ASSIGN(weights.gate,
                load_head_gate(tensors, base, plan.gate, {plan.heads, plan.value_size}));
    STET_ASSIGN(weights.sinks, tensors.find(base + "sinks.weight", {plan.heads}, Need::optional));
    if (plan.indexer) {
        STET_ASSIGN(weights.indexer, load_indexer(tensors, layer, *plan.indexer, plan.query_rank));
    }
    if (plan.pooled_indexer) {
        STET_ASSIGN(weights.pooled_indexer,
                    load_pooled_indexer(tensors, layer, *plan.pooled_indexer, plan.query_rank));
    }
    STET_ASSIGN(weights.out,
                tensors.linear(base + "output", std::uint64_t{plan.heads} * plan.value_size,
                               tensors.width(), Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const MlaPlan& plan, const MlaWeights& weights,
                   ggml_tensor* x) {
    return Layer(builder, plan, weights).build(x);
}

}  // namespace stet::model
