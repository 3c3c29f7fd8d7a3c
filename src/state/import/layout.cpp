#include "state/import/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/try.h"

namespace stet::state::llama {
namespace {

using memory::Group;
using memory::Lifetime;
using memory::Schema;

constexpr std::uint32_t kCsaRatio = 4;
constexpr std::uint32_t kHcaRatio = 128;

bool has_group(const Schema& schema, std::string_view name) {
    return std::ranges::any_of(schema.groups, [&](const Group& g) { return g.name == name; });
}

Status unknown(const Group& group, std::string_view plane) {
    return Status(Code::unimplemented,
                  fmt::format("llama.cpp state has no part for memory group '{}', plane '{}'",
                              group.name, plane));
}

// Models whose indexer keys (and no others) are always rotated.
bool rotates_indexer(std::string_view architecture) {
    constexpr std::array<std::string_view, 4> kNames = {"deepseek32", "deepseek4", "glm-dsa",
                                                        "dots3note"};
    return std::ranges::find(kNames, architecture) != kNames.end();
}

// The k and v planes of all groups named `name`, by layer.
Result<std::vector<CellLayer>> cell_layers(const Schema& schema, std::string_view name) {
    std::map<std::int32_t, CellLayer> layers;
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        if (group.name != name) continue;
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            const memory::Plane& plane = group.planes[p];
            CellLayer& layer = layers[plane.layer];
            layer.layer = plane.layer;
            if (plane.name == "v") {
                if (layer.v) return unknown(group, plane.name);
                layer.v = PlaneRef{g, p};
            } else if (plane.name == "k" && layer.k.empty()) {
                layer.k.push_back({g, p});
            } else if (plane.name == "gate" && layer.k.size() == 1) {
                layer.k.push_back({g, p});
            } else {
                return unknown(group, plane.name);
            }
        }
    }
    std::vector<CellLayer> list;
    for (auto& [index, layer] : layers) {
        if (layer.k.empty()) {
            return Status(Code::unimplemented,
                          fmt::format("layer {} of memory group '{}' has no keys", index, name));
        }
        list.push_back(std::move(layer));
    }
    return list;
}

Result<std::vector<RecurrentLayer>> recurrent_layers(const Schema& schema) {
    std::map<std::int32_t, RecurrentLayer> layers;
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        if (group.name != "recurrent") continue;
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            const memory::Plane& plane = group.planes[p];
            RecurrentLayer& layer = layers[plane.layer];
            layer.layer = plane.layer;
            auto& slot = plane.name == "r" ? layer.r : plane.name == "s" ? layer.s : layer.p;
            if (slot || (plane.name != "r" && plane.name != "s" && plane.name != "p")) {
                return unknown(group, plane.name);
            }
            slot = PlaneRef{g, p};
        }
    }
    std::vector<RecurrentLayer> list;
    for (auto& [index, layer] : layers) list.push_back(std::move(layer));
    return list;
}

// The pooled key stands behind the token's own in the same row.
Status add_pooled(const Schema& schema, std::vector<CellLayer>& indexer) {
    STET_ASSIGN(const auto pooled, cell_layers(schema, "pooled"));
    for (const CellLayer& layer : pooled) {
        const auto to = std::ranges::find(indexer, layer.layer, &CellLayer::layer);
        if (to == indexer.end() || layer.v) {
            return Status(Code::unimplemented,
                          fmt::format("layer {} has pooled keys, but no indexer", layer.layer));
        }
        to->k.push_back(layer.k[0]);
    }
    return {};
}

Status add_compressors(const Schema& schema, Layout& layout) {
    struct Name {
        std::string_view part, group;
        std::uint32_t ratio;
    };
    constexpr std::array kNames = {Name{"csa", "compressed4", kCsaRatio},
                                   Name{"hca", "compressed128", kHcaRatio},
                                   Name{"lid", "indexer4", kCsaRatio}};
    for (const Name& name : kNames) {
        STET_ASSIGN(auto layers, cell_layers(schema, name.group));
        layout.compressed.push_back({name.part, name.ratio, std::move(layers)});
        std::map<std::int32_t, std::array<std::optional<PlaneRef>, 2>> states;
        for (std::size_t g = 0; g < schema.groups.size(); ++g) {
            const Group& group = schema.groups[g];
            if (group.name != "compressor") continue;
            for (std::size_t p = 0; p < group.planes.size(); ++p) {
                const memory::Plane& plane = group.planes[p];
                if (!plane.name.starts_with(name.part)) continue;
                const std::string_view rest = std::string_view(plane.name).substr(name.part.size());
                if (rest != "_kv" && rest != "_score") return unknown(group, plane.name);
                states[plane.layer][rest == "_kv" ? 0 : 1] = PlaneRef{g, p};
            }
        }
        CompressorLayout compressor{name.part, name.ratio, {}};
        for (const auto& [layer, pair] : states) {
            if (!pair[0] || !pair[1]) {
                return Status(Code::unimplemented,
                              fmt::format("layer {}: half a compressor '{}'", layer, name.part));
            }
            compressor.layers.push_back({layer, *pair[0], *pair[1]});
        }
        layout.compressors.push_back(std::move(compressor));
    }
    return {};
}

}  // namespace

Result<Layout> layout_of(const Schema& schema, const ImportTarget& target) {
    constexpr std::array<std::string_view, 9> kKnown = {"attention",     "window",   "indexer",
                                                        "recurrent",     "pooled",   "compressed4",
                                                        "compressed128", "indexer4", "compressor"};
    for (const Group& group : schema.groups) {
        if (std::ranges::find(kKnown, group.name) == kKnown.end()) return unknown(group, "*");
    }
    Layout layout;
    STET_ASSIGN(auto base, cell_layers(schema, "attention"));
    STET_ASSIGN(auto window, cell_layers(schema, "window"));
    STET_ASSIGN(auto indexer, cell_layers(schema, "indexer"));
    STET_ASSIGN(layout.recurrent, recurrent_layers(schema));
    STET_TRY(add_pooled(schema, indexer));
    layout.is_dsv4 = has_group(schema, "compressor");
    layout.has_recurrent = !layout.recurrent.empty();
    const bool has_window = !window.empty() || layout.is_dsv4;
    const bool has_v =
        std::ranges::any_of(base, [](const CellLayer& l) { return l.v.has_value(); });
    if (!base.empty() || has_window || !indexer.empty()) {
        layout.cells.push_back({"attention", std::move(base)});
    }
    layout.may_begin_empty = layout.cells.empty() && layout.has_recurrent;
    layout.may_have_empty_window = !has_window && !layout.cells.empty() && indexer.empty();
    CellLayout swa{.name = "window", .layers = std::move(window), .is_window = true};
    CellLayout idx{.name = "indexer", .layers = std::move(indexer)};
    // Block-sparse attention caches values for its indexer too; the others don't.
    idx.has_ignored_v = has_v && !layout.has_recurrent;
    idx.is_rotated = rotates_indexer(target.architecture);
    const bool has_indexer = !idx.layers.empty();
    if (has_indexer && !layout.has_recurrent) layout.cells.push_back(std::move(idx));
    if (has_window) layout.cells.push_back(std::move(swa));
    layout.recurrent_after = layout.cells.size();
    if (has_indexer && layout.has_recurrent) layout.cells.push_back(std::move(idx));
    if (layout.is_dsv4) STET_TRY(add_compressors(schema, layout));
    return layout;
}

}  // namespace stet::state::llama
