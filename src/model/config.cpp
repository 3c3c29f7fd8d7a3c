#include "model/config.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

#include "base/try.h"

namespace stet::model {
namespace {

constexpr std::uint32_t kLayersMax = 4096;
constexpr std::uint32_t kHeadsMax = 4096;
constexpr std::uint32_t kHeadSizeMax = 8192;
constexpr std::uint32_t kWidthMax = 1U << 20;
constexpr std::uint32_t kVocabularyMax = 1U << 24;

// Reads keys of one architecture ("llama.block_count") with their limits.
class Keys {
  public:
    Keys(const gguf::File& file, std::string_view prefix) : file_(&file), prefix_(prefix) {}

    std::string full(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

    Result<std::uint32_t> uint(std::string_view key, std::uint32_t min, std::uint32_t max) const {
        const auto value = file_->get_uint(full(key));
        if (!value) return missing(key);
        return limited(key, *value, min, max);
    }
    Result<std::uint32_t> uint_or(std::string_view key, std::uint32_t otherwise, std::uint32_t min,
                                  std::uint32_t max) const {
        const auto value = file_->get_uint(full(key));
        if (!value) return otherwise;
        return limited(key, *value, min, max);
    }
    float number_or(std::string_view key, float otherwise) const {
        const auto value = file_->get_float(full(key));
        return value && std::isfinite(*value) ? static_cast<float>(*value) : otherwise;
    }
    // A scalar fills all layers; an array has an entry for each.
    Result<std::vector<std::uint32_t>> per_layer(std::string_view key, std::uint32_t layers,
                                                 std::optional<std::vector<std::uint32_t>> otherwise,
                                                 std::uint32_t max) const {
        const std::string name = full(key);
        if (const auto* values = file_->get_ints(name)) {
            if (values->size() != layers) {
                return Status(Code::corruption, fmt::format("{}: {} has {} entries for {} layers",
                                                            file_->path().string(), name,
                                                            values->size(), layers));
            }
            std::vector<std::uint32_t> result;
            for (const std::int64_t value : *values) {
                if (value < 0) return out_of_range(key, std::to_string(value), 0, max);
                STET_ASSIGN(const auto checked, limited(key, static_cast<std::uint64_t>(value), 0, max));
                result.push_back(checked);
            }
            return result;
        }
        if (!file_->has(name) && otherwise) return *std::move(otherwise);
        STET_ASSIGN(const auto value, uint(key, 0, max));
        return std::vector<std::uint32_t>(layers, value);
    }

    Status missing(std::string_view key) const {
        return Status(Code::corruption, fmt::format("{}: key {} is missing", file_->path().string(),
                                                    full(key)));
    }
    Status out_of_range(std::string_view key, const std::string& value, std::uint32_t min,
                        std::uint32_t max) const {
        return Status(Code::corruption, fmt::format("{}: {} is {}, expected {} to {}",
                                                    file_->path().string(), full(key), value, min, max));
    }
    const gguf::File& file() const { return *file_; }

  private:
    Result<std::uint32_t> limited(std::string_view key, std::uint64_t value, std::uint32_t min,
                                  std::uint32_t max) const {
        if (value < min || value > max) return out_of_range(key, std::to_string(value), min, max);
        return static_cast<std::uint32_t>(value);
    }

    const gguf::File* file_;
    std::string_view prefix_;
};

// RoPE scaling rules of the reference: a missing type is linear, factor 0 or 1 is no scaling, and
// YaRN's attention factor is divided by what the rope kernel multiplies back.
Result<Rope> resolve_rope(const Keys& keys, const Architecture& row, std::uint32_t dimensions,
                          std::uint32_t context) {
    Rope rope;
    rope.kind = row.rope;
    rope.dimensions = dimensions;
    rope.base = keys.number_or("rope.freq_base", 10000.0F);
    STET_ASSIGN(rope.original_context,
                keys.uint_or("rope.scaling.original_context_length", context, 0,
                             std::numeric_limits<std::uint32_t>::max()));
    rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", 32.0F);
    rope.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", 1.0F);
    const auto type = keys.file().get_string(keys.full("rope.scaling.type")).value_or("linear");
    float factor = keys.number_or("rope.scaling.factor", keys.number_or("rope.scale_linear", 0.0F));
    if (type == "none" || factor == 0.0F) factor = 1.0F;
    if (type != "none" && type != "linear" && type != "yarn" && type != "longrope") {
        return Status(Code::unimplemented, fmt::format("{}: rope scaling type '{}' is not known",
                                                       keys.file().path().string(), type));
    }
    rope.frequency_scale = 1.0F / factor;
    const float extrapolation = keys.number_or("rope.scaling.yarn_ext_factor", -1.0F);
    rope.extrapolation_factor = extrapolation >= 0.0F ? extrapolation : (type == "yarn" ? 1.0F : 0.0F);
    rope.attention_factor = keys.number_or("rope.scaling.yarn_attn_factor", 1.0F);
    if (rope.extrapolation_factor != 0.0F) {
        const float log_factor = std::log(factor);
        const float multiplier = keys.number_or("rope.scaling.yarn_log_multiplier", 0.0F);
        const auto magnitude = [&](float weight) {
            return factor <= 1.0F ? 1.0F : 0.1F * weight * log_factor + 1.0F;
        };
        float attention = magnitude(1.0F);
        if (multiplier != 0.0F) attention = magnitude(1.0F) / magnitude(multiplier);
        rope.attention_factor *= attention / (1.0F + 0.1F * log_factor);
    }
    rope.attention_factor *= keys.number_or("rope.scaling.attn_factor", 1.0F);
    return rope;
}

// Which layers see only a window: an array of flags, a period, or the architecture's default.
Result<std::vector<bool>> resolve_window_layers(const Keys& keys, const Architecture& row,
                                                std::uint32_t layers) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    std::vector<bool> windowed(layers);
    if (const auto* flags = keys.file().get_ints(keys.full(kPattern))) {
        if (flags->size() != layers) {
            return Status(Code::corruption,
                          fmt::format("{}: {} has {} entries for {} layers",
                                      keys.file().path().string(), keys.full(kPattern), flags->size(),
                                      layers));
        }
        for (std::uint32_t i = 0; i < layers; ++i) windowed[i] = (*flags)[i] != 0;
        return windowed;
    }
    STET_ASSIGN(const auto period, keys.uint_or(kPattern, row.window_period, 0, kLayersMax));
    for (std::uint32_t i = 0; i < layers; ++i) {
        windowed[i] = period == 0 ? false : i % period != period - 1;
    }
    return windowed;
}

memory::Plane plane(std::string name, std::size_t layer, memory::ElementType type,
                    std::uint32_t elements) {
    return {std::move(name), static_cast<std::int32_t>(layer), type, elements,
            memory::row_bytes(type, elements)};
}

// One group for layers that see everything, one for those that see a window; each has k and v of its
// layers in order.
Status build_schema(const StateTypes& types, Config& config) {
    memory::Group full{"attention", memory::Lifetime::tokens, 0, {}};
    memory::Group window{"window", memory::Lifetime::window, 0, {}};
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        LayerPlan& layer = config.layers[i];
        const bool windowed = layer.window_kind != exec::Window::none;
        memory::Group& group = windowed ? window : full;
        if (windowed) window.parameter = layer.window;
        layer.group = windowed ? 1 : 0;
        layer.k_plane = group.planes.size();
        layer.v_plane = group.planes.size() + 1;
        group.planes.push_back(plane("k", i, types.k, layer.kv_heads * layer.key_size));
        group.planes.push_back(plane("v", i, types.v, layer.kv_heads * layer.value_size));
        for (std::size_t p : {layer.k_plane, layer.v_plane}) {
            if (group.planes[p].row_bytes == 0) {
                return Status(Code::invalid_argument,
                              fmt::format("layer {}: {} rows of {} elements can't be stored as {}", i,
                                          group.planes[p].name, group.planes[p].elements,
                                          memory::element_type_name(group.planes[p].type)));
            }
        }
    }
    // Only groups that have layers; plans follow.
    const bool has_full = !full.planes.empty();
    if (has_full) config.schema.groups.push_back(std::move(full));
    if (!window.planes.empty()) config.schema.groups.push_back(std::move(window));
    if (!has_full) {
        for (LayerPlan& layer : config.layers) layer.group = 0;
    }
    return {};
}

Status resolve_layers(const Keys& keys, const Architecture& row, std::uint32_t layers,
                      Config& config) {
    STET_ASSIGN(const auto heads, keys.per_layer("attention.head_count", layers, {}, kHeadsMax));
    STET_ASSIGN(const auto kv_heads,
                keys.per_layer("attention.head_count_kv", layers, heads, kHeadsMax));
    STET_ASSIGN(const auto ffn, keys.per_layer("feed_forward_length", layers,
                                               std::vector<std::uint32_t>(layers, 0), kWidthMax));
    if (heads[0] == 0) return keys.missing("attention.head_count");
    const std::uint32_t head_size = config.width / heads[0];
    STET_ASSIGN(const auto key_size, keys.uint_or("attention.key_length", head_size, 1, kHeadSizeMax));
    STET_ASSIGN(const auto value_size,
                keys.uint_or("attention.value_length", head_size, 1, kHeadSizeMax));
    STET_ASSIGN(const auto rotary, keys.uint_or("rope.dimension_count", key_size, 0, kHeadSizeMax));
    STET_ASSIGN(const auto window, keys.uint_or("attention.sliding_window", row.window_default, 0,
                                                std::numeric_limits<std::uint32_t>::max()));
    STET_ASSIGN(const auto windowed, resolve_window_layers(keys, row, layers));
    STET_ASSIGN(const Rope rope, resolve_rope(keys, row, rotary, config.context_length));
    const float base = row.window_rope_base != 0.0F ? row.window_rope_base : rope.base;
    if (rotary > key_size || rotary % 2 != 0) {
        return keys.out_of_range("rope.dimension_count", std::to_string(rotary), 0, key_size);
    }
    for (std::uint32_t i = 0; i < layers; ++i) {
        if (kv_heads[i] == 0 || heads[i] % kv_heads[i] != 0) {
            return Status(Code::corruption,
                          fmt::format("{}: layer {} has {} heads over {} key/value heads",
                                      keys.file().path().string(), i, heads[i], kv_heads[i]));
        }
        LayerPlan layer{.heads = heads[i], .kv_heads = kv_heads[i], .key_size = key_size,
                        .value_size = value_size, .ffn_size = ffn[i], .rope = rope};
        if (row.window_period != 0 && window != 0 && windowed[i]) {
            layer.window_kind = exec::Window::sliding;
            layer.window = window;
            layer.rope.base = keys.number_or("rope.freq_base_swa", base);
            // Scaling stretches the layers that see everything; Gemma 3's windows keep theirs.
            if (row.window_rope_base != 0.0F) layer.rope.frequency_scale = 1.0F;
        }
        config.layers.push_back(layer);
    }
    return {};
}

}  // namespace

