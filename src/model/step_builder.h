// What the blocks of a model need to build their part of a step's graph. Tensors are ggml's: the
// first dimension is the contiguous one, activations are f32 [features, tokens].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "exec/graph.h"
#include "model/config.h"
#include "model/weights.h"

namespace stet::model {

class StepBuilder {
  public:
    StepBuilder(const Config& config, const Weights& weights, exec::Graph& graph,
                std::uint32_t tokens, std::uint32_t outputs);

    exec::Graph& graph() { return graph_; }
    ggml_context* context() const { return context_; }
    const Config& config() const { return config_; }
    const Weights& weights() const { return weights_; }
    std::uint32_t tokens() const { return tokens_; }
    std::uint32_t outputs() const { return outputs_; }

    // True in the last layer of a step that wants no logits: a mixer then only brings its state up
    // to date (expand() what writes it) and may answer null.
    bool only_state() const { return only_state_; }
    void set_only_state(bool value) { only_state_ = value; }
    // x is what the step answers.
    void answer(ggml_tensor* x) {
        ggml_set_output(x);
        graph_.logits = x;
        expand(x);
    }
    void expand(ggml_tensor* node) { ggml_build_forward_expand(graph_.graph(), node); }

    // Rows that the last indexer chose, for layers without one of their own.
    const exec::Graph::Selected& selected() const { return selected_; }
    void set_selected(const exec::Graph::Selected& selected) { selected_ = selected; }

    // Inputs. Each is made once, when it is first asked for, however many layers read it.
    ggml_tensor* token_ids();        // i32 [tokens]
    ggml_tensor* positions();        // i32 [tokens]
    ggml_tensor* mrope_positions();  // i32 [4 * tokens]: time, height, width, and zeros
    // Of each token its position in its block of `ratio` tokens, and that of the first token of the
    // block that it ends (0 where it ends none before the first), the whole several times. i32
    // [tokens] and [copies * tokens].
    ggml_tensor* positions_in(std::uint32_t ratio);
    ggml_tensor* block_starts(std::uint32_t ratio, std::uint32_t copies = 1);
    ggml_tensor* output_rows();  // i32 [outputs]
    // f32 [1, 1, tokens]: 1 + scale * ln(1 + floor((p + offset) / length)).
    ggml_tensor* query_temperature(float scale, std::uint32_t length, std::uint32_t offset);

    // The configuration's kind of norm (weight and bias where they are there).
    ggml_tensor* norm(ggml_tensor* x, const Norm& norm);
    ggml_tensor* rms_norm(ggml_tensor* x, const Norm& norm);
    ggml_tensor* rms_norm(ggml_tensor* x, const Norm& norm, float epsilon);
    ggml_tensor* layer_norm(ggml_tensor* x, const Norm& norm, float epsilon);
    ggml_tensor* product(ggml_tensor* x, const Linear& linear);
    // x f32 [head size, heads, tokens].
    ggml_tensor* rotate(ggml_tensor* x, const Rope& rope);
    // The same at other positions, as positions() or mrope_positions() gives them; and back.
    ggml_tensor* rotate(ggml_tensor* x, const Rope& rope, ggml_tensor* positions);
    // The same at the place of the first token of the block of `ratio` that each token ends.
    ggml_tensor* rotate_to_block_starts(ggml_tensor* x, const Rope& rope, std::uint32_t ratio);
    ggml_tensor* unrotate(ggml_tensor* x, const Rope& rope);
    ggml_tensor* softcap(ggml_tensor* x, float cap);  // cap * tanh(x / cap); cap 0: x
    // A tensor of the model as f32.
    ggml_tensor* as_f32(ggml_tensor* weight);
    // Features [offset, offset + size) of x f32 [features, tokens], contiguous.
    ggml_tensor* part(ggml_tensor* x, std::int64_t offset, std::int64_t size);
    // Runs of `size` (a power of two) elements of x times the orthonormal Hadamard matrix;
    // contiguous.
    ggml_tensor* hadamard(ggml_tensor* x, std::uint32_t size);
    // Columns without wanted logits leave before the last feed-forward.
    ggml_tensor* only_outputs(ggml_tensor* x);

    // What the first layer hands to all others (RWKV-7: its v).
    ggml_tensor* first_value = nullptr;

    const memory::Group& group(std::size_t group) const;
    exec::PlaneView plane(const PlaneSlot& slot) const;

  private:
    ggml_tensor* packed_product(ggml_tensor* x, const Linear& linear);
    ggml_tensor* q8_rows_product(ggml_tensor* x, const ggml_tensor* weight);
    // x rounded for packed products, once for all of them.
    ggml_tensor* rounded(ggml_tensor* x);
    // The input of that name: what it holds and all that it depends on.
    ggml_tensor* input(std::string name, ggml_type type, exec::Graph::Shape shape,
                       exec::Graph::Fill fill);

    const Config& config_;
    const Weights& weights_;
    exec::Graph& graph_;
    ggml_context* context_;
    const std::uint32_t tokens_;
    const std::uint32_t outputs_;
    bool only_state_ = false;
    exec::Graph::Selected selected_;
    std::unordered_map<std::string, ggml_tensor*> inputs_;
    std::unordered_map<ggml_tensor*, ggml_tensor*> rounded_;
};

}  // namespace stet::model
