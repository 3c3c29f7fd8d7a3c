// Encoder and decoder (T5, arXiv 1910.10683), without positions but for a bias of scores by
// distance (exec/relative_attention.h):
//
//   encoder layer:  x += W_o attention(norm x), both ways;  x += ffn(norm x)
//   decoder layer:  x += W_o attention(norm x), causal
//                   x += W_o attention(W_q norm x over W_k e, W_v e), e the encoder's result
//                   x += ffn(norm x)
//   ffn: down(gelu(gate x) * up x), or down(relu(up x)) where there is no gate
//
// A sequence begins with the tokens that its encoder read, in one step (exec::Step::encodes). In
// the planes of a decoder layer their rows are W_k e and W_v e, and those that follow are the
// decoder's own. How many were read is in the fixed group "encoder". A sequence of which nothing
// was encoded attends to nothing there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/backend.h"
#include "exec/graph.h"
#include "model/keys.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct Config;
struct Weights;
class StepBuilder;

struct EncoderDecoder {
    std::uint32_t encoder_layers = 0;  // 0: the model has no encoder
    std::uint32_t decoder_layers = 0;
    std::uint32_t heads = 0;
    std::uint32_t size = 0;     // of a head of q, k and v
    std::uint32_t buckets = 0;  // of distances
    std::uint32_t ffn_size = 0;
    std::int32_t start_token = 0;  // what a decoder begins with
    PlaneSlot encoded;             // f32: how many tokens were
    std::vector<PlaneSlot> k, v;   // by decoder layer

    std::uint64_t features() const { return std::uint64_t{heads} * size; }
};

struct EncoderDecoderWeights {
    struct Attention {
        Norm norm;
        Linear q, k, v, out;
        ggml_tensor* bias = nullptr;  // [heads, buckets]; null: none
    };
    struct Layer {
        Attention own;
        Attention cross;  // decoder only
        Norm ffn_norm;
        Linear gate, up, down;  // no gate: relu
    };
    std::vector<Layer> encoder, decoder;
    Norm encoder_norm;
};

// Fills config.encoder and config.layers, declares the planes.
Status resolve_encoder_decoder(const Keys& keys, SchemaBuilder& schema, Config& config);
Result<EncoderDecoderWeights> load_encoder_decoder(Tensors& tensors, const Config& config);

// The decoder's layers, x [width, tokens] -> [width, outputs]. Null when the step only fills the
// state.
ggml_tensor* build_cross_decoder(StepBuilder& builder, ggml_tensor* x);
// A graph that encodes `tokens` columns; with `hidden` it answers what the encoder made of them.
Result<std::unique_ptr<exec::Graph>> build_encoder(const Config& config, const Weights& weights,
                                                   exec::Backend& backend, std::uint32_t tokens,
                                                   bool hidden);

}  // namespace stet::model
