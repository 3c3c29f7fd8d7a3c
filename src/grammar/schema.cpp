#include "grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "base/try.h"
#include "grammar/schema_words.h"

namespace stet::grammar {
namespace {

using Json = nlohmann::ordered_json;  // properties come in the order of the schema
using View = std::string_view;

Status refused(const std::string& what) {
    return Status(Code::invalid_argument, "the JSON schema can't be enforced: " + what);
}

bool contains(std::span<const View> names, View name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_any(const Json& schema, std::span<const View> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](View name) { return schema.contains(std::string(name)); });
}

bool is_type_of(const Json& value, View type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "number") return value.is_number();
    if (type != "integer" || !value.is_number()) return false;
    return value.is_number_integer() || value.get<double>() == std::floor(value.get<double>());
}

// The names in "type"; empty: there is none, or it is no type at all, which xgrammar says.
std::vector<std::string> types_of(const Json& schema) {
    std::vector<std::string> types;
    const auto at = schema.find("type");
    if (at == schema.end()) return types;
    if (at->is_string()) types.push_back(at->get<std::string>());
    if (!at->is_array()) return types;
    for (const Json& item : *at) {
        if (item.is_string()) types.push_back(item.get<std::string>());
    }
    return types;
}

bool allows_type(const Json& schema, View type) {
    const std::vector<std::string> types = types_of(schema);
    return std::find(types.begin(), types.end(), type) != types.end();
}

// Whether no value is of the types of two members of a list. xgrammar sees this only of members
// that name nothing but a type.
bool are_of_distinct_types(const Json& members) {
    std::set<std::string> seen;
    for (const Json& member : members) {
        if (!member.is_object() || has_any(member, kDeciders)) return false;
        const std::vector<std::string> types = types_of(member);
        if (types.empty()) return false;
        for (std::string type : types) {
            if (type == "integer") type = "number";
            if (!seen.insert(type).second) return false;
        }
    }
    return true;
}

bool is_false(const Json& schema, const char* key) {
    const auto at = schema.find(key);
    return at == schema.end() || *at == false;
}

