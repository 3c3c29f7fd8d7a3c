// N-gram embeddings (Qwen4): one layer reads what the last tokens were, by hash, from a table of
// its own and mixes it into all residual streams h_s before its mixer.
//
//   row(n, i) = offset_i + (t_0 m_0 ^ t_1 m_1 ^ ... ^ t_(n-1) m_(n-1)) mod vocabulary_i
//               n = 2 .. size, a few i for each; t_j is the token j places before
//   e = those rows side by side;  key_s, value = W e
//   gate_s = sigmoid(root(norm(key_s) . norm(h_s) / sqrt(width))), root(x) = sign x sqrt(max(|x|,
//   1e-6))
//   y_s = gate_s value;  h_s += y_s + silu(conv(norm(y_s)))
//
// The convolution is by channel, its taps `size` tokens apart. An end token hides what was before
// it, which reads as end tokens, and so does what was before the first token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct Config;
struct ResolveContext;
class StepBuilder;

struct NgramPlan {
    struct Head {
        std::uint64_t offset;      // of its rows in the table
        std::uint64_t vocabulary;  // their number
    };
    std::uint32_t size = 0;       // of the longest
    std::uint32_t head_size = 0;  // of a row
    std::uint32_t taps = 0;
    std::int32_t end_token = 0;
    std::vector<std::uint64_t> multipliers;  // `size`
    std::vector<Head> heads;                 // as many for each n, n after n
    PlaneSlot history;                       // "p": [streams * width][(taps - 1) * size]

    std::uint64_t features() const { return heads.size() * head_size; }
};

struct NgramWeights {
    ggml_tensor* table = nullptr;  // [head_size, rows]
    Linear key;                    // to streams * width
    Linear value;                  // to width
    // f32 [width, streams]
    ggml_tensor* key_norm = nullptr;
    ggml_tensor* query_norm = nullptr;
    ggml_tensor* conv_norm = nullptr;
    ggml_tensor* conv = nullptr;  // [taps, streams * width]
};

// Nothing in layers that ple.layers doesn't name.
Result<std::optional<NgramPlan>> resolve_ngram(const ResolveContext& context, std::size_t layer,
                                               bool is_recurrent);
Result<NgramWeights> load_ngram(Tensors& tensors, const Config& config, std::size_t layer,
                                const NgramPlan& plan);
// streams f32 [width, streams, tokens], and the same with what the layer adds.
ggml_tensor* build_ngram(StepBuilder& builder, const NgramPlan& plan, const NgramWeights& weights,
                         ggml_tensor* streams);

// The rows of the table for the token history[index], one for each head.
void ngram_rows(const NgramPlan& plan, std::span<const std::int32_t> history, std::size_t index,
                std::int32_t* rows);

}  // namespace stet::model
