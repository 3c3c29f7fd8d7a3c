#include "model/schema_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "exec/graph.h"

namespace stet::model {

Result<PlaneSlot> SchemaBuilder::add(std::string_view name, memory::Lifetime lifetime,
                                     std::uint32_t parameter, std::string_view plane,
                                     std::size_t layer, memory::ElementType type,
                                     std::uint32_t elements) {
    const std::uint64_t row_bytes = memory::row_bytes(type, elements);
    if (row_bytes == 0) {
        return Status(Code::invalid_argument,
                      fmt::format("layer {}: {} rows of {} elements can't be stored as {}", layer,
                                  plane, elements, memory::element_type_name(type)));
    }
    const memory::Plane added{std::string(plane), static_cast<std::int32_t>(layer), type, elements,
                              row_bytes};
    ++plane_count_;
    if (!has_memory_) {
        step_rows_.planes.push_back(added);
        return PlaneSlot{exec::Graph::kStepGroup, step_rows_.planes.size() - 1};
    }
    auto& groups = schema_.groups;
    auto group = std::ranges::find_if(groups, [&](const memory::Group& g) {
        return g.name == name && g.lifetime == lifetime && g.parameter == parameter;
    });
    if (group == groups.end()) {
        group = groups.insert(groups.end(), {std::string(name), lifetime, parameter, {}});
    }
    group->planes.push_back(added);
    return PlaneSlot{static_cast<std::size_t>(group - groups.begin()), group->planes.size() - 1};
}

Result<PlaneSlot> SchemaBuilder::add_rows(std::uint32_t window, std::string_view plane,
                                          std::size_t layer, memory::ElementType type,
                                          std::uint32_t elements) {
    return window == 0
               ? add("attention", memory::Lifetime::tokens, 0, plane, layer, type, elements)
               : add("window", memory::Lifetime::window, window, plane, layer, type, elements);
}

Result<PlaneSlot> SchemaBuilder::add_block(std::string_view plane, std::size_t layer,
                                           std::uint32_t elements) {
    return add("recurrent", memory::Lifetime::fixed, 0, plane, layer, memory::ElementType::f32,
               elements);
}

std::optional<PlaneSlot> SchemaBuilder::find(std::string_view group, std::string_view plane,
                                             std::size_t layer) const {
    for (std::size_t g = 0; g < schema_.groups.size(); ++g) {
        if (schema_.groups[g].name != group) continue;
        const auto& planes = schema_.groups[g].planes;
        for (std::size_t p = 0; p < planes.size(); ++p) {
            if (planes[p].name == plane && planes[p].layer == static_cast<std::int32_t>(layer)) {
                return PlaneSlot{g, p};
            }
        }
    }
    return std::nullopt;
}

}  // namespace stet::model
