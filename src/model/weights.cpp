#include "model/weights.h"

#include <fmt/format.h>

#include "base/try.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;
using Use = Tensors::Use;

Status load_embedding(Tensors& tensors, const Config& config, Weights& weights) {
    const Architecture& row = *config.architecture;
    const std::uint64_t width = config.width;
    STET_ASSIGN(weights.embedding, tensors.find(embedding_tensor(tensors.file()),
                                                {width, config.vocabulary}, Need::required));
    if (config.position_limit != 0) {
        STET_ASSIGN(
            weights.position_embedding,
            tensors.find("position_embd.weight", {width, config.context_length}, Need::required));
    }
    if (row.embedding_norm == EmbeddingNorm::weighted) {
        STET_ASSIGN(weights.embedding_norm, tensors.norm("token_embd_norm", width, Need::required));
    }
    if (config.stacks.size != 0) {
        STET_ASSIGN(weights.low_start, tensors.find("hrm.z_l_init", {width}, Need::required));
    }
    if (config.hyper.streams != 0 && config.hyper.kind != HyperConnections::sinkhorn_mean) {
        STET_ASSIGN(weights.hyper_end, load_hyper(tensors, config, "output_hc"));
    }
    if (config.encoder.encoder_layers != 0) {
        STET_ASSIGN(weights.encoder_decoder, load_encoder_decoder(tensors, config));
    }
    if (config.altup_streams != 0) {
        STET_ASSIGN(weights.altup, load_altup(tensors, config));
    }
    if (config.residual_block != 0) {
        STET_ASSIGN(weights.residual_mix_output,
                    tensors.find("output_res_score.weight", {width}, Need::required));
    }
    if (config.layer_embedding == 0) return {};
    const std::uint64_t size = std::uint64_t{config.layer_embedding} * config.layers.size();
    STET_ASSIGN(weights.layer_embedding,
                tensors.find("per_layer_token_embd.weight", {size, config.vocabulary},
                             Need::required, Use::lookup));
    STET_ASSIGN(weights.layer_embedding_projection,
                tensors.linear("per_layer_model_proj", width, size, Need::required));
    STET_ASSIGN(weights.layer_embedding_norm,
                tensors.norm("per_layer_proj_norm", config.layer_embedding, Need::required));
    return {};
}

Status load_head(Tensors& tensors, const Config& config, Weights& weights) {
    const Architecture& row = *config.architecture;
    const std::uint64_t width = config.width;
    if (row.pre_norm != PreNorm::weightless && row.pre_norm != PreNorm::in_streams) {
        STET_ASSIGN(weights.output_norm,
                    tensors.norm(std::string(row.output_norm), width, Need::required));
    }
    std::uint64_t rows = config.vocabulary;
    if (const gguf::Tensor* head = tensors.file().find_tensor("output.weight")) {
        if (row.pads_logits && head->shape[1] < rows) rows = head->shape[1];
    }
    STET_ASSIGN(weights.head, tensors.head("output", width, rows, Need::optional));
    if (!row.head_bias) weights.head.bias = nullptr;
    if (!weights.head) {
        std::string name = embedding_tensor(tensors.file());
        name.resize(name.size() - std::string_view(".weight").size());
        STET_ASSIGN(weights.head, tensors.head(name, width, config.vocabulary, Need::required));
    }
    if (!config.rope_factors.empty()) {
        const gguf::Tensor* factors = tensors.file().find_tensor(config.rope_factors);
        STET_ASSIGN(weights.rope_factors,
                    tensors.find(config.rope_factors, {factors->shape[0]}, Need::required));
    }
    return {};
}

