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
    rms,     // x / rms(x) * w           (arXiv 1910.07467)
    layer,   // (x - mean) / std * w + b (arXiv 1607.06450)
    by_key,  // rms where attention.layer_norm_rms_epsilon is set
};

// The norms before a layer's mixer and feed-forward.
enum class PreNorm : std::uint8_t {
    weighted,
    weightless,  // no tensors; the output norm has none either
    none,        // only norms after the branches
    in_streams,  // hyper-connections have them, and the output's too
};

// Several residual streams, of which branches read and write mixes (model/hyper.h).
enum class HyperConnections : std::uint8_t {
    none,
    independent,    // streams don't mix beside the branches
    sinkhorn,       // by a doubly stochastic matrix
    sinkhorn_mean,  // the same, and at the end their mean
    low_rank,       // norms of their own and a gate of low rank; instead of all other norms
};

// What the feed-forward reads and what is added up.
enum class Residual : std::uint8_t {
    sequential,  // x += mixer(norm x); x += ffn(norm x)
    parallel,    // x += mixer(norm x) + ffn(norm x), with one norm where only one is there
    by_tensor,   // parallel where ffn_norm is missing
    by_key,      // use_parallel_residual
    normed,      // x = mixer(n) + scale n, n = norm(x); the same with ffn (MiniMax-01)
};

// Which elements of a head rotate together (RoPE, arXiv 2104.09864).
enum class RopeKind : std::uint8_t {
    none,
    norm,    // (0,1), (2,3), ...
    neox,    // (0,n/2), (1,n/2+1), ...
    mrope,   // neox with sections for time, height, width (arXiv 2409.12191)
    imrope,  // the same, interleaved
};

// How much of a head rotates.
enum class RopeSize : std::uint8_t {
    by_key,            // rope.dimension_count
    whole_head,        // whatever the key says
    half_full_layers,  // half of the key in layers that see everything
};

// Layers without rotary embedding.
enum class NoRope : std::uint8_t {
    never,
    fourth,               // layers 3, 7, 11, ...
    fourth_with_windows,  // the same, where the model has windows
    fourth_from_first,    // layers 0, 4, 8, ... where the model has windows
    full_layers,          // those that see everything, where the model has windows
    full_sparse_layers,   // the same, but not the leading dense ones
    by_finetuned,         // all when rope.scaling.finetuned is false
    by_pattern,           // attention.rope_pattern
    unless_32_layers,     // all, in models of another depth
};

// Rotary scaling in layers that see a window.
enum class WindowRope : std::uint8_t {
    same,
    unscaled,  // frequency scale 1
    plain,     // no YaRN either
};

// A penalty on scores that grows with distance (ALiBi, arXiv 2108.12409).
enum class Alibi : std::uint8_t {
    none,
    by_key,        // attention.max_alibi_bias
    eight,         // 8
    by_40_layers,  // 8 in models of that depth
};

// What q . k is multiplied by.
enum class ScoreScale : std::uint8_t {
    root,     // 1 / sqrt(head size)
    inverse,  // 1 / head size
    one,
    by_key,        // attention.scale, or root
    by_output_key  // attention.output_scale
};

// How YaRN scales the scores of latent attention (mixers/mla_resolve.cpp).
enum class YarnScores : std::uint8_t {
    none,
    unmultiplied,     // no rope.scaling.yarn_log_multiplier
    multiplied,       // by it
    multiplied_both,  // the rotation's too, so that it cancels there
};

// Which layers of latent attention have an indexer (mixers/indexer.h). The others use the rows that
// the last one before them chose.
enum class IndexerLayers : std::uint8_t {
    none,               // the model has none
    all,                // all that see everything
    by_key,             // attention.indexer.types; none where attention.indexer.top_k is 0
    by_key_or_all,      // the same, or all
    by_key_or_context,  // the same, or by the trained context (GLM)
};

// Indexers that choose among keys of several tokens each (mixers/pooled_indexer.h).
enum class KeyPools : std::uint8_t {
    none,
    weighted,  // by a softmax over attention.indexer.kpool tokens
    mean,      // of attention.compress_ratios tokens
};

