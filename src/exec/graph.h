// One computation for one batch shape: a ggml graph with its buffers, its inputs and the nodes of
// our own that read and write state. Built once, run for every step of the same shape.
//
// Thread rules: one thread at a time.
#pragma once

#include <ggml-alloc.h>
#include <ggml.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "exec/attention.h"
#include "exec/backend.h"
#include "exec/sparse/indexer.h"
#include "exec/sparse/sparse_attention.h"
#include "exec/thread_choice.h"
#include "memory/schema.h"
#include "stet/status.h"

namespace stet::exec {

// What changes from step to step. Segments are by group of the schema; all groups of a step have
// the same sequences, in the same order, and so has `sequences` for models without memory.
struct Step {
    std::span<const std::int32_t> tokens;
    std::span<const std::int32_t> positions;    // of each token
    std::span<const std::int32_t> output_rows;  // columns whose logits are wanted, ascending
    std::vector<std::vector<Segment>> segments;
    std::vector<Segment> sequences;  // position, token_begin and token_count only
    bool encodes = false;            // the encoder reads the tokens, in models that have one
    bool hidden = false;             // the answer is what logits would be made of, [width] a row
    // All tokens of each sequence, those of the step last.
    std::vector<std::span<const std::int32_t>> histories;
};

// What a state operator sees on each of its threads.
struct StateOpContext {
    ggml_tensor* out;                   // f32; its inputs are out->src[0], [1], ... as given
    std::span<const Segment> segments;  // of the node's group
    const Step& step;
    int thread;  // 0 .. threads-1; each does its share and returns
    int threads;

    // This thread's part [begin, end) of `count` like pieces of work.
    std::pair<std::size_t, std::size_t> share(std::size_t count) const {
        const auto part = [&](int i) {
            return count * static_cast<std::size_t>(i) / static_cast<std::size_t>(threads);
        };
        return {part(thread), part(thread + 1)};
    }
};
using StateOp = std::function<void(const StateOpContext&)>;

// Rows of a group that attention reads beside others.
struct GroupRows {
    std::size_t group = 0;
    RowSource rows;
};

class Graph {
  public:
    using Fill = std::function<void(const Step& step, ggml_tensor* tensor)>;
    using Shape = std::array<std::int64_t, 4>;

    // The "group" of rows that live for one step only: keys and values of models without memory.
    static constexpr std::size_t kStepGroup = static_cast<std::size_t>(-1);

    // Room for `nodes_max` nodes.
    explicit Graph(std::size_t nodes_max);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    ggml_context* context() const { return context_.get(); }
    ggml_cgraph* graph() const { return graph_; }

    ggml_tensor* logits = nullptr;  // f32 [vocabulary, outputs]; null: nothing is wanted

    // A tensor that `fill` writes before each run.
    ggml_tensor* input(ggml_type type, Shape shape, Fill fill);

    // f32 rows [elements, tokens] go into the pages of `group` at their positions; the result is a
    // view of `rows` that later nodes depend on.
    // `ratio`: that of a group of lifetime every(ratio), whose rows come from every such token.
    ggml_tensor* append_rows(ggml_tensor* rows, const PlaneView& plane, std::size_t group,
                             std::uint32_t ratio = 1);
    // q f32 [key_size, heads, tokens] -> f32 [value_size * heads, tokens]. `after` are the results
    // of append_rows() that have to come first; `sinks` f32 [heads] or null.
    ggml_tensor* attention(ggml_tensor* q, const AttentionShape& shape, std::size_t group,
                           std::span<ggml_tensor* const> after, ggml_tensor* sinks);
    // Rows chosen by scores of q f32 [key_size, heads, tokens] and weights f32 [heads, tokens]
    // (null: block indexer) over the keys in `group`. What reads `rows` has to come after `done`.
    // Both live as long as the graph.
    struct Selected {
        const RowSelection* rows = nullptr;
        ggml_tensor* done = nullptr;
    };
    Selected select_rows(ggml_tensor* q, ggml_tensor* weights, const IndexerShape& shape,
                         const SelectionShape& rule, std::size_t group,
                         std::span<ggml_tensor* const> after);
    // Attention over chosen rows, and over several groups in one softmax (exec/sparse). The window
    // of `shape` is that of the first source.
    ggml_tensor* attention(ggml_tensor* q, const AttentionShape& shape,
                           std::span<const GroupRows> sources, std::span<ggml_tensor* const> after,
                           ggml_tensor* sinks);
    // A node of a mixer's own: result f32 of `shape` from `inputs` (at most 9) and the state of
    // `group`. Inputs may also be there only to come first. Runs on all threads at once, without a
    // barrier inside; results must not depend on the number of threads.
    ggml_tensor* state_op(Shape shape, std::span<ggml_tensor* const> inputs, std::size_t group,
                          StateOp op);

