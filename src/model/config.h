// What a model file says about computing it, resolved once: hyper-parameters, a plan for each layer
// and the schema of its memory. Read-only afterwards; knows no tensors and no state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/attention.h"
#include "gguf/gguf.h"
#include "memory/schema.h"
#include "model/architectures.h"
#include "stet/status.h"

namespace stet::model {

// Rotary embedding with YaRN scaling (arXiv 2309.00071); the names are those of the paper.
struct Rope {
    RopeKind kind = RopeKind::norm;
    std::uint32_t dimensions = 0;  // of each head that rotate
    float base = 10000.0F;
    float frequency_scale = 1.0F;  // 1 / scaling factor
    float extrapolation_factor = 0.0F;
    float attention_factor = 1.0F;
    float beta_fast = 32.0F;
    float beta_slow = 1.0F;
    std::uint32_t original_context = 0;
};

struct LayerPlan {
    std::uint32_t heads = 0;
    std::uint32_t kv_heads = 0;
    std::uint32_t key_size = 0;    // of a head
    std::uint32_t value_size = 0;  // of a head
    std::uint32_t ffn_size = 0;
    Rope rope;
    exec::Window window_kind = exec::Window::none;
    std::uint32_t window = 0;      // tokens
    std::size_t group = 0;         // of the schema, where this layer's rows are
    std::size_t k_plane = 0;       // planes of that group
    std::size_t v_plane = 0;
};

struct Config {
    const Architecture* architecture = nullptr;
    std::string name;                  // general.name, for people
    std::uint32_t context_length = 0;  // trained, tokens
    std::uint32_t width = 0;           // of the residual stream
    std::uint32_t vocabulary = 0;      // rows of logits
    float norm_epsilon = 0.0F;
    float embedding_scale = 1.0F;
    float attention_scale = 0.0F;      // of q . k
    float attention_softcap = 0.0F;    // 0: none
    float final_softcap = 0.0F;        // 0: none
    float query_temperature_scale = 0.0F;           // 0: none
    std::uint32_t query_temperature_length = 0;     // tokens
    std::vector<LayerPlan> layers;
    memory::Schema schema;
};

struct StateTypes {
    memory::ElementType k = memory::ElementType::f16;
    memory::ElementType v = memory::ElementType::f16;
};

// unimplemented: an architecture (or a feature of one) that is not supported, by name, with the
// nearest that are. corruption: keys that are missing, of a wrong kind or contradict each other.
Result<Config> resolve(const gguf::File& file, const StateTypes& types);

}  // namespace stet::model