// Norms of queries and keys that have no tensors (those that have are found).
enum class WeightlessQk : std::uint8_t {
    none,
    keys,     // of keys
    rotated,  // of both in layers with rotary embedding, unless there are 128 experts
};

// attn_gate: W_o sees the heads' results times sigmoid(gate x), for each head or each element.
enum class AttentionGate : std::uint8_t {
    none,
    sigmoid,
    softplus,          // instead of sigmoid
    sigmoid_optional,  // where the tensor is there
    in_queries,        // sigmoid of what attn_q gives after each head's query
};

// Which biases of attention and feed-forward apply, where a file has them.
enum class Biases : std::uint8_t {
    all,
    qkv,             // of q, k and v
    all_but_output,  // of attention
    none,
};

enum class Activation : std::uint8_t {
    silu,
    gelu,
    relu,
    relu_squared,
    swiglu_oai,  // gpt-oss: clamped, (up + 1) * gate * sigmoid(1.702 gate)
    xielu,       // arXiv 2411.13010, with parameters of each layer in xielu.*
    situ,        // b tanh(gate / b) sigmoid(gate) * l tanh(up / l): activation.situ_*
};

// Limits of swiglu_clamp_exp and swiglu_clamp_shexp, for each layer.
enum class SwigluClamp : std::uint8_t {
    none,
    gate,       // silu(min(gate, l)) * clamp(up, -l, l)
    activated,  // min(silu(gate), l) * clamp(up, -l, l)
};

enum class EmbeddingScale : std::uint8_t {
    one,
    sqrt_width,  // Gemma
    key,         // embedding_scale
};

enum class EmbeddingNorm : std::uint8_t {
    none,
    weighted,  // token_embd_norm
    weightless,
};

enum class LogitScale : std::uint8_t {
    none,
    multiply,  // by logit_scale
    divide,    // by logit_scale
};

// What mixes tokens in a layer.
enum class Mixer : std::uint8_t {
    none,
    gqa,         // grouped-query attention
    mla,         // multi-head latent attention
    compressed,  // a window and compressed rows (DeepSeek-V4)
    projection,  // no mixing: one matrix instead of attention
    gated_conv,  // LFM2
    mamba,
    mamba2,
    plamo2,  // Mamba by heads
    rwkv6,
    rwkv7,
    delta_net,  // gated delta rule
    kda,        // Kimi delta attention
    lightning,  // linear attention with fixed decay
};

// Which layers have the architecture's recurrent mixer instead of its attention.
enum class RecurrentLayers : std::uint8_t {
    none,
    all,
    no_kv_heads,  // attention.head_count_kv is 0 there
    interval,     // all but every full_attention_interval-th, or attention.recurrent_layers
    beside,       // every layer has both, added (Falcon-H1)
};

// What a layer consists of.
enum class Blocks : std::uint8_t {
    both,    // mixer and feed-forward
    some,    // layers without heads or feed-forward_length lack that block (DeciLM)
    mixer,   // a mixer alone (Mamba)
    either,  // a feed-forward alone where feed_forward_length isn't 0 (Nemotron-H)
};

// The order in which a model runs its layers.
enum class Loop : std::uint8_t {
    none,
    repeat,  // all of them num_loops times
    hrm,     // two stacks in turn (arXiv 2506.21734)
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

// By what experts are chosen, before the selection bias.
enum class ExpertChoice : std::uint8_t {
    probability,  // what gating makes of the router's logits
    logit,
    sigmoid,  // of the logit
};

// What the router sees.
enum class RouterInput : std::uint8_t {
    ffn_input,    // as the experts
    layer_input,  // before the mixer, not normed
    scaled_norm,  // rms(x) / sqrt(width) * ffn_gate_inp.scale
};

// A dense feed-forward in a layer with experts.
enum class DenseBranch : std::uint8_t {
    none,
    average,      // (dense + experts) / sqrt(2), where it is there
    residual,     // dense after the mixer; experts see norm(layer input)
    three_norms,  // both read x after the mixer, each with norms of its own
};

inline constexpr std::uint32_t kWindowArray = 1;
inline constexpr std::uint32_t kWindowAll = 0xffffffffU;

struct Architecture {
    std::string_view name;  // general.architecture
    RopeKind rope = RopeKind::norm;
    NormKind norm = NormKind::rms;
    Activation activation = Activation::silu;
    EmbeddingScale embedding_scale = EmbeddingScale::one;

