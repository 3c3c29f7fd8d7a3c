#include "engine/turn_content.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace stet::engine {
namespace {

using nlohmann::json;

std::string dump(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json messages_json(const std::vector<Message>& messages) {
    json list = json::array();
    for (const Message& message : messages) {
        list.push_back({{"role", message.role}, {"content", message.content}});
    }
    return list;
}

Status malformed(std::string_view why) {
    return Status(Code::corruption, fmt::format("stored turn: {}", why));
}

}  // namespace

std::string encode_turn_content(const TurnContent& content) {
    json value = {{"messages", messages_json(content.messages)}, {"text", content.text}};
    if (!content.key.empty()) value["key"] = content.key;
    return dump(value);
}

Result<TurnContent> decode_turn_content(std::string_view text) {
    const json value = json::parse(text, nullptr, false);
    if (!value.is_object()) return malformed("content is not a JSON object");
    TurnContent content;
    const auto messages = value.find("messages");
    const auto raw = value.find("text");
    if (messages == value.end() || !messages->is_array()) return malformed("no list of messages");
    if (raw == value.end() || !raw->is_string()) return malformed("no text");
    for (const json& message : *messages) {
        const auto role = message.is_object() ? message.find("role") : message.end();
        const auto body = message.is_object() ? message.find("content") : message.end();
        if (!message.is_object() || role == message.end() || body == message.end() ||
            !role->is_string() || !body->is_string()) {
            return malformed("a message without role and content");
        }
        content.messages.push_back({role->get<std::string>(), body->get<std::string>()});
    }
    content.text = raw->get<std::string>();
    const auto key = value.find("key");
    if (key != value.end() && key->is_string()) content.key = key->get<std::string>();
    return content;
}

std::string template_variables(const std::vector<Message>& messages, bool generation_prompt,
                               std::string_view bos, std::string_view eos) {
    return dump({{"messages", messages_json(messages)},
                 {"add_generation_prompt", generation_prompt},
                 {"bos_token", bos},
                 {"eos_token", eos}});
}

}  // namespace stet::engine
