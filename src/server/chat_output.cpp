#include "server/chat_output.h"

#include <algorithm>
#include <array>
#include <optional>

#include "server/http_text.h"

namespace stet::server {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::array<std::string_view, 4> kCallMarkers = {"<tool_call>", "[TOOL_CALLS]",
                                                          "<|python_tag|>", "<function="};
constexpr std::string_view kBlank = " \t\r\n";

std::string_view without_blank(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Bytes at the end of `text` that could be the begin of `marker`.
std::size_t overlap(std::string_view text, std::string_view marker) {
    for (std::size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
        if (text.ends_with(marker.substr(0, n))) return n;
    }
    return 0;
}

// Length of the JSON value at the begin of `text`; 0 when it does not end.
std::size_t json_length(std::string_view text) {
    Brackets brackets;
    std::size_t depth = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const int step = brackets.add(text[i]);
        if (step > 0) ++depth;
        if (step < 0 && depth == 0) return 0;
        if (step < 0 && --depth == 0) return i + 1;
    }
    return 0;
}

ToolCall make_call(std::string name, std::string arguments) {
    constexpr std::size_t kIdBytes = 12;
    return {"call_" + random_hex(kIdBytes), std::move(name), std::move(arguments)};
}

std::optional<ToolCall> call_of(const Json& json) {
    if (!json.is_object()) return std::nullopt;
    const Json& call =
        json.contains("function") && json["function"].is_object() ? json["function"] : json;
    const auto name = call.find("name");
    if (name == call.end() || !name->is_string() || name->get<std::string>().empty()) {
        return std::nullopt;
    }
    for (const char* key : {"arguments", "parameters"}) {
        const auto arguments = call.find(key);
        if (arguments == call.end()) continue;
        if (arguments->is_string()) return make_call(*name, arguments->get<std::string>());
        if (arguments->is_object()) return make_call(*name, dump(*arguments));
    }
    return std::nullopt;
}

// <function=NAME><parameter=KEY>VALUE</parameter>...</function>
std::optional<ToolCall> call_of_tags(std::string_view text) {
    constexpr std::string_view kFunction = "<function=";
    constexpr std::string_view kParameter = "<parameter=";
    constexpr std::string_view kParameterEnd = "</parameter>";
    text.remove_prefix(kFunction.size());
    const std::size_t name_end = text.find('>');
    if (name_end == std::string_view::npos) return std::nullopt;
    const std::string name(without_blank(text.substr(0, name_end)));
    Json arguments = Json::object();
    while (true) {
        const std::size_t at = text.find(kParameter);
        if (at == std::string_view::npos) break;
        text.remove_prefix(at + kParameter.size());
        const std::size_t key_end = text.find('>');
        const std::size_t end = text.find(kParameterEnd);
        if (key_end == std::string_view::npos || end == std::string_view::npos || end < key_end) {
            return std::nullopt;
        }
        const std::string key(text.substr(0, key_end));
        const std::string value(without_blank(text.substr(key_end + 1, end - key_end - 1)));
        Json parsed = Json::parse(value.size() < 65536 ? value : "", nullptr, false);
        const bool is_plain = parsed.is_number() || parsed.is_boolean();
        arguments[key] = is_plain ? std::move(parsed) : Json(value);
        text.remove_prefix(end + kParameterEnd.size());
    }
    return make_call(name, dump(arguments));
}

bool add_json_calls(std::string_view text, std::vector<ToolCall>& calls) {
    // One level more than a body may have, for the list around.
    const auto wrapped = parse_object("{\"calls\":" + std::string(text) + "}");
    if (!wrapped) return false;
    const Json& value = wrapped->at("calls");
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& item : list) {
        auto call = call_of(item);
        if (!call) return false;
        calls.push_back(std::move(*call));
    }
    return !list.empty();
}

}  // namespace

