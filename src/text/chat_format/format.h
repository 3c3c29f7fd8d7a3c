// How a family of models writes reasoning and calls: data for the parsers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace stet::text {

using Markers = std::span<const std::string_view>;

enum class CallBody : std::uint8_t {
    json,       // a call, or a list of calls, whose members are name and arguments
    keyed,      // JSON, a list of {NAME: ARGUMENTS}
    python,     // [NAME(key=value, ...), ...]
    marked,     // NAME, then {key:value, ...}, where texts stand between <|"|>
    arguments,  // NAME, then arguments: a JSON object, or tagged values
    code,       // <|python_tag|>: JSON as above, tool.call(key="value"), or Python code
};

// One call. Blanks between parts don't matter. An empty marker is not there.
//   open ID id_close NAME name_close ... arguments_open ARGUMENTS close
// where tagged arguments are
//   key_open KEY key_close ... value_open VALUE value_close
// and "..." are attributes of a tag: an id, a type, nothing.
struct CallSyntax {
    CallBody body = CallBody::json;
    std::string_view open{};
    std::string_view close{};
    std::string_view id_close{};
    std::string_view name_close{};
    std::string_view arguments_open{};
    std::string_view key_open{};
    std::string_view key_close{};
    std::string_view value_open{};
    std::string_view value_close{};  // "</*>": nested tags, whose names are keys
    bool has_value_lines = false;    // a line break at each end of a value is not part of it
};

struct Pair {
    std::string_view open{};
    std::string_view close{};
};

// marked: content in which markers open other parts. messages: a row of messages, each with a
// header that says for whom its body is.
enum class Shape : std::uint8_t { marked, messages };

// How headers of messages are read.
enum class HeaderKind : std::uint8_t {
    channel,    // gpt-oss: "assistant to=functions.NAME<|channel|>commentary <|constrain|>json"
    recipient,  // Functionary: "NAME", perhaps after "assistant\n<|recipient|>"
};

struct ChatFormat {
    std::string_view name{};
    Markers template_has{};  // a template that contains all of these teaches this format
    Shape shape = Shape::marked;

    // Shape::marked
    std::span<const Pair> reasoning{};
    Markers silent{};                  // frame content, belong nowhere
    std::span<const Pair> sections{};  // around calls
    std::span<const CallSyntax> calls{};
    bool has_bare_json = false;     // an answer that is nothing but JSON may be a call
    bool has_numbered_ids = false;  // Kimi: NAME is functions.NAME:NUMBER, which is also the id

    bool has_short_ids = false;  // Mistral: ids have 9 letters and digits

    // Shape::messages
    HeaderKind header = HeaderKind::channel;
    Markers header_opens{};
    std::string_view header_close{};
    Markers body_closes{};
};

std::span<const ChatFormat> chat_formats();

}  // namespace stet::text
