#include "model/config.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/quote.h"
#include "base/try.h"
#include "model/hyper.h"
#include "model/keys.h"

namespace stet::model {
namespace {

// Trailing layers that only predict further tokens are no part of the trunk.
Result<std::uint32_t> trunk_layers(const Keys& keys) {
    STET_ASSIGN(const auto layers, keys.uint("block_count", 1, kLayersMax));
    STET_ASSIGN(const auto prediction, keys.uint_or("nextn_predict_layers", 0, 0, layers - 1));
    return layers - prediction;
}

Status resolve_norm(const Keys& keys, const Architecture& row, Config& config) {
    constexpr const char* kRms = "attention.layer_norm_rms_epsilon";
    constexpr const char* kLayer = "attention.layer_norm_epsilon";
    config.norm = row.norm;
    if (row.norm == NormKind::by_key) {
        config.norm = keys.number_or(kRms, 0.0F) != 0.0F ? NormKind::rms : NormKind::layer;
    }
    const bool is_rms = config.norm == NormKind::rms;
    // Nemotron-H: either key.
    const bool by_other = is_rms && !keys.has(kRms) && keys.has(kLayer);
    STET_ASSIGN(config.norm_epsilon, keys.number(is_rms && !by_other ? kRms : kLayer));
    return {};
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

// DeciLM: a layer may have no heads, or a matrix instead of attention.
Result<Mixer> attention_mixer(const ResolveContext& context, std::size_t layer) {
    if (context.row.blocks != Blocks::some) return context.row.attention;
    const Keys& keys = context.keys;
    STET_ASSIGN(const auto heads,
                keys.per_layer("attention.head_count", context.layers, {}, kHeadsMax));
    STET_ASSIGN(const auto kv_heads,
                keys.per_layer("attention.head_count_kv", context.layers, heads, kHeadsMax));
    if (heads[layer] == 0) return Mixer::none;
    return kv_heads[layer] == 0 ? Mixer::projection : context.row.attention;
}

bool is_parallel(const ResolveContext& context, std::size_t layer) {
    switch (context.row.residual) {
        case Residual::sequential:
        case Residual::normed:
            break;
        case Residual::parallel:
            return true;
        case Residual::by_tensor:
            return context.keys.file().find_tensor(fmt::format("blk.{}.ffn_norm.weight", layer)) ==
                   nullptr;
        case Residual::by_key:
            return context.keys.flag_or("use_parallel_residual", false);
    }
    return false;
}

Result<bool> has_mixer(const ResolveContext& context, std::size_t layer) {
    if (context.row.blocks != Blocks::either) return true;
    STET_ASSIGN(const auto sizes,
                context.keys.per_layer("feed_forward_length", context.layers, {}, kWidthMax));
    return sizes[layer] == 0;
}

Status resolve_mixers(const ResolveContext& context, bool is_recurrent, std::size_t layer,
                      LayerPlan& plan) {
    const Architecture& row = context.row;
    STET_ASSIGN(const bool mixes, has_mixer(context, layer));
    if (!mixes) return {};
    const bool beside = row.recurrent_layers == RecurrentLayers::beside;
    STET_ASSIGN(const Mixer attention, attention_mixer(context, layer));
    if (attention != Mixer::none && (!is_recurrent || beside)) {
        STET_ASSIGN(auto mixer, resolve_mixer(context, attention, layer));
        plan.mixers.push_back(std::move(mixer));
    }
    if (is_recurrent) {
        STET_ASSIGN(auto mixer, resolve_mixer(context, row.recurrent, layer));
        plan.mixers.push_back(std::move(mixer));
    }
    return {};
}

Result<LayerPlan> resolve_layer(const ResolveContext& context, bool is_recurrent,
                                std::size_t layer) {
    LayerPlan plan;
    plan.weights = layer;
    const std::size_t planes = context.schema.plane_count();
    STET_ASSIGN(plan.ngram, resolve_ngram(context, layer, is_recurrent));
    STET_TRY(resolve_mixers(context, is_recurrent, layer, plan));
    STET_ASSIGN(plan.ffn, resolve_ffn(context, layer));
    plan.has_rows = context.schema.plane_count() != planes;
    plan.is_parallel = is_parallel(context, layer);
    return plan;
}

// Layers in the order in which they run, by blk.N.
Result<std::vector<std::size_t>> run_order(const Keys& keys, const Architecture& row,
                                           std::uint32_t layers, Config& config) {
    std::vector<std::size_t> order;
    if (row.loop == Loop::hrm) {
        STET_ASSIGN(const auto size, keys.uint("hrm.layers_per_stack", 1, layers));
        STET_ASSIGN(const auto high, keys.uint("hrm.h_cycles", 1, layers));
        STET_ASSIGN(const auto low, keys.uint("hrm.l_cycles", 1, layers));
        config.stacks = {size, low};
        if (std::uint64_t{size} * high * (low + 1) != layers) {
            return Status(Code::corruption,
                          fmt::format("{}: {} layers, expected {} x {} x {}",
                                      keys.file().path().string(), layers, size, high, low + 1));
        }
        for (std::uint32_t i = 0; i < layers; ++i) {
            const bool is_high = i / size % (low + 1) == low;
            order.push_back(i % size + (is_high ? size : 0));
        }
        return order;
    }
    std::uint32_t loops = 1;
    if (row.loop == Loop::repeat) {
        STET_ASSIGN(loops, keys.uint_or("num_loops", 1, 1, kLayersMax / layers));
    }
    for (std::uint32_t i = 0; i < loops * layers; ++i) order.push_back(i % layers);
    return order;
}

Status resolve_scales(const Keys& keys, const Architecture& row, std::uint32_t layers,
                      Config& config) {
    const auto width = static_cast<float>(config.width);
    const auto scale_or = [&](const char* key, float otherwise) {
        return row.scale_keys ? keys.number_or(key, otherwise) : otherwise;
    };
    if (row.embedding_scale == EmbeddingScale::sqrt_width)
        config.embedding_scale = std::sqrt(width);
    if (row.embedding_scale == EmbeddingScale::key) {
        const float scale = scale_or("embedding_scale", row.embedding_scale_default);
        if (scale != 0.0F) config.embedding_scale = scale;
    }
    if (row.residual_scale) {
        const float scale = scale_or(
            "residual_scale", row.residual_scale_default / std::sqrt(static_cast<float>(layers)));
        if (scale != 0.0F) config.residual_scale = scale;
    }
    if (row.logit_scale != LogitScale::none) {
        const float scale =
            scale_or("logit_scale", row.logit_scale_default + row.logit_scale_over_width / width);
        if (scale != 0.0F) {
            config.logit_scale = row.logit_scale == LogitScale::divide ? 1.0F / scale : scale;
        }
    }
    if (row.final_softcap >= 0.0F) {
        config.final_softcap = keys.number_or("final_logit_softcapping", row.final_softcap);
    }
    return {};
}

// Gemma 3n. Older files leave these keys out.
Status resolve_altup(const Keys& keys, Config& config) {
    constexpr std::uint32_t kStreamsMax = 8;
    STET_ASSIGN(config.altup_streams, keys.uint_or("altup.num_inputs", 4, 2, kStreamsMax));
    STET_ASSIGN(config.layer_embedding,
                keys.uint_or("embedding_length_per_layer_input", 256, 1, kWidthMax));
    STET_ASSIGN(const auto active, keys.uint_or("altup.active_idx", 0, 0, kStreamsMax));
    if (active == 0) return {};
    return Status(Code::unimplemented,
                  fmt::format("{}: {} is {}, only 0 is supported", keys.file().path().string(),
                              keys.full("altup.active_idx"), active));
}

Status resolve_globals(const Keys& keys, const Architecture& row, Config& config) {
    config.architecture = &row;
    config.name = std::string(keys.file().get_string("general.name").value_or(row.name));
    STET_ASSIGN(config.context_length, keys.uint("context_length", 1, kTokensMax));
    STET_ASSIGN(config.width, keys.uint("embedding_length", 1, kWidthMax));
    STET_TRY(resolve_norm(keys, row, config));
    const gguf::Tensor* embedding = keys.file().find_tensor(embedding_tensor(keys.file()));
    if (embedding == nullptr || embedding->shape[1] == 0 || embedding->shape[1] > kVocabularyMax) {
        return Status(Code::corruption,
                      fmt::format("{}: tensor token_embd.weight is missing or of no sensible size",
                                  keys.file().path().string()));
    }
    config.vocabulary = static_cast<std::uint32_t>(embedding->shape[1]);
    config.rope_factors = rope_factors_tensor(keys, config.context_length);
    if (row.position_table || keys.file().find_tensor("position_embd.weight") != nullptr) {
        config.position_limit = config.context_length;
    }
    if (row.layer_embeddings) {
        STET_ASSIGN(config.layer_embedding,
                    keys.uint("embedding_length_per_layer_input", 0, kWidthMax));
    }
    STET_ASSIGN(config.hyper, resolve_hyper(keys, row));
    if (row.residual_mix) {
        STET_ASSIGN(config.residual_block, keys.uint("attn_res.block_size", 0, kLayersMax));
    }
    return row.altup ? resolve_altup(keys, config) : Status();
}

}  // namespace

std::string embedding_tensor(const gguf::File& file) {
    const std::string name = "token_embd.weight";
    return file.find_tensor(name) != nullptr ? name : "output.weight";
}

Result<Config> resolve(const gguf::File& file, const StateTypes& types) {
    const auto architecture = file.get_string("general.architecture");
    if (!architecture) {
        return Status(Code::corruption,
                      fmt::format("{}: key general.architecture is missing", file.path().string()));
    }
    const Architecture* row = find_architecture(*architecture);
    if (row == nullptr) {
        return Status(Code::unimplemented,
                      fmt::format("{}: architecture {} {}; nearest supported: {}",
                                  file.path().string(), quote_name(*architecture),
                                  is_encoder_alone(*architecture)
                                      ? "is an encoder alone, and those are not supported yet"
                                      : "is not supported",
                                  nearest_architectures(*architecture)));
    }
    const Keys keys(file, *architecture);
    Config config;
    STET_TRY(resolve_globals(keys, *row, config));
    STET_ASSIGN(const auto layers, trunk_layers(keys));
    STET_ASSIGN(const auto recurrent, recurrent_layers(keys, *row, layers));
    STET_TRY(resolve_scales(keys, *row, layers, config));
    STET_ASSIGN(const auto order, run_order(keys, *row, layers, config));
    const bool norm_between =
        row->loop == Loop::repeat && !keys.flag_or("skip_loop_final_norm", false);
    // RWKV-6: x halves every so many layers, as f16 would need it.
    STET_ASSIGN(const auto rescaled, row->rescales
                                         ? keys.uint_or("rescale_every_n_layers", 0, 0, kLayersMax)
                                         : Result<std::uint32_t>(0U));
    SchemaBuilder schema(types, row->has_memory);
    if (row->encoder_decoder) STET_TRY(resolve_encoder_decoder(keys, schema, config));
    for (std::size_t slot = 0; !row->encoder_decoder && slot < order.size(); ++slot) {
        const ResolveContext context{keys, *row, layers, slot, config, schema};
        STET_ASSIGN(auto layer, resolve_layer(context, recurrent[order[slot]], order[slot]));
        if (rescaled != 0 && (slot + 1) % rescaled == 0) layer.output_scale = 0.5F;
        layer.norm_after = norm_between && slot % layers == layers - 1 && slot + 1 < order.size();
        config.layers.push_back(std::move(layer));
    }
    config.schema = schema.take_schema();
    config.step_rows = schema.take_step_rows();
    return config;
}

}  // namespace stet::model
