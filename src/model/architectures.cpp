#include "model/architectures.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace stet::model {
namespace {

constexpr std::array kArchitectures = {
    Architecture{.name = "llama", .rope = RopeKind::norm, .expert_norm = ExpertNorm::yes},
    Architecture{.name = "mistral3",
                 .rope = RopeKind::norm,
                 .query_temperature = true,
                 .expert_norm = ExpertNorm::yes},
    Architecture{.name = "qwen2", .rope = RopeKind::neox},
    Architecture{.name = "qwen3", .rope = RopeKind::neox},
    Architecture{.name = "gemma2",
                 .rope = RopeKind::neox,
                 .activation = Activation::gelu,
                 .embedding_scale = EmbeddingScale::sqrt_width,
                 .attention_softcap = true,
                 .final_softcap = 30.0F,
                 .window_default = 4096,
                 .window_period = 2,
                 .scale_by_width_layers = 46},
    Architecture{.name = "gemma3",
                 .rope = RopeKind::neox,
                 .activation = Activation::gelu,
                 .embedding_scale = EmbeddingScale::sqrt_width,
                 .final_softcap = 0.0F,
                 .window_period = 6,
                 .window_rope_base = 10000.0F,
                 .scale_by_width_layers = 62},
};

// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

}  // namespace

std::span<const Architecture> architectures() {
    return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
    const auto* found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                     [&](const Architecture& row) { return row.name == name; });
    return found == kArchitectures.end() ? nullptr : found;
}

std::string nearest_architectures(std::string_view name) {
    constexpr std::size_t kShown = 3;
    std::vector<std::string_view> names;
    for (const Architecture& row : kArchitectures) names.push_back(row.name);
    std::stable_sort(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
        return distance(name, a) < distance(name, b);
    });
    names.resize(std::min(names.size(), kShown));
    std::string text;
    for (const std::string_view near : names) {
        if (!text.empty()) text += ", ";
        text += near;
    }
    return text;
}

}  // namespace stet::model