    // Pages for kStepGroup: `group` has the planes, `tokens` is the batch's size.
    void reserve_step_rows(const memory::Group& group, std::uint32_t tokens);

    // Reserves the buffers. Call once, after the last node was added.
    // `is_adaptive`: runs often and is small, so that the number of threads may follow what else
    // the machine does. Results are the same for any number.
    Status allocate(Backend& backend, bool is_adaptive);
    std::size_t buffer_bytes() const;
    // Answers the logits, [outputs][vocabulary]; valid until the next run().
    Result<std::span<const float>> run(Backend& backend, const Step& step);

  private:
    struct Input {
        ggml_tensor* tensor;
        Fill fill;
    };
    struct AppendNode {
        PlaneView plane;
        std::size_t group;
        std::uint32_t ratio;
        const Graph* graph;
    };
    struct AttentionNode {
        AttentionShape shape;
        std::size_t group;
        AttentionJob job;
        bool has_sinks;
    };
    struct IndexNode {
        RowSelection selection;
        RowIndexer indexer;
        std::size_t group;
        bool has_weights;
        IndexNode(const IndexerShape& shape, const SelectionShape& rule, std::size_t its_group,
                  bool weighted)
            : selection(rule), indexer(shape, selection), group(its_group), has_weights(weighted) {}
        IndexNode(const IndexNode&) = delete;
        IndexNode& operator=(const IndexNode&) = delete;
        static IndexerInput input(const ggml_tensor* out, bool has_weights);
    };
    struct SparseNode {
        AttentionShape shape;
        std::vector<RowSource> sources;
        std::vector<std::size_t> groups;
        std::vector<std::span<const Segment>> segments;  // of this step, by source
        SparseAttentionJob job;
        bool has_sinks;
    };
    struct StateNode {
        StateOp op;
        std::size_t group;
        const Graph* graph;
    };
    struct ContextDeleter {
        void operator()(ggml_context* context) const { ggml_free(context); }
    };
    struct AllocatorDeleter {
        void operator()(ggml_gallocr_t allocator) const { ggml_gallocr_free(allocator); }
    };

    static void run_append(ggml_tensor* out, int thread, int threads, void* node);
    static void run_attention(ggml_tensor* out, int thread, int threads, void* node);
    static void run_score(ggml_tensor* out, int thread, int threads, void* node);
    static void run_choose(ggml_tensor* out, int thread, int threads, void* node);
    static void run_sparse(ggml_tensor* out, int thread, int threads, void* node);
    static void run_state_op(ggml_tensor* out, int thread, int threads, void* node);

    // What both kinds of attention share: a node over q, sinks and what comes before, and its run.
    ggml_tensor* attention_node(ggml_tensor* q, const AttentionShape& shape,
                                std::span<ggml_tensor* const> after, ggml_tensor* sinks,
                                ggml_custom_op_t compute, void* node);
    template <typename Node>
    static void compute_attention(Node& node, ggml_tensor* out, int thread) {
        const ggml_tensor* q = out->src[0];
        const float* sinks =
            node.has_sinks ? static_cast<const float*>(out->src[1]->data) : nullptr;
        node.job.compute(static_cast<const float*>(q->data), q->nb[2] / sizeof(float), sinks,
                         static_cast<float*>(out->data), thread);
    }

    std::span<const Segment> segments(std::size_t group) const;
    void place_step_rows(const Step& step);
    void reset_sparse(int threads);

    std::unique_ptr<ggml_context, ContextDeleter> context_;
    ggml_cgraph* graph_ = nullptr;
    std::unique_ptr<ggml_gallocr, AllocatorDeleter> allocator_;
    std::vector<Input> inputs_;
    std::deque<AppendNode> appends_;  // stable addresses: nodes point at them
    std::deque<AttentionNode> attentions_;
    std::deque<IndexNode> indexers_;
    std::deque<SparseNode> sparse_;
    std::deque<StateNode> state_ops_;
    AttentionScratch scratch_;    // of all attention nodes: one runs at a time
    const Step* step_ = nullptr;  // during run()
    std::optional<ThreadChoice> thread_choice_;

    // Rows of one step (kStepGroup): a run of whole pages for each sequence.
    std::uint64_t step_page_bytes_ = 0;
    std::vector<std::byte> step_rows_;
    std::vector<std::byte*> step_pages_;
    std::vector<Segment> step_segments_;
};

}  // namespace stet::exec
