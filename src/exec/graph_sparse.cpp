// The nodes of a graph that choose rows and attend to them (exec/sparse).
#include "exec/graph.h"

namespace stet::exec {

Graph::Selected Graph::select_rows(ggml_tensor* q, ggml_tensor* weights, const IndexerShape& shape,
                                   const SelectionShape& rule, std::size_t group,
                                   std::span<ggml_tensor* const> after) {
    IndexNode& node = indexers_.emplace_back(shape, rule, group, weights != nullptr);
    std::vector<ggml_tensor*> args = {q};
    if (weights != nullptr) args.push_back(weights);
    const auto add = [&](auto* function) {
        // The result says nothing; it stands for what the node leaves in `selection`.
        return ggml_custom_4d(context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, args.data(),
                              static_cast<int>(args.size()), function, GGML_N_TASKS_MAX, &node);
    };
    args.insert(args.end(), after.begin(), after.end());
    ggml_tensor* scored = add(run_score);
    args.resize(weights != nullptr ? 2 : 1);
    args.push_back(scored);
    return {&node.selection, add(run_choose)};
}

ggml_tensor* Graph::attention(ggml_tensor* q, const AttentionShape& shape,
                              std::span<const GroupRows> sources,
                              std::span<ggml_tensor* const> after, ggml_tensor* sinks) {
    SparseNode& node = sparse_.emplace_back();
    node.shape = shape;
    node.has_sinks = sinks != nullptr;
    for (const GroupRows& source : sources) {
        node.sources.push_back(source.rows);
        node.groups.push_back(source.group);
    }
    return attention_node(q, shape, after, sinks, run_sparse, &node);
}

IndexerInput Graph::IndexNode::input(const ggml_tensor* out, bool has_weights) {
    IndexerInput in;
    in.q = static_cast<const float*>(out->src[0]->data);
    in.q_stride = out->src[0]->nb[2] / sizeof(float);
    if (!has_weights) return in;
    in.weights = static_cast<const float*>(out->src[1]->data);
    in.weights_stride = out->src[1]->nb[1] / sizeof(float);
    return in;
}

void Graph::run_score(ggml_tensor* out, int thread, int threads, void* data) {
    auto& node = *static_cast<IndexNode*>(data);
    node.indexer.score(IndexNode::input(out, node.has_weights), thread, threads);
}

void Graph::run_choose(ggml_tensor* out, int thread, int threads, void* data) {
    auto& node = *static_cast<IndexNode*>(data);
    node.indexer.choose(IndexNode::input(out, node.has_weights), thread, threads);
}

void Graph::run_sparse(ggml_tensor* out, int thread, int /*threads*/, void* data) {
    compute_attention(*static_cast<SparseNode*>(data), out, thread);
}

// Selections first: attention asks them which queries have a choice.
void Graph::reset_sparse(int threads) {
    for (IndexNode& node : indexers_) node.indexer.reset(segments(node.group), threads);
    for (SparseNode& node : sparse_) {
        node.segments.clear();
        for (const std::size_t group : node.groups) node.segments.push_back(segments(group));
        node.job.reset(node.shape, node.sources, node.segments, threads, scratch_);
    }
}

}  // namespace stet::exec