std::vector<ToolCall> parse_tool_calls(std::string_view text) {
    std::vector<ToolCall> calls;
    constexpr std::string_view kCall = "<tool_call>";
    constexpr std::string_view kCallEnd = "</tool_call>";
    while (true) {
        text = without_blank(text);
        if (text.starts_with(';')) text.remove_prefix(1);
        if (text.empty()) return calls;
        bool has_marker = false;
        for (const std::string_view marker : {kCall, kCallEnd, std::string_view("[TOOL_CALLS]"),
                                              std::string_view("<|python_tag|>")}) {
            if (!text.starts_with(marker)) continue;
            text.remove_prefix(marker.size());
            has_marker = true;
            break;
        }
        if (has_marker) continue;
        if (text.starts_with("<function=")) {
            constexpr std::string_view kEnd = "</function>";
            const std::size_t end = text.find(kEnd);
            auto call = call_of_tags(text.substr(0, end));
            if (!call) return {};
            calls.push_back(std::move(*call));
            if (end == std::string_view::npos) return calls;
            text.remove_prefix(end + kEnd.size());
        } else if (text.starts_with('{') || text.starts_with('[')) {
            const std::size_t length = json_length(text);
            if (length == 0 || !add_json_calls(text.substr(0, length), calls)) return {};
            text.remove_prefix(length);
        } else {
            return calls;  // what follows is talk
        }
    }
}

ChatOutput::ChatOutput(const Options& options)
    : options_(options), part_(options.starts_in_reasoning ? Part::reasoning : Part::start) {}

ChatDelta ChatOutput::add(std::string_view text) {
    ChatDelta delta;
    held_ += text;
    while (advance(delta, false)) {
    }
    return delta;
}

ChatDelta ChatOutput::finish() {
    ChatDelta delta;
    while (advance(delta, true)) {
    }
    if (part_ != Part::call) return delta;
    calls_ = parse_tool_calls(held_);
    if (calls_.empty()) add_content(delta, held_);
    held_.clear();
    delta.calls = calls_;
    return delta;
}

bool ChatOutput::advance(ChatDelta& delta, bool is_final) {
    switch (part_) {
        case Part::start:
            return advance_start(is_final);
        case Part::reasoning:
            return advance_reasoning(delta, is_final);
        case Part::content:
            return advance_content(delta, is_final);
        case Part::call:
            return false;
    }
    return false;
}

// The first thing that is no blank says what it is.
bool ChatOutput::advance_start(bool is_final) {
    const std::string_view text = without_blank(held_);
    if (text.starts_with(kThink)) {
        held_.erase(0, held_.find(kThink) + kThink.size());
        part_ = Part::reasoning;
        return true;
    }
    if (!is_final && kThink.starts_with(text)) return false;
    const bool is_json = text.starts_with('{') || text.starts_with('[');
    part_ = options_.has_tools && is_json ? Part::call : Part::content;
    return true;
}

bool ChatOutput::advance_reasoning(ChatDelta& delta, bool is_final) {
    const std::size_t end = held_.find(kThinkEnd);
    const bool is_ended = end != std::string::npos;
    const std::size_t ready =
        is_ended ? end : held_.size() - (is_final ? 0 : overlap(held_, kThinkEnd));
    std::string_view text = std::string_view(held_).substr(0, ready);
    if (reasoning_.empty()) {
        text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlank)));
    }
    delta.reasoning += text;
    reasoning_ += text;
    held_.erase(0, ready);
    if (!is_ended) return false;
    held_.erase(0, kThinkEnd.size());
    part_ = Part::content;
    return true;
}

bool ChatOutput::advance_content(ChatDelta& delta, bool is_final) {
    std::size_t ready = held_.size();
    if (options_.has_tools) {
        std::size_t hold = 0;
        std::size_t found = std::string::npos;
        for (const std::string_view marker : kCallMarkers) {
            found = std::min(found, held_.find(marker));
            hold = std::max(hold, overlap(held_, marker));
        }
        if (found != std::string::npos) {
            add_content(delta, std::string_view(held_).substr(0, found));
            held_.erase(0, found);
            part_ = Part::call;
            return true;
        }
        if (!is_final) ready -= hold;
    }
    add_content(delta, std::string_view(held_).substr(0, ready));
    held_.erase(0, ready);
    return false;
}

// Blanks between reasoning and content belong to neither.
void ChatOutput::add_content(ChatDelta& delta, std::string_view text) {
    if (content_.empty() && !reasoning_.empty()) {
        text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlank)));
    }
    delta.content += text;
    content_ += text;
}

}  // namespace stet::server
