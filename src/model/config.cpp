#include "model/config.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/try.h"
#include "model/keys.h"

namespace stet::model {
namespace {

// Trailing layers that only predict further tokens are no part of the trunk.
Result<std::uint32_t> trunk_layers(const Keys& keys) {
    STET_ASSIGN(const auto layers, keys.uint("block_count", 1, kLayersMax));
    STET_ASSIGN(const auto prediction, keys.uint_or("nextn_predict_layers", 0, 0, layers - 1));
    return layers - prediction;
}

Result<float> norm_epsilon(const Keys& keys, NormKind kind) {
    return keys.number(kind == NormKind::rms ? "attention.layer_norm_rms_epsilon"
                                             : "attention.layer_norm_epsilon");
}

// Which layers have the recurrent mixer.
Result<std::vector<bool>> recurrent_layers(const Keys& keys, const Architecture& row,
                                           std::uint32_t layers) {
    switch (row.recurrent_layers) {
        case RecurrentLayers::none:
            return std::vector<bool>(layers, false);
        case RecurrentLayers::all:
        case RecurrentLayers::beside:
            return std::vector<bool>(layers, true);
        case RecurrentLayers::no_kv_heads: {
            STET_ASSIGN(const auto kv_heads,
                        keys.per_layer("attention.head_count_kv", layers, {}, kHeadsMax));
            std::vector<bool> recurrent(layers);
            for (std::uint32_t i = 0; i < layers; ++i) recurrent[i] = kv_heads[i] == 0;
            return recurrent;
        }
        case RecurrentLayers::interval:
            break;
    }
    STET_ASSIGN(auto flags, keys.flags("attention.recurrent_layers", layers));
    if (flags) return *std::move(flags);
    STET_ASSIGN(const auto interval, keys.uint_or("full_attention_interval",
                                                  row.full_attention_interval, 1, kLayersMax));
    std::vector<bool> recurrent(layers);
    for (std::uint32_t i = 0; i < layers; ++i) recurrent[i] = (i + 1) % interval != 0;
    return recurrent;
}

Result<LayerPlan> resolve_layer(const ResolveContext& context, bool is_recurrent,
                                std::size_t layer) {
    const Architecture& row = context.row;
    LayerPlan plan;
    plan.weights = layer;
    const bool beside = row.recurrent_layers == RecurrentLayers::beside;
    if (row.attention != Mixer::none && (!is_recurrent || beside)) {
        STET_ASSIGN(auto mixer, resolve_mixer(context, row.attention, layer));
        plan.mixers.push_back(std::move(mixer));
    }
    if (is_recurrent) {
        STET_ASSIGN(auto mixer, resolve_mixer(context, row.recurrent, layer));
        plan.mixers.push_back(std::move(mixer));
    }
    STET_ASSIGN(plan.ffn, resolve_ffn(context, layer));
    return plan;
}

Status resolve_globals(const Keys& keys, const Architecture& row, Config& config) {
    config.architecture = &row;
    config.name = std::string(keys.file().get_string("general.name").value_or(row.name));
    STET_ASSIGN(config.context_length, keys.uint("context_length", 1, kTokensMax));
    STET_ASSIGN(config.width, keys.uint("embedding_length", 1, kWidthMax));
    STET_ASSIGN(config.norm_epsilon, norm_epsilon(keys, row.norm));
    const gguf::Tensor* embedding = keys.file().find_tensor("token_embd.weight");
    if (embedding == nullptr || embedding->shape[1] == 0 || embedding->shape[1] > kVocabularyMax) {
        return Status(Code::corruption,
                      fmt::format("{}: tensor token_embd.weight is missing or of no sensible size",
                                  keys.file().path().string()));
    }
    config.vocabulary = static_cast<std::uint32_t>(embedding->shape[1]);
    if (row.embedding_scale == EmbeddingScale::sqrt_width) {
        config.embedding_scale = std::sqrt(static_cast<float>(config.width));
    }
    if (row.final_softcap >= 0.0F) {
        config.final_softcap = keys.number_or("final_logit_softcapping", row.final_softcap);
    }
    return {};
}

}  // namespace

Result<Config> resolve(const gguf::File& file, const StateTypes& types) {
    const auto architecture = file.get_string("general.architecture");
    if (!architecture) {
        return Status(Code::corruption,
                      fmt::format("{}: key general.architecture is missing", file.path().string()));
    }
    const Architecture* row = find_architecture(*architecture);
    if (row == nullptr) {
        return Status(
            Code::unimplemented,
            fmt::format("{}: architecture '{}' is not supported; nearest supported: {}",
                        file.path().string(), *architecture, nearest_architectures(*architecture)));
    }
    const Keys keys(file, *architecture);
    Config config;
    STET_TRY(resolve_globals(keys, *row, config));
    STET_ASSIGN(const auto layers, trunk_layers(keys));
    STET_ASSIGN(const auto recurrent, recurrent_layers(keys, *row, layers));
    SchemaBuilder schema(types, row->has_memory);
    const ResolveContext context{keys, *row, layers, config, schema};
    for (std::uint32_t i = 0; i < layers; ++i) {
        STET_ASSIGN(auto layer, resolve_layer(context, recurrent[i], i));
        config.layers.push_back(std::move(layer));
    }
    config.schema = schema.take_schema();
    config.step_rows = schema.take_step_rows();
    return config;
}

}  // namespace stet::model
