#include "model/weights.h"

#include <fmt/format.h>

#include "base/try.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;
using Use = Tensors::Use;

Status load_globals(Tensors& tensors, const Config& config, Weights& weights) {
    const std::uint64_t width = config.width;
    const std::uint64_t vocabulary = config.vocabulary;
    const std::string embedding = "token_embd.weight";
    STET_ASSIGN(weights.embedding, tensors.find(embedding, {width, vocabulary}, Need::required));
    STET_ASSIGN(weights.output_norm,
                tensors.norm(std::string(config.architecture->output_norm), width, Need::required));
    STET_ASSIGN(weights.head, tensors.linear("output", width, vocabulary, Need::optional));
    if (!weights.head) {
        STET_ASSIGN(weights.head.weight,
                    tensors.find(embedding, {width, vocabulary}, Need::required, Use::product));
    }
    if (const gguf::Tensor* factors = tensors.file().find_tensor("rope_freqs.weight")) {
        // As long as what rotates; the mixers that use it check that (StepBuilder::rotate).
        STET_ASSIGN(weights.rope_factors,
                    tensors.find("rope_freqs.weight", {factors->shape[0]}, Need::required));
    }
    return {};
}

Result<LayerWeights> load_layer(Tensors& tensors, const Config& config, const LayerPlan& plan) {
    const std::string base = fmt::format("blk.{}.", plan.weights);
    const std::uint64_t width = config.width;
    const std::string ffn_norm(config.architecture->ffn_norm);
    LayerWeights layer;
    for (const MixerPlan& mixer : plan.mixers) {
        STET_ASSIGN(auto loaded, load_mixer(tensors, plan.weights, mixer));
        layer.mixers.push_back(std::move(loaded));
    }
    if (!plan.mixers.empty()) {
        STET_ASSIGN(layer.mixer_norm, tensors.norm(base + "attn_norm", width, Need::required));
        if (ffn_norm != "post_attention_norm") {
            STET_ASSIGN(layer.mixer_post_norm,
                        tensors.norm(base + "post_attention_norm", width, Need::optional));
        }
    }
    if (!std::holds_alternative<NoFfn>(plan.ffn)) {
        STET_ASSIGN(layer.ffn_norm, tensors.norm(base + ffn_norm, width, Need::required));
        STET_ASSIGN(layer.ffn, load_ffn(tensors, plan.weights, plan.ffn));
        STET_ASSIGN(layer.ffn_post_norm,
                    tensors.norm(base + "post_ffw_norm", width, Need::optional));
    }
    return layer;
}

}  // namespace

Result<std::unique_ptr<Weights>> Weights::load(const gguf::File& file, const Config& config,
                                               const exec::Backend& backend) {
    auto weights = std::make_unique<Weights>();
    STET_ASSIGN(const auto tensors, Tensors::open(file, backend, config.width));
    STET_TRY(load_globals(*tensors, config, *weights));
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
