// What a chat model wrote, taken apart: reasoning, content, calls of tools. Works on a growing
// text, so that a stream shows each part as soon as it is certain what it is.
//
// Which form a model speaks is read from its chat template. The forms are rows of one table,
// text/chat_format/formats.cpp, where a family is added.
//
// A ChatParser is a value for one answer, for one thread at a time. ChatFormat rows live for ever.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/chat_format/marked_parser.h"
#include "text/chat_format/message_parser.h"
#include "text/chat_format/parts.h"
#include "text/tokenizer.h"

namespace stet::text {

// The format that a chat template (its source) teaches; when it is none of the known, a lenient one
// that reads the most common forms.
const ChatFormat& chat_format_of(std::string_view template_source);
const ChatFormat* find_chat_format(std::string_view name);  // null: no such row

// Whether the template takes ids of calls of 9 letters and digits only.
bool has_short_call_ids(const ChatFormat& format);

// The control tokens that are markers of the format, sorted: a decoder must show them, or the
// parser would not see where things begin. With `has_tools` those of calls, too.
std::vector<Token> marker_tokens(const ChatFormat& format, const Tokenizer& tokenizer,
                                 bool has_tools);

// How the answer to `prompt`, which the template made, begins. `tools_json`: the request's list of
// tools, or "".
ChatOptions chat_options_of(const ChatFormat& format, std::string_view prompt,
                            std::string_view tools_json);

class ChatParser {
  public:
    explicit ChatParser(const ChatOptions& options);

    // What is certain with this text. What could still become a marker waits.
    ChatDelta add(std::string_view text);
    // The end: what waited. A call that is incomplete or makes no sense comes as content.
    ChatDelta finish();

    // Everything so far.
    const std::string& content() const { return content_; }
    const std::string& reasoning() const { return reasoning_; }
    const std::vector<ToolCall>& calls() const { return calls_; }

  private:
    void remember(const ChatDelta& delta);

    std::variant<MarkedParser, MessageParser> parser_;
    std::string content_;
    std::string reasoning_;
    std::vector<ToolCall> calls_;
};

}  // namespace stet::text
