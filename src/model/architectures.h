// The table of architectures: one row each, only what the tensors can't tell. Presence of a tensor
// is the main switch (biases, q/k norms, post norms, a fused qkv, a tied head, sinks, experts); the
// rest is here.
//
// Adding a decoder that is like another is one row and no code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stet::model {

enum class NormKind : std::uint8_t {
    rms,    // x / rms(x) * w           (arXiv 1910.07467)
    layer,  // (x - mean) / std * w + b (arXiv 1607.06450)
};

// Which elements of a head rotate together (RoPE, arXiv 2104.09864).
enum class RopeKind : std::uint8_t {
    none,
    norm,    // (0,1), (2,3), ...
    neox,    // (0,n/2), (1,n/2+1), ...
    mrope,   // neox with sections for time, height, width (arXiv 2409.12191)
    imrope,  // the same, interleaved
};

enum class Activation : std::uint8_t {
    silu,
    gelu,
    relu,
    relu_squared,
    swiglu_oai,  // gpt-oss: clamped, (up + 1) * gate * sigmoid(1.702 gate)
};

enum class EmbeddingScale : std::uint8_t {
    one,
    sqrt_width,  // Gemma
    key,         // embedding_scale
};

// What mixes tokens in a layer.
enum class Mixer : std::uint8_t {
    none,
    gqa,  // grouped-query attention
};

// Which layers have the architecture's recurrent mixer instead of its attention.
enum class RecurrentLayers : std::uint8_t {
    none,
    all,
    no_kv_heads,  // attention.head_count_kv is 0 there
    interval,     // all but every full_attention_interval-th, or attention.recurrent_layers
    beside,       // every layer has both, added (Falcon-H1)
};

enum class Gating : std::uint8_t {
    softmax = 1,
    sigmoid = 2,
    softmax_of_selected = 3,
    sqrt_softplus = 4,
};

// Whether the weights of the chosen experts are divided by their sum.
enum class ExpertNorm : std::uint8_t {
    by_key,  // expert_weights_norm, default false
    yes,
    no,
};

struct Architecture {
    std::string_view name;  // general.architecture
    RopeKind rope = RopeKind::norm;
    NormKind norm = NormKind::rms;
    Activation activation = Activation::silu;
    EmbeddingScale embedding_scale = EmbeddingScale::one;

    Mixer attention = Mixer::gqa;
    Mixer recurrent = Mixer::none;
    RecurrentLayers recurrent_layers = RecurrentLayers::none;
    std::uint32_t full_attention_interval = 4;  // default of the key
    bool has_memory = true;                     // false: each pass sees its own tokens only
    bool causal = true;

    bool attention_softcap = false;    // attn_logit_softcapping applies (default 50)
    float final_softcap = -1.0F;       // default of final_logit_softcapping; -1: never applies
    std::uint32_t window_default = 0;  // when attention.sliding_window is missing; 0 is no window
    std::uint32_t window_period = 0;   // layer i has a window unless i % period == period - 1
    bool window_chunked = false;       // the window is the chunk that the token is in
    float window_rope_base = 0.0F;     // default of rope.freq_base_swa; 0: the base of full layers
    std::uint32_t scale_by_width_layers = 0;  // with this many layers: scores / sqrt(width / heads)
    bool query_temperature = false;           // attention.temperature_scale applies (Ministral)

    // Role of tensors whose name is used differently (without "blk.N." and ".weight").
    std::string_view ffn_norm = "ffn_norm";
    std::string_view output_norm = "output_norm";

    // Experts (keys without a default here: ffn/moe.cpp).
    Gating gating = Gating::softmax;   // default of expert_gating_func
    ExpertNorm expert_norm = ExpertNorm::by_key;
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);
// Names close to `name`, for messages: "qwen2, qwen3".
std::string nearest_architectures(std::string_view name);

}  // namespace stet::model
