// Attention of DeepSeek-V4: one K/V head whose row is key and value. A query sees the rows of a
// window and, in most layers, rows that were compressed from every 4 or every 128 tokens, in one
// softmax with a sink; of the former an indexer chooses.
//
//   q = rope(rms(W_q_b norm(W_q_a x)));  row = rope(norm(W_kv x));  y = rope^-1(attention)
//   W_o: heads in groups, each through a matrix of its own to a few features, then all together
//   compressed row: rope(norm(the tokens' W_c x, weighted by softmax(W_g x + b[position % ratio])))
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "exec/graph.h"
#include "exec/sparse/compressor.h"
#include "model/mixers/indexer.h"
#include "model/rope.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

struct CompressorPlan {
    std::uint32_t size = 0;  // of a row
    std::uint32_t ratio = 0;
    bool overlaps = false;
    std::uint32_t hadamard = 0;  // as IndexerPlan
    Rope rope;
    PlaneSlot rows;
    PlaneSlot values, scores;  // kept of earlier tokens

    std::uint32_t features() const { return overlaps ? 2 * size : size; }
};

struct CompressorWeights {
    Linear values, scores;            // to features()
    ggml_tensor* position = nullptr;  // [features, ratio], added to scores
    Norm norm;                        // [size]
};

struct CompressedPlan {
    std::uint32_t heads = 0;
    std::uint32_t head_size = 0;
    std::uint32_t query_rank = 0;
    std::uint32_t groups = 0;       // of heads, for the output
    std::uint32_t output_rank = 0;  // of each group
    std::uint32_t window = 0;
    std::uint32_t hadamard = 0;  // rows are kept so, and the result is turned back
    float scale = 0.0F;
    Rope rope;
    PlaneSlot k;
    std::optional<CompressorPlan> compressor;
    std::optional<IndexerPlan> indexer;  // its rows are compressed too
    std::optional<CompressorPlan> indexer_compressor;
};

struct CompressedWeights {
    Linear q_a, q_b, kv;
    Norm q_a_norm, kv_norm;
    ggml_tensor* sinks = nullptr;  // f32 [heads]
    ggml_tensor* out_a = nullptr;  // [heads / groups * head_size, output_rank, groups]
    Linear out_b;
    CompressorWeights compressor, indexer_compressor;
    IndexerWeights indexer;
};

Result<CompressedPlan> resolve_compressed(const ResolveContext& context, std::size_t layer);
Result<CompressedWeights> load(Tensors& tensors, std::size_t layer, const CompressedPlan& plan);
ggml_tensor* build(StepBuilder& builder, const CompressedPlan& plan,
                   const CompressedWeights& weights, ggml_tensor* x);

}  // namespace stet::model
