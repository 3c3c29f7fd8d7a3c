#include "text/chat_parser.h"

#include <algorithm>

#include "text/chat_format/call_literals.h"
#include "text/chat_format/format.h"
#include "text/chat_format/scan.h"

namespace stet::text {
namespace {

std::variant<MarkedParser, MessageParser> parser_of(const ChatOptions& options) {
    if (options.format->shape == Shape::messages) return MessageParser(options);
    return MarkedParser(options);
}

// Every text that means something to the format's parser.
std::vector<std::string_view> markers_of(const ChatFormat& format, bool has_tools) {
    std::vector<std::string_view> list(format.silent.begin(), format.silent.end());
    for (const Pair& pair : format.reasoning) list.insert(list.end(), {pair.open, pair.close});
    list.insert(list.end(), format.header_opens.begin(), format.header_opens.end());
    list.insert(list.end(), format.body_closes.begin(), format.body_closes.end());
    list.push_back(format.header_close);
    if (format.shape == Shape::messages) {
        list.insert(list.end(), {"<|constrain|>", "<|recipient|>"});
    }
    if (!has_tools) return list;
    for (const Pair& pair : format.sections) list.insert(list.end(), {pair.open, pair.close});
    for (const CallSyntax& syntax : format.calls) {
        list.insert(list.end(), {syntax.open, syntax.close, syntax.id_close, syntax.name_close,
                                 syntax.arguments_open, syntax.key_open, syntax.key_close,
                                 syntax.value_open, syntax.value_close});
        if (syntax.body == CallBody::marked) list.push_back(kTextMark);
    }
    if (format.has_short_ids) list.emplace_back("[CALL_ID]");
    return list;
}

}  // namespace

const ChatFormat& chat_format_of(std::string_view template_source) {
    const auto formats = chat_formats();
    const auto teaches = [template_source](const ChatFormat& format) {
        return std::all_of(format.template_has.begin(), format.template_has.end(),
                           [template_source](std::string_view text) {
                               return template_source.find(text) != std::string_view::npos;
                           });
    };
    // The last row asks for nothing.
    return *std::find_if(formats.begin(), formats.end(), teaches);
}

const ChatFormat* find_chat_format(std::string_view name) {
    for (const ChatFormat& format : chat_formats()) {
        if (format.name == name) return &format;
    }
    return nullptr;
}

bool has_short_call_ids(const ChatFormat& format) {
    return format.has_short_ids;
}

std::vector<Token> marker_tokens(const ChatFormat& format, const Tokenizer& tokenizer,
                                 bool has_tools) {
    std::vector<Token> shown;
    for (const std::string_view marker : markers_of(format, has_tools)) {
        if (marker.empty()) continue;
        const auto tokens = tokenizer.encode(marker, {.add_special = false, .parse_special = true});
        if (!tokens) continue;  // no memory: the marker stays hidden
        for (const Token token : *tokens) {
            if (tokenizer.is_control(token)) shown.push_back(token);
        }
    }
    std::sort(shown.begin(), shown.end());
    shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
    return shown;
}

ChatOptions chat_options_of(const ChatFormat& format, std::string_view prompt,
                            std::string_view tools_json) {
    ChatOptions options;
    options.format = &format;
    options.has_tools = !tools_json.empty() && tools_json != "null" && tools_json != "[]";
    if (options.has_tools) {
        options.types = std::make_shared<const ToolTypes>(ToolTypes::from_json(tools_json));
    }
    const std::size_t end = prompt.find_last_not_of(kBlanks);
    const std::string_view text =
        end == std::string_view::npos ? std::string_view() : prompt.substr(0, end + 1);
    for (const Pair& pair : format.reasoning) {
        if (text.ends_with(pair.open)) options.reasoning_close = pair.close;
    }
    for (const std::string_view open : format.header_opens) {
        if (text.ends_with(open)) options.starts_in_header = true;
    }
    if (format.shape == Shape::messages && text.ends_with("<|start|>assistant")) {
        options.starts_in_header = true;
    }
    return options;
}

ChatParser::ChatParser(const ChatOptions& options) : parser_(parser_of(options)) {}

ChatDelta ChatParser::add(std::string_view text) {
    ChatDelta delta;
    std::visit([&](auto& parser) { parser.add(text, false, delta); }, parser_);
    remember(delta);
    return delta;
}

ChatDelta ChatParser::finish() {
    ChatDelta delta;
    std::visit([&](auto& parser) { parser.add({}, true, delta); }, parser_);
    remember(delta);
    return delta;
}

void ChatParser::remember(const ChatDelta& delta) {
    content_ += delta.content;
    reasoning_ += delta.reasoning;
    calls_.insert(calls_.end(), delta.calls.begin(), delta.calls.end());
}

}  // namespace stet::text