// Norms of the mixer and the feed-forward, before and after.
Status load_norms(Tensors& tensors, const Config& config, const LayerPlan& plan,
                  LayerWeights& layer) {
    const Architecture& row = *config.architecture;
    const std::string base = fmt::format("blk.{}.", plan.weights);
    const std::uint64_t width = config.width;
    const bool weighted = row.pre_norm == PreNorm::weighted;
    const Need post = row.pre_norm == PreNorm::none ? Need::required : Need::optional;
    // Falcon: one norm for both branches, or attn_norm_2 for the mixer and attn_norm for the rest.
    const bool two = plan.is_parallel && tensors.has(base + "attn_norm_2.weight");
    if (!plan.mixers.empty()) {
        if (weighted) {
            STET_ASSIGN(layer.mixer_norm, tensors.norm(base + (two ? "attn_norm_2" : "attn_norm"),
                                                       width, Need::required));
        }
        if (row.ffn_norm != row.mixer_post_norm) {
            STET_ASSIGN(layer.mixer_post_norm,
                        tensors.norm(base + std::string(row.mixer_post_norm), width, post));
        }
    }
    if (std::holds_alternative<NoFfn>(plan.ffn)) return {};
    if (weighted) {
        const std::string name = base + (two ? "attn_norm" : std::string(row.ffn_norm));
        STET_ASSIGN(layer.ffn_norm,
                    tensors.norm(name, width, plan.is_parallel ? Need::optional : Need::required));
    }
    std::string name = base + std::string(row.ffn_post_norm);
    if (!tensors.has(name + ".weight") && !tensors.has(name)) name = base + "post_ffw_norm";
    STET_ASSIGN(layer.ffn_post_norm, tensors.norm(name, width, post));
    return {};
}

Result<LayerWeights> load_layer(Tensors& tensors, const Config& config, const LayerPlan& plan) {
    const Architecture& row = *config.architecture;
    const std::string base = fmt::format("blk.{}.", plan.weights);
    const std::uint64_t width = config.width;
    LayerWeights layer;
    if (plan.ngram) {
        STET_ASSIGN(layer.ngram, load_ngram(tensors, config, plan.weights, *plan.ngram));
    }
    for (const MixerPlan& mixer : plan.mixers) {
        STET_ASSIGN(auto loaded, load_mixer(tensors, plan.weights, mixer));
        layer.mixers.push_back(std::move(loaded));
    }
    STET_TRY(load_norms(tensors, config, plan, layer));
    if (!std::holds_alternative<NoFfn>(plan.ffn)) {
        STET_ASSIGN(layer.ffn, load_ffn(tensors, plan.weights, plan.ffn));
    }
    if (row.layer_output_scale) {
        STET_ASSIGN(layer.output_scale,
                    tensors.find(base + "layer_output_scale.weight", {1}, Need::optional));
    }
    if (config.hyper.streams != 0) {
        STET_ASSIGN(layer.hyper_mixer, load_hyper(tensors, config, base + "hc_attn"));
        STET_ASSIGN(layer.hyper_ffn, load_hyper(tensors, config, base + "hc_ffn"));
    }
    if (config.altup_streams != 0) {
        STET_ASSIGN(layer.altup, load_altup_layer(tensors, config, plan.weights));
    }
    if (config.residual_block != 0) {
        STET_ASSIGN(layer.residual_mix, load_residual_mix(tensors, config, plan.weights));
    }
    if (config.layer_embedding == 0) return layer;
    const std::uint64_t size = config.layer_embedding;
    STET_ASSIGN(layer.embedding_gate,
                tensors.linear(base + "inp_gate", width, size, Need::required));
    STET_ASSIGN(layer.embedding_projection,
                tensors.linear(base + "proj", size, width, Need::required));
    STET_ASSIGN(layer.embedding_post_norm, tensors.norm(base + "post_norm", width, Need::required));
    return layer;
}

}  // namespace

Result<std::unique_ptr<Weights>> Weights::load(const gguf::File& file, const Config& config,
                                               const exec::Backend& backend) {
    auto weights = std::make_unique<Weights>();
    STET_ASSIGN(const auto tensors, Tensors::open(file, backend, config.width));
    STET_TRY(load_embedding(*tensors, config, *weights));
    STET_TRY(load_head(*tensors, config, *weights));
    for (const LayerPlan& plan : config.layers) {
        if (plan.weights < weights->layers.size()) continue;  // a loop runs it again
        STET_ASSIGN(auto layer, load_layer(*tensors, config, plan));
        weights->layers.push_back(std::move(layer));
    }
    STET_TRY(tensors->repack());
    weights->unused = tensors->unused();
    weights->storage = tensors->storage();
    return weights;
}

}  // namespace stet::model
