#include "text/chat_format/call_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/chat_format/scan.h"

namespace stet::text {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The library's destructor and dump() recurse: depth is bounded before it sees a text.
bool is_shallow(std::string_view text) {
    JsonScanner scanner;
    for (std::size_t i = 0; i < text.size(); ++i) {
        switch (scanner.add(text[i])) {
            case JsonScanner::Step::more:
                break;
            case JsonScanner::Step::end:
                return i + 1 == text.size();
            case JsonScanner::Step::bad:
                return false;
        }
    }
    return false;
}

std::optional<Json> parse(std::string_view text) {
    text = without_blanks(text);
    if (!is_shallow(text)) return std::nullopt;
    Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return std::nullopt;
    return json;
}

const Json* find_any(const Json& object, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        const auto found = object.find(key);
        if (found != object.end() && !found->is_null()) return &*found;
    }
    return nullptr;
}

std::optional<ToolCall> call_of(const Json& json) {
    if (!json.is_object()) return std::nullopt;
    const Json* function = find_any(json, {"function"});
    const Json& call = function != nullptr && function->is_object() ? *function : json;
    const Json* name = find_any(call, {"name", "tool_name", "function"});
    if (name == nullptr || !name->is_string() || name->get<std::string>().empty()) {
        return std::nullopt;
    }
    const Json* arguments = find_any(call, {"arguments", "parameters"});
    if (arguments == nullptr) return std::nullopt;
    ToolCall made;
    made.name = name->get<std::string>();
    if (arguments->is_object()) {
        made.arguments = dump(*arguments);
    } else if (arguments->is_string()) {
        auto object = json_object(arguments->get<std::string>());
        if (!object) return std::nullopt;
        made.arguments = std::move(*object);
    } else {
        return std::nullopt;
    }
    const Json* id = find_any(json, {"id", "tool_call_id"});
    if (id != nullptr && id->is_string()) made.id = id->get<std::string>();
    return made;
}

// Command-R's way of calling nothing.
bool is_no_call(std::string_view name) {
    return name == "directly_answer" || name == "directly-answer";
}

}  // namespace

std::optional<std::vector<ToolCall>> calls_of_json(std::string_view text) {
    const auto json = parse(text);
    if (!json) return std::nullopt;
    std::vector<ToolCall> calls;
    if (!json->is_array()) {
        auto call = call_of(*json);
        if (!call) return std::nullopt;
        if (!is_no_call(call->name)) calls.push_back(std::move(*call));
        return calls;
    }
    if (json->empty()) return std::nullopt;
    for (const Json& item : *json) {
        auto call = call_of(item);
        if (!call) return std::nullopt;
        if (!is_no_call(call->name)) calls.push_back(std::move(*call));
    }
    return calls;
}

std::optional<std::vector<ToolCall>> calls_of_keyed_json(std::string_view text) {
    const auto json = parse(text);
    if (!json || !json->is_array() || json->empty()) return std::nullopt;
    std::vector<ToolCall> calls;
    for (const Json& item : *json) {
        if (!item.is_object() || item.size() != 1) return std::nullopt;
        const auto member = item.begin();
        if (member.key().empty() || !member->is_object()) return std::nullopt;
        calls.push_back({"", member.key(), dump(*member)});
    }
    return calls;
}

std::optional<std::string> json_object(std::string_view text) {
    text = without_blanks(text);
    if (!text.starts_with('{')) return std::nullopt;
    const auto json = parse(text);
    if (!json) return std::nullopt;
    return dump(*json);
}

std::string json_string(std::string_view text) {
    return dump(Json(std::string(text)));
}

std::string json_value(std::string_view text, bool is_text) {
    if (is_text) return json_string(text);
    const std::string_view bare = without_blanks(text);
    if (bare.starts_with('{') || bare.starts_with('[')) {
        const auto json = parse(bare);
        return json ? dump(*json) : json_string(text);
    }
    constexpr std::size_t kPlainMax = 64;  // bytes of a number or a word
    if (bare.size() > kPlainMax) return json_string(text);
    const Json json = Json::parse(bare, nullptr, false);
    const bool is_plain = json.is_number() || json.is_boolean() || json.is_null();
    return is_plain ? dump(json) : json_string(text);
}

std::optional<std::string> json_of_keywords(std::string_view text) {
    std::string json = "{";
    while (true) {
        text = without_blanks(text);
        if (text.empty()) break;
        const std::size_t equals = text.find('=');
        if (equals == std::string_view::npos) return std::nullopt;
        const std::string_view key = without_blanks(text.substr(0, equals));
        text = without_blanks(text.substr(equals + 1));
        if (key.empty() || text.empty()) return std::nullopt;
        if (text.front() == '{' || text.front() == '[') return std::nullopt;
        std::size_t end = 0;
        if (text.front() == '"') {
            for (end = 1; end < text.size() && text[end] != '"'; ++end) {
                if (text[end] == '\\') ++end;
            }
            ++end;
        } else {
            end = std::min(text.find(','), text.size());
        }
        if (end > text.size()) return std::nullopt;
        const Json value = Json::parse(text.substr(0, end), nullptr, false);
        if (value.is_discarded()) return std::nullopt;
        json += (json.size() > 1 ? "," : "") + json_string(key) + ":" + dump(value);
        text = without_blanks(text.substr(end));
        if (text.empty()) break;
        if (text.front() != ',') return std::nullopt;
        text.remove_prefix(1);
    }
    return json + "}";
}

ToolTypes ToolTypes::from_json(std::string_view tools_json) {
    ToolTypes types;
    const auto tools = parse(tools_json);
    if (!tools || !tools->is_array()) return types;
    for (const Json& tool : *tools) {
        if (!tool.is_object()) continue;
        const Json* function = find_any(tool, {"function"});
        const Json& declared = function != nullptr && function->is_object() ? *function : tool;
        const Json* name = find_any(declared, {"name"});
        const Json* schema = find_any(declared, {"parameters"});
        if (name == nullptr || !name->is_string() || schema == nullptr || !schema->is_object()) {
            continue;
        }
        const Json* properties = find_any(*schema, {"properties"});
        if (properties == nullptr || !properties->is_object()) continue;
        for (const auto& [key, property] : properties->items()) {
            const Json* type = property.is_object() ? find_any(property, {"type"}) : nullptr;
            if (type == nullptr) continue;
            if (*type == "string") types.texts_.emplace(name->get<std::string>(), key);
        }
    }
    return types;
}

bool ToolTypes::is_text(std::string_view tool, std::string_view parameter) const {
    return texts_.contains(std::pair(std::string(tool), std::string(parameter)));
}

}  // namespace stet::text
