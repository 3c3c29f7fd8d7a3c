#include "model/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/quote.h"
#include "base/try.h"

namespace stet::model {
namespace {

// How much YaRN stretches the scores, less what the rope kernel multiplies in by itself.
float yarn_attention(const Keys& keys, float factor) {
    const float log_factor = std::log(factor);
    const float multiplier = keys.number_or("rope.scaling.yarn_log_multiplier", 0.0F);
    float attention = yarn_magnitude(factor, 1.0F);
    if (multiplier != 0.0F) attention /= yarn_magnitude(factor, multiplier);
    return attention / (1.0F + 0.1F * log_factor);
}

Status read_sections(const Keys& keys, Rope& rope) {
    const auto* sections = keys.file().get_ints(keys.full("rope.dimension_sections"));
    if (sections == nullptr) return {};
    if (sections->size() > rope.sections.size()) {
        return Status(Code::corruption,
                      fmt::format("{}: {} has {} entries, expected at most {}",
                                  keys.file().path().string(), keys.full("rope.dimension_sections"),
                                  sections->size(), rope.sections.size()));
    }
    for (std::size_t i = 0; i < sections->size(); ++i) {
        const std::int64_t value = (*sections)[i];
        if (value < 0 || value > kHeadSizeMax) {
            return keys.out_of_range("rope.dimension_sections", std::to_string(value), 0,
                                     kHeadSizeMax);
        }
        rope.sections[i] = static_cast<int>(value);
    }
    return {};
}

Status check_factors(const Keys& keys, const Rope& rope, std::uint32_t context) {
    const std::string name = rope_factors_tensor(keys, context);
    if (name.empty() || rope.kind == RopeKind::none) return {};
    const std::uint64_t found = keys.file().find_tensor(name)->shape[0];
    if (found >= rope.dimensions / 2) return {};
    return Status(Code::corruption,
                  fmt::format("{}: tensor {} has {} elements, expected at least {}",
                              keys.file().path().string(), name, found, rope.dimensions / 2));
}

}  // namespace

float yarn_magnitude(float factor, float weight) {
    return factor <= 1.0F ? 1.0F : 0.1F * weight * std::log(factor) + 1.0F;
}

Result<Rope> resolve_rope(const Keys& keys, RopeKind kind, std::uint32_t dimensions,
                          std::uint32_t context) {
    Rope rope;
    rope.kind = kind;
    rope.dimensions = dimensions;
    rope.base = keys.number_or("rope.freq_base", 10000.0F);
    STET_ASSIGN(rope.original_context, keys.uint_or("rope.scaling.original_context_length", context,
                                                    0, std::numeric_limits<std::uint32_t>::max()));
    rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", 32.0F);
    rope.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", 1.0F);
    const auto type = keys.file().get_string(keys.full("rope.scaling.type")).value_or("linear");
    float factor = keys.number_or("rope.scaling.factor", keys.number_or("rope.scale_linear", 0.0F));
    if (type == "none" || factor == 0.0F) factor = 1.0F;
    if (type != "none" && type != "linear" && type != "yarn" && type != "longrope") {
        return Status(Code::unimplemented,
                      fmt::format("{}: rope scaling type {} is not known",
                                  keys.file().path().string(), quote_name(type)));
    }
    rope.frequency_scale = 1.0F / factor;
    const float extrapolation = keys.number_or("rope.scaling.yarn_ext_factor", -1.0F);
    rope.extrapolation_factor =
        extrapolation >= 0.0F ? extrapolation : (type == "yarn" ? 1.0F : 0.0F);
    rope.attention_factor = keys.number_or("rope.scaling.yarn_attn_factor", 1.0F);
    if (rope.extrapolation_factor != 0.0F) rope.attention_factor *= yarn_attention(keys, factor);
    rope.attention_factor *= keys.number_or("rope.scaling.attn_factor", 1.0F);
    STET_TRY(read_sections(keys, rope));
    STET_TRY(check_factors(keys, rope, context));
    return rope;
}

std::string rope_factors_tensor(const Keys& keys, std::uint32_t context) {
    if (keys.file().find_tensor("rope_freqs.weight") != nullptr) return "rope_freqs.weight";
    const std::uint64_t original =
        keys.file().get_uint(keys.full("rope.scaling.original_context_length")).value_or(context);
    std::string name =
        context > original ? "rope_factors_long.weight" : "rope_factors_short.weight";
    return keys.file().find_tensor(name) != nullptr ? name : "";
}

}  // namespace stet::model
