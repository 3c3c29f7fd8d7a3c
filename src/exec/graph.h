// One computation for one batch shape: a ggml graph with its buffers, its inputs and the attention
// nodes that read pages. Built once, run for every step of the same shape.
//
// Thread rules: one thread at a time.
#pragma once

#include <ggml-alloc.h>
#include <ggml.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "exec/attention.h"
#include "exec/backend.h"
#include "stet/status.h"

namespace stet::exec {

// What changes from step to step. Segments are by group of the schema; all groups of a step have
// the same tokens, in the same order.
struct Step {
    std::span<const std::int32_t> tokens;
    std::span<const std::int32_t> positions;    // of each token
    std::span<const std::int32_t> output_rows;  // columns whose logits are wanted, ascending
    std::vector<std::vector<Segment>> segments;
};

class Graph {
  public:
    // Room for `nodes_max` nodes.
    explicit Graph(std::size_t nodes_max);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    ggml_context* context() const { return context_.get(); }
    ggml_cgraph* graph() const { return graph_; }

    // Inputs that run() fills, and the result that it answers. Null: not part of this graph.
    ggml_tensor* tokens = nullptr;       // i32 [tokens]
    ggml_tensor* positions = nullptr;    // i32 [tokens]
    ggml_tensor* output_rows = nullptr;  // i32 [outputs]
    ggml_tensor* query_scales = nullptr;  // f32 [1, 1, tokens], by the rule below
    ggml_tensor* logits = nullptr;       // f32 [vocabulary, outputs]

    // Factor of the queries at position p: 1 + scale * ln(1 + floor(p / length)).
    struct {
        float scale = 0.0F;
        std::uint32_t length = 1;
    } query_scale_rule;

    // f32 rows [elements, tokens] go into the pages of `group`; the result is a view of `rows`
    // that later nodes depend on.
    ggml_tensor* append_rows(ggml_tensor* rows, const PlaneView& plane, std::size_t group);
    // q f32 [key_size, heads, tokens] -> f32 [value_size * heads, tokens]. `after` are the results
    // of append_rows() that have to come first; `sinks` f32 [heads] or null.
    ggml_tensor* attention(ggml_tensor* q, const AttentionShape& shape, std::size_t group,
                           std::span<ggml_tensor* const> after, ggml_tensor* sinks);

    // Reserves the buffers. Call once, after the last node was added.
    Status allocate(Backend& backend);
    std::size_t buffer_bytes() const;
    // Answers the logits, [outputs][vocabulary]; valid until the next run().
    Result<std::span<const float>> run(Backend& backend, const Step& step);

  private:
    struct AppendNode {
        PlaneView plane;
        std::size_t group;
        const Step* const* step;
    };
    struct AttentionNode {
        AttentionShape shape;
        std::size_t group;
        AttentionJob job;
        bool has_sinks;
    };
    struct ContextDeleter {
        void operator()(ggml_context* context) const { ggml_free(context); }
    };
    struct AllocatorDeleter {
        void operator()(ggml_gallocr_t allocator) const { ggml_gallocr_free(allocator); }
    };

    static void run_append(ggml_tensor* out, int thread, int threads, void* node);
    static void run_attention(ggml_tensor* out, int thread, int threads, void* node);

    std::unique_ptr<ggml_context, ContextDeleter> context_;
    ggml_cgraph* graph_ = nullptr;
    std::unique_ptr<ggml_gallocr, AllocatorDeleter> allocator_;
    std::deque<AppendNode> appends_;        // stable addresses: nodes point at them
    std::deque<AttentionNode> attentions_;
    AttentionScratch scratch_;              // of all of them: one runs at a time
    const Step* step_ = nullptr;            // during run()
};

}  // namespace stet::exec
