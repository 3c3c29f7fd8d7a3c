// The tensors of a model, by role. Read-only after load: any thread may use them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/altup.h"
#include "model/config.h"
#include "model/encoder_decoder.h"
#include "model/hyper.h"
#include "model/ngram.h"
#include "model/residual_mix.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct LayerWeights {
    Norm mixer_norm;
    std::vector<MixerWeights> mixers;  // as in the plan
    Norm mixer_post_norm;
    Norm ffn_norm;
    FfnWeights ffn;
    Norm ffn_post_norm;
    ggml_tensor* output_scale = nullptr;  // f32 [1]
    // What the layer makes of its own embedding: x += norm(projection(gelu(gate x) * embedding)).
    Linear embedding_gate, embedding_projection;
    Norm embedding_post_norm;
    AltupLayerWeights altup;
    HyperWeights hyper_mixer, hyper_ffn;
    NgramWeights ngram;
    ResidualMixWeights residual_mix;
};

struct Weights {
    // Checks every tensor's presence and shape against the plan: corruption names the tensor with
    // expected and found shape.
    static Result<std::unique_ptr<Weights>> load(const gguf::File& file, const Config& config,
                                                 const exec::Backend& backend);

    ggml_tensor* embedding = nullptr;  // [width, vocabulary], for look-ups
    Linear head;                       // [width, vocabulary]; the embedding's when tied
    Norm output_norm;
    ggml_tensor* position_embedding = nullptr;  // [width, context length], or null
    Norm embedding_norm;
    ggml_tensor* layer_embedding = nullptr;  // [layer embedding * layers, vocabulary], or null
    Linear layer_embedding_projection;       // of the embedding, added to it
    Norm layer_embedding_norm;
    AltupWeights altup;
    HyperWeights hyper_end;
    EncoderDecoderWeights encoder_decoder;
    ggml_tensor* residual_mix_output = nullptr;  // f32 [width], of the last mix
    ggml_tensor* low_start = nullptr;     // f32 [width]: the low module before the first stack
    ggml_tensor* rope_factors = nullptr;  // f32 [dimensions / 2] divisors, or null
    std::vector<LayerWeights> layers;     // by blk.N

    std::vector<std::string> unused;  // tensors that no block uses
    std::shared_ptr<TensorStorage> storage;
};

}  // namespace stet::model
