#include "server/sampling.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace stet::server {
namespace {

constexpr std::size_t kStopsMax = 64;
constexpr std::size_t kBiasesMax = 4096;

// A text that is one token, or an id written out.
void add_bias(const Context& context, Fields& fields, const Json& key, const Json& value,
              engine::SamplerOptions& sampling) {
    float bias = 0.0F;
    if (value.is_number()) {
        bias = value.get<float>();
    } else if (value == false) {
        bias = -std::numeric_limits<float>::infinity();
    } else {
        return fields.fail("logit_bias", "made of ids and numbers");
    }
    if (std::isnan(bias)) return fields.fail("logit_bias", "made of ids and numbers");
    if (key.is_number_integer()) {
        const auto id = key.get<std::int64_t>();
        if (id >= 0 && id < context.engine->vocabulary()) {
            sampling.logit_bias.emplace_back(static_cast<Token>(id), bias);
        }
        return;
    }
    if (!key.is_string()) return fields.fail("logit_bias", "made of ids and numbers");
    const std::string text = key.get<std::string>();
    Token id = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), id);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) {
        sampling.logit_bias.emplace_back(id, bias);
        return;
    }
    const auto tokens = context.tokenizer().encode(text, {.add_special = false});
    if (!tokens) return;
    for (const Token token : *tokens) sampling.logit_bias.emplace_back(token, bias);
}

void read_bias(const Context& context, Fields& fields, engine::SamplerOptions& sampling) {
    const Json* bias = fields.find("logit_bias");
    if (bias == nullptr) return;
    if (bias->size() > kBiasesMax) return fields.fail("logit_bias", "smaller");
    if (bias->is_object()) {  // {"123": -5}
        for (const auto& [key, value] : bias->items()) {
            add_bias(context, fields, Json(key), value, sampling);
        }
    } else if (bias->is_array()) {  // [[123, -5], ["text", false]]
        for (const Json& pair : *bias) {
            if (!pair.is_array() || pair.size() != 2) {
                return fields.fail("logit_bias", "made of ids and numbers");
            }
            add_bias(context, fields, pair[0], pair[1], sampling);
        }
    } else {
        fields.fail("logit_bias", "an object or a list");
    }
}

}  // namespace

void read_sampling(const Context& context, Fields& fields, engine::GenerateOptions& options) {
    engine::SamplerOptions& sampling = options.sampling;
    fields.number("temperature", sampling.temperature, 0.0F, 100.0F);
    fields.number("top_p", sampling.top_p, 0.0F, 1.0F);
    fields.number("min_p", sampling.min_p, 0.0F, 1.0F);
    fields.number("repeat_penalty", sampling.repeat_penalty, 0.01F, 100.0F);
    fields.number("presence_penalty", sampling.presence_penalty, -100.0F, 100.0F);
    fields.number("frequency_penalty", sampling.frequency_penalty, -100.0F, 100.0F);
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    std::int64_t top_k = sampling.top_k;
    fields.integer("top_k", top_k, -1, kMax);
    sampling.top_k = static_cast<std::uint32_t>(std::max<std::int64_t>(0, top_k));
    std::int64_t window = sampling.penalty_window;
    fields.integer("repeat_last_n", window, -1, 65536);
    sampling.penalty_window = window < 0 ? 65536U : static_cast<std::uint32_t>(window);
    std::int64_t seed = -1;
    fields.integer("seed", seed, std::numeric_limits<std::int64_t>::min(),
                   std::numeric_limits<std::int64_t>::max());
    // -1 asks for a fresh one; 0 is a seed like any other, which the sampler knows as "fresh".
    if (seed != -1) {
        sampling.seed = seed == 0 ? 0x9E3779B97F4A7C15U : static_cast<std::uint64_t>(seed);
    }
    fields.texts("stop", options.stop, kStopsMax);
    std::erase(options.stop, "");
    fields.flag("ignore_eos", options.ignore_end);
    read_bias(context, fields, sampling);
}

void read_tokens_max(const Context& context, Fields& fields,
                     std::initializer_list<std::string_view> names,
                     engine::GenerateOptions& options) {
    const std::int64_t server_max = context.settings.predict;
    std::int64_t count = server_max;
    for (const std::string_view name : names) {
        fields.integer(name, count, -1, std::numeric_limits<std::int32_t>::max());
    }
    if (server_max > 0 && (count < 0 || count > server_max)) count = server_max;
    options.prompt_only = count == 0;
    options.tokens_max = count < 0 ? 0 : static_cast<std::uint64_t>(count);
}

}  // namespace stet::server
