#include "cli/schema_report.h"

#include <fmt/format.h>

namespace stet::cli {
namespace {

std::string lifetime_text(const memory::Group& group) {
    switch (group.lifetime) {
        case memory::Lifetime::tokens:
            return "a row a token";
        case memory::Lifetime::window:
            return fmt::format("the last {} tokens", group.parameter);
        case memory::Lifetime::every:
            return fmt::format("a row every {} tokens", group.parameter);
        case memory::Lifetime::fixed:
            return "one block";
    }
    return {};
}

}  // namespace

std::string groups_text(const memory::Schema& schema) {
    std::string text;
    for (const memory::Group& group : schema.groups) {
        text += fmt::format("  {:<14}  {:<22}  {} planes, {} a {}\n", group.name,
                            lifetime_text(group), group.planes.size(),
                            format_bytes(group.row_bytes()), group.is_paged() ? "row" : "sequence");
    }
    return text;
}

Json groups_json(const memory::Schema& schema) {
    Json groups = Json::array();
    for (const memory::Group& group : schema.groups) {
        Json planes = Json::array();
        for (const memory::Plane& plane : group.planes) {
            planes.push_back({{"name", plane.name},
                              {"layer", plane.layer},
                              {"type", memory::element_type_name(plane.type)},
                              {"elements", plane.elements}});
        }
        groups.push_back({{"name", group.name},
                          {"lifetime", memory::lifetime_name(group.lifetime)},
                          {"parameter", group.parameter},
                          {"row_bytes", group.row_bytes()},
                          {"planes", std::move(planes)}});
    }
    return groups;
}

}  // namespace stet::cli