// "%41" becomes "A": a reference is a piece of a URI.
std::string percent_decoded(View text) {
    const auto digit = [](char c) {
        if (c >= '0' && c <= '9') return c - '0';
        if (c >= 'a' && c <= 'f') return c - 'a' + 10;
        return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool is_code = text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
                             digit(text[i + 2]) >= 0;
        if (is_code) {
            plain += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
            i += 2;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

class Rewriter {
  public:
    explicit Rewriter(Json& root) : root_(root) {}

    Status run() {
        STET_TRY(visit(root_));
        while (!references_.empty()) {
            const std::string reference = std::move(references_.back());
            references_.pop_back();
            STET_TRY(follow(reference));
        }
        return {};
    }

  private:
    Status visit(Json& node);
    Status visit_below(Json& node);
    Status visit_all(Json& list);
    Status follow(const std::string& reference);
    Status decide(Json& node, View decider);
    Status narrow_values(Json& node, View decider);
    Status push_type_down(Json& node, View decider);
    Status check_words(const Json& node) const;
    Status rewrite_object(Json& node);
    Status require_names(Json& node);
    Status check_string(const Json& node) const;

    Json& root_;
    std::vector<std::string> references_;  // not followed yet
    std::set<std::string> known_ = {"#"};
    std::size_t nodes_left_ = 100000;     // those that references name are visited more than once
    std::size_t bytes_left_ = 1U << 20U;  // that may be added
};

// Definitions are visited when a reference names them.
Status Rewriter::visit(Json& node) {
    if (nodes_left_-- == 0) return refused("it has too many parts");
    if (!node.is_object()) return {};  // true, false, or what xgrammar refuses
    if (node.contains("uniqueItems") && node["uniqueItems"] == false) node.erase("uniqueItems");
    STET_TRY(check_words(node));
    for (const View decider : kDeciders) {
        if (node.contains(std::string(decider))) return decide(node, decider);
    }
    if (!node.contains("type")) {
        Json types = Json::array();
        for (const TypeWords& group : kTypeWords) {
            if (has_any(node, group.words)) types.push_back(std::string(group.type));
        }
        if (types.empty()) return {};  // anything
        node["type"] = types.size() == 1 ? types.front() : types;
    }
    STET_TRY(visit_below(node));
    STET_TRY(check_string(node));
    if (allows_type(node, "object")) STET_TRY(rewrite_object(node));
    constexpr std::array<View, 3> kOfLists = {"items", "prefixItems", "unevaluatedItems"};
    if (allows_type(node, "array") && !has_any(node, kOfLists)) node["items"] = Json::object();
    return {};
}

Status Rewriter::visit_all(Json& holder) {
    for (Json& item : holder) {
        if (item == true) item = Json::object();  // the same, and xgrammar takes it in lists
        STET_TRY(visit(item));
    }
    return {};
}

Status Rewriter::visit_below(Json& node) {
    constexpr std::array<View, 3> kMaps = {"properties", "patternProperties", "prefixItems"};
    constexpr std::array<View, 5> kSchemas = {"additionalProperties", "unevaluatedProperties",
                                              "propertyNames", "items", "unevaluatedItems"};
    for (auto& [key, value] : node.items()) {
        if (contains(kMaps, key) && value.is_structured()) STET_TRY(visit_all(value));
        if (contains(kSchemas, key)) STET_TRY(visit(value));
    }
    return {};
}

Status Rewriter::follow(const std::string& reference) {
    if (reference.front() != '#') {
        return refused(fmt::format("$ref '{}' is in another document", shown(reference)));
    }
    Json* target = nullptr;
    try {
        target = &root_.at(Json::json_pointer(percent_decoded(View(reference).substr(1))));
    } catch (const Json::exception&) {
        return refused(fmt::format("$ref '{}' names nothing in it", shown(reference)));
    }
    return visit(*target);
}

// What a word that is not looked at beside another would have asked for.
Status Rewriter::check_words(const Json& node) const {
    for (const auto& [key, value] : node.items()) {
        if (contains(kUnsupported, key)) return refused(fmt::format("keyword '{}'", key));
    }
    return {};
}

// "$ref", "const", "enum" and the combinations decide alone.
Status Rewriter::decide(Json& node, View decider) {
    const std::string name(decider);
    if (node.contains("type")) {
        const bool has_values = decider == "const" || decider == "enum";
        STET_TRY(has_values ? narrow_values(node, decider) : push_type_down(node, decider));
        node.erase("type");
    }
    for (const auto& [key, value] : node.items()) {
        const bool asks =
            std::any_of(kTypeWords.begin(), kTypeWords.end(),
                        [&](const TypeWords& group) { return contains(group.words, key); }) ||
            contains(kDeciders, key);
        if (asks && key != name) return refused(fmt::format("'{}' beside '{}'", key, name));
    }
    Json& value = node[name];
    if (decider == "$ref") {
        if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
            return refused("a $ref must be a text that begins with '#'");
        }
        std::string reference = value.get<std::string>();
        if (known_.insert(reference).second) references_.push_back(std::move(reference));
    }
    if (decider == "allOf" && value.is_array() && value.size() > 1) {
        return refused("'allOf' with more than one schema");
    }
    const bool is_list = decider == "anyOf" || decider == "oneOf" || decider == "allOf";
    if (!is_list || !value.is_array()) return {};
    STET_TRY(visit_all(value));
    if (decider == "oneOf" && are_of_distinct_types(value)) {  // then it is the same
        Json members = std::move(value);
        node.erase(name);
        node["anyOf"] = std::move(members);
    }
    return {};
}

Status Rewriter::narrow_values(Json& node, View decider) {
    const std::vector<std::string> types = types_of(node);
    const auto is_allowed = [&](const Json& value) {
        return std::any_of(types.begin(), types.end(),
                           [&](const std::string& type) { return is_type_of(value, type); });
    };
    bool has_some = false;
    if (decider == "const") {
        has_some = is_allowed(node["const"]);
    } else if (node["enum"].is_array()) {
        Json values = Json::array();
        for (Json& value : node["enum"]) {
            if (is_allowed(value)) values.push_back(std::move(value));
        }
        has_some = !values.empty();
        node["enum"] = std::move(values);
    }
    if (has_some) return {};
    return Status(
        Code::invalid_argument,
        fmt::format("the JSON schema allows nothing: no value of '{}' has its type", decider));
}

// {"type": T, "anyOf": [...]}: each of them is of that type.
Status Rewriter::push_type_down(Json& node, View decider) {
    const Json type = node["type"];
    const bool is_choice = decider == "anyOf" || decider == "oneOf" || decider == "allOf";
    Json& list = node[std::string(decider)];
    const bool is_possible =
        is_choice && list.is_array() && std::all_of(list.begin(), list.end(), [&](Json& item) {
            return item.is_object() && !has_any(item, kDeciders) &&
                   (!item.contains("type") || item["type"] == type);
        });
    if (!is_possible) return refused(fmt::format("'type' beside '{}'", decider));
    for (Json& item : list) item["type"] = type;
    return {};
}

Status Rewriter::check_string(const Json& node) const {
    if (!allows_type(node, "string")) return {};
    const auto format = node.find("format");
    if (format == node.end()) return {};
    if (!format->is_string()) return refused("a format must be a text");
    if (!contains(kFormats, format->get_ref<const std::string&>())) {
        return refused(
            fmt::format("format '{}' is not known", shown(format->get_ref<const std::string&>())));
    }
    return node.contains("pattern") ? refused("'pattern' beside 'format'") : Status();
}

Status Rewriter::rewrite_object(Json& node) {
    constexpr std::array<View, 5> kOfObjects = {"properties", "patternProperties",
                                                "additionalProperties", "unevaluatedProperties",
                                                "required"};
    if (!has_any(node, kOfObjects)) node["additionalProperties"] = true;
    const bool has_names = node.contains("propertyNames");
    if (node.contains("unevaluatedProperties")) {
        // Nothing beside it evaluates more than the keywords of additionalProperties do.
        if (!node.contains("additionalProperties")) {
            node["additionalProperties"] = node["unevaluatedProperties"];
        }
        node.erase("unevaluatedProperties");
    }
    const bool is_open = !is_false(node, "additionalProperties");
    if (node.contains("patternProperties")) {
        const Json& patterns = node["patternProperties"];
        if (node.contains("properties") || node.contains("required") || has_names || is_open) {
            return refused(
                "'patternProperties' beside 'properties', 'required', 'propertyNames' or "
                "'additionalProperties'");
        }
        if (patterns.is_object() && patterns.size() > 1) {
            return refused("'patternProperties' with more than one pattern");
        }
    } else if (has_names && (node.contains("properties") || node.contains("required"))) {
        return refused("'propertyNames' beside 'properties' or 'required'");
    } else if (has_names && !is_open) {
        node.erase("propertyNames");  // there are none
        node["additionalProperties"] = false;
    }
    STET_TRY(require_names(node));
    const auto least = node.find("minProperties");
    const bool may_repeat = is_open || node.contains("patternProperties");
    if (may_repeat && least != node.end() && least->is_number() && least->get<double>() > 1) {
        return refused("'minProperties' above 1 of names that are not given");
    }
    return {};
}

// Names that are required but not described become properties.
Status Rewriter::require_names(Json& node) {
    const auto required = node.find("required");
    if (required == node.end()) return {};
    if (!required->is_array()) return refused("'required' must be a list");
    const Json names = *required;
    const Json others =
        node.contains("additionalProperties") ? node["additionalProperties"] : Json(true);
    const std::size_t others_bytes = others.dump().size();
    if (!node.contains("properties")) node["properties"] = Json::object();
    Json& properties = node["properties"];
    if (!properties.is_object()) return refused("'properties' must be an object");
    for (const Json& name : names) {
        if (!name.is_string()) return refused("'required' must be a list of names");
        if (properties.contains(name.get_ref<const std::string&>())) continue;
        if (others == false) {
            return Status(Code::invalid_argument,
                          fmt::format("the JSON schema allows nothing: '{}' is required, but no "
                                      "property of it",
                                      shown(name.get_ref<const std::string&>())));
        }
        if (bytes_left_ < others_bytes) return refused("it has too many parts");
        bytes_left_ -= others_bytes;
        properties[name.get<std::string>()] = others.is_object() ? others : Json::object();
    }
    return {};
}

}  // namespace

Result<std::string> strict_schema(std::string_view schema) {
    Json json;
    try {
        json = Json::parse(schema);
    } catch (const Json::parse_error& error) {
        return Status(Code::invalid_argument,
                      fmt::format("the JSON schema is not valid JSON (at byte {})", error.byte));
    } catch (const Json::exception&) {
        return Status(Code::invalid_argument, "the JSON schema has a number that is too large");
    }
    if (!json.is_object() && !json.is_boolean()) {
        return Status(Code::invalid_argument,
                      "the JSON schema is neither an object nor true or false");
    }
    STET_TRY(Rewriter(json).run());
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace stet::grammar