    // Layers.
    Mixer attention = Mixer::gqa;
    Mixer recurrent = Mixer::none;
    RecurrentLayers recurrent_layers = RecurrentLayers::none;
    std::uint32_t full_attention_interval = 4;  // default of the key
    bool has_memory = true;                     // false: each pass sees its own tokens only
    bool causal = true;
    Blocks blocks = Blocks::both;
    Loop loop = Loop::none;
    bool encoder_decoder = false;  // model/encoder_decoder.h

    // Norms and residuals.
    PreNorm pre_norm = PreNorm::weighted;
    float post_norm_epsilon = 0.0F;  // of norms after a branch; 0: as all others
    Residual residual = Residual::sequential;
    HyperConnections hyper_connections = HyperConnections::none;
    bool residual_scale = false;          // residual_scale applies to what a branch adds
    float residual_scale_default = 0.0F;  // over sqrt(layers); 0: not scaled
    bool layer_output_scale = false;      // layer_output_scale applies, where it is there
    bool rescales = false;                // rescale_every_n_layers applies
    bool embedding_skip = false;          // x += embedding * layer_output_scale after each layer

    // Attention: scores.
    float attention_softcap = -1.0F;  // default of attn_logit_softcapping; -1: never applies
    ScoreScale score_scale = ScoreScale::root;
    std::uint32_t scale_by_width_layers = 0;  // with this many layers: scores / sqrt(width / heads)
    YarnScores yarn_scores = YarnScores::none;
    float output_scale_default = 0.0F;   // of attention.output_scale
    bool query_temperature = false;      // attention.temperature_scale applies (Ministral)
    bool unrotated_temperature = false;  // Llama 4: in layers without rotary embedding
    Alibi alibi = Alibi::none;

    // Attention: heads.
    bool clamp_qkv = false;  // attention.clamp_kqv applies
    bool qk_norm_after_rope = false;
    WeightlessQk weightless_qk = WeightlessQk::none;
    bool weightless_v_norm = false;   // of each head of v
    bool v_from_k = false;            // v is k before its norm, where attn_v is missing
    std::uint32_t own_kv_layers = 0;  // default number of layers with keys and values of their own
    bool shared_kv_key = false;       // attention.shared_kv_layers: the last layers reuse others'
    AttentionGate attention_gate = AttentionGate::none;
    bool output_scale = false;    // attention.value_scale multiplies what attention adds
    Biases biases = Biases::all;  // of the feed-forward too

    // Attention: choice of rows.
    IndexerLayers indexer = IndexerLayers::none;
    KeyPools key_pools = KeyPools::none;
    RopeKind indexer_rope = RopeKind::neox;
    bool indexer_rotates_last = false;  // the last dimensions, not the first
    bool indexer_hadamard = true;
    float indexer_norm_epsilon = 1e-6F;  // of its layer norm; < 0: as all others

    // Recurrent mixers.
    bool tiled_key_heads = false;     // delta net: head h reads key head h % key heads
    bool bounded_kda = false;         // kda.gate_lower_bound must be there
    bool positive_kda_decay = false;  // ssm_a is not negated
    bool sigmoid_delta_gate = false;  // delta net: sigmoid(z), not silu(z)
    float kda_epsilon = 0.0F;         // of the lengths of q and k; 0: as of norms

