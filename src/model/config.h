// What a model file says about computing it, resolved once: hyper-parameters, a plan for each layer
// and the schema of its memory. Read-only afterwards; knows no tensors and no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "memory/schema.h"
#include "model/architectures.h"
#include "model/encoder_decoder.h"
#include "model/ffn/ffn.h"
#include "model/mixers/mixer.h"
#include "model/ngram.h"
#include "model/schema_builder.h"
#include "stet/status.h"

namespace stet::model {

struct LayerPlan {
    std::size_t weights = 0;         // whose weights: blk.N (looped models run a layer again)
    std::optional<NgramPlan> ngram;  // before all else
    std::vector<MixerPlan> mixers;   // none, one, or two whose results are added
    FfnPlan ffn;
    bool has_rows = false;  // keeps state: a step must come this far even if no logits are wanted
    bool is_parallel = false;   // mixer and feed-forward read the same x
    float output_scale = 1.0F;  // of x after the layer
    bool norm_after = false;    // the output norm follows: a loop begins again
};

// Hierarchical reasoning (arXiv 2506.21734): executed layers are stacks of `size`, of which each
// (low_cycles + 1)-th is of the high module. size 0: no such model.
struct Stacks {
    std::uint32_t size = 0;
    std::uint32_t low_cycles = 0;
};

// Residual streams (model/hyper.h).
struct Hyper {
    HyperConnections kind = HyperConnections::none;
    std::uint32_t streams = 0;
    std::uint32_t sinkhorn_steps = 0;  // 0: streams don't mix beside the branches
    std::uint32_t rank = 0;            // of the gate, where it has one
    float epsilon = 0.0F;
    float magnitude = 0.0F;
};

struct Config {
    const Architecture* architecture = nullptr;
    std::string name;                  // general.name, for people
    std::uint32_t context_length = 0;  // trained, tokens
    std::uint32_t width = 0;           // of the residual stream
    std::uint32_t vocabulary = 0;      // rows of logits
    NormKind norm = NormKind::rms;
    float norm_epsilon = 0.0F;
    float embedding_scale = 1.0F;
    float residual_scale = 1.0F;  // of what a branch adds
    float logit_scale = 1.0F;
    float final_softcap = 0.0F;         // 0: none
    std::uint32_t position_limit = 0;   // positions must be below it; 0: any
    std::uint32_t layer_embedding = 0;  // features that each layer gets of a token; 0: none
    std::string rope_factors;           // tensor that divides the rotary frequencies, or empty
    Stacks stacks;
    Hyper hyper;
    EncoderDecoder encoder;
    std::uint32_t residual_block = 0;  // layers between states that are kept
                                       // (model/residual_mix.h); 0: no such model
    std::uint32_t altup_streams = 0;   // of the residual (model/altup.h); 0: one, as usual
    std::vector<LayerPlan> layers;     // as executed
    memory::Schema schema;
    memory::Group step_rows;  // models without memory: rows of one step
};

// What a mixer's and a feed-forward's resolve() read from.
struct ResolveContext {
    const Keys& keys;
    const Architecture& row;
    std::uint32_t layers;  // block_count without trailing prediction layers
    std::size_t slot;      // of the executed layer: whose planes are declared
    const Config& config;  // everything but schema; layers: those before this one
    SchemaBuilder& schema;
};

// The embedding's tensor; CodeShell's may be the head's.
std::string embedding_tensor(const gguf::File& file);

// unimplemented: an architecture (or a feature of one) that is not supported, by name, with the
// nearest that are. corruption: keys that are missing, of a wrong kind or contradict each other.
Result<Config> resolve(const gguf::File& file, const StateTypes& types);

}  // namespace stet::model