Result<Config> resolve(const gguf::File& file, const StateTypes& types) {
    const auto architecture = file.get_string("general.architecture");
    if (!architecture) {
        return Status(Code::corruption, fmt::format("{}: key general.architecture is missing",
                                                    file.path().string()));
    }
    const Architecture* row = find_architecture(*architecture);
    if (row == nullptr) {
        return Status(Code::unimplemented,
                      fmt::format("{}: architecture '{}' is not supported; nearest supported: {}",
                                  file.path().string(), *architecture,
                                  nearest_architectures(*architecture)));
    }
    Config config;
    config.architecture = row;
    config.name = std::string(file.get_string("general.name").value_or(*architecture));
    const Keys keys(file, *architecture);
    STET_ASSIGN(config.context_length, keys.uint("context_length", 1,
                                                 std::numeric_limits<std::int32_t>::max()));
    STET_ASSIGN(config.width, keys.uint("embedding_length", 1, kWidthMax));
    STET_ASSIGN(const auto layers, keys.uint("block_count", 1, kLayersMax));
    const bool rms = row->norm == NormKind::rms;
    config.norm_epsilon = keys.number_or(
        rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", -1.0F);
    if (config.norm_epsilon < 0.0F) {
        return keys.missing(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon");
    }
    const gguf::Tensor* embedding = file.find_tensor("token_embd.weight");
    if (embedding == nullptr || embedding->shape[1] == 0 || embedding->shape[1] > kVocabularyMax) {
        return Status(Code::corruption,
                      fmt::format("{}: tensor token_embd.weight is missing or of no sensible size",
                                  file.path().string()));
    }
    config.vocabulary = static_cast<std::uint32_t>(embedding->shape[1]);
    STET_TRY(resolve_layers(keys, *row, layers, config));

    const LayerPlan& first = config.layers.front();
    if (row->embedding_scale == EmbeddingScale::sqrt_width) {
        config.embedding_scale = std::sqrt(static_cast<float>(config.width));
    }
    const std::uint32_t scaled_by = row->scale_by_width_layers == layers
                                        ? config.width / first.heads
                                        : first.key_size;
    config.attention_scale = 1.0F / std::sqrt(static_cast<float>(scaled_by));
    if (row->attention_softcap) {
        config.attention_softcap = keys.number_or("attn_logit_softcapping", 50.0F);
    }
    if (row->final_softcap >= 0.0F) {
        config.final_softcap = keys.number_or("final_logit_softcapping", row->final_softcap);
    }
    if (row->query_temperature) {
        config.query_temperature_scale = keys.number_or("attention.temperature_scale", 0.0F);
        config.query_temperature_length = first.rope.original_context;
        if (config.query_temperature_scale != 0.0F && config.query_temperature_length == 0) {
            return keys.missing("rope.scaling.original_context_length");
        }
    }
    STET_TRY(build_schema(types, config));
    return config;
}

}  // namespace stet::model