    // Attention: windows.
    std::uint32_t window_default = 0;  // when attention.sliding_window is missing; 0 is no window
    std::uint32_t window_fixed = 0;    // whatever the key says, unless it says 0
    std::uint32_t window_period = 0;   // layer i has a window unless i % period == period - 1;
                                       // kWindowArray: attention.sliding_window_pattern says which;
                                       // kWindowAll: all that have attention
    bool window_from_first = false;    // unless i % period == 0
    bool window_chunked = false;       // the window is the chunk that the token is in
    std::uint32_t window_layers = 0;   // only models of this depth have windows; 0: all

    // Rotary embedding.
    RopeKind rope_with_sections = RopeKind::none;  // when the file has rope.dimension_sections
    RopeSize rope_size = RopeSize::by_key;
    NoRope no_rope = NoRope::never;
    bool rope_keys = true;     // false: base 10000 without scaling, whatever the keys say
    bool rope_alpha = false;   // rope.scaling.alpha stretches the base
    bool rope_factors = true;  // rope_freqs or rope_factors_* apply, where they are there
    bool window_rope_factors = true;
    float yarn_beta_fast = 32.0F;   // default of the key
    float window_rope_base = 0.0F;  // default of rope.freq_base_swa; 0: the base of full layers
    WindowRope window_rope = WindowRope::same;

    // Feed-forward.
    bool gated = true;              // needs a gate, apart from ffn_up or in it
    std::uint32_t ffn_divisor = 1;  // of feed_forward_length
    SwigluClamp clamp = SwigluClamp::none;
    std::uint32_t sparse_layers = 0;  // the first ones keep only gates above mean + 1.64 std

    // Experts (keys without a default here: ffn/moe.cpp).
    Gating gating = Gating::softmax;              // default of expert_gating_func
    std::uint32_t sigmoid_gating_vocabulary = 0;  // with so many tokens: default sigmoid
    ExpertNorm expert_norm = ExpertNorm::by_key;
    ExpertChoice expert_choice = ExpertChoice::probability;
    bool weight_inputs = false;  // weights multiply the experts' input, not their result
    RouterInput router_input = RouterInput::ffn_input;
    DenseBranch dense_branch = DenseBranch::none;
    bool shared_clamp = false;   // of dense and shared ones: without a key of its own as of others
    bool token_experts = false;  // the first hash_layer_count layers choose experts by token
    bool reads_experts = true;   // false: layers with experts are act(x) (Refact has none)
    bool chunk_experts = false;  // a second pass over experts of groups (GroveMoE)
    float moe_scale = 1.0F;      // of routed and shared experts together

    // Embedding.
    bool scale_keys = true;                // false: defaults of scales, whatever the keys say
    float embedding_scale_default = 0.0F;  // of the key; 0: not scaled
    bool position_table = false;           // position_embd must be there
    EmbeddingNorm embedding_norm = EmbeddingNorm::none;
    bool residual_mix = false;      // attn_res.block_size applies (Kimi K3)
    bool altup = false;             // several residual streams (Gemma 3n)
    bool ngrams = false;            // per_layer_token_embd is of n-grams (model/ngram.h)
    bool layer_embeddings = false;  // per_layer_token_embd adds to each layer (Gemma 4)

    // Output.
    LogitScale logit_scale = LogitScale::none;
    float logit_scale_default = 0.0F;     // of logit_scale; 0: not scaled
    float logit_scale_over_width = 0.0F;  // the same, divided by the width
    float final_softcap = -1.0F;          // default of final_logit_softcapping; -1: never applies
    bool head_bias = true;                // output.bias applies, where it is there
    bool pads_logits = false;             // fewer logits than tokens: they are the last ones

    // Role of tensors whose name is used differently (without "blk.N." and ".weight").
    std::string_view ffn_norm = "ffn_norm";
    std::string_view mixer_post_norm = "post_attention_norm";
    std::string_view ffn_post_norm = "post_ffw_norm";
    std::string_view output_norm = "output_norm";
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);
// Of the BERT family and its like, which none of the rows is.
bool is_encoder_alone(std::string_view name);
// Names close to `name`, for messages: "qwen2, qwen3".
std::string nearest_architectures(std::string_view name);

}  // namespace stet::model
