// What a model wrote, taken apart for chat interfaces: reasoning, content, calls of tools. Works on
// a growing text, so that a stream shows each part as soon as it is certain what it is.
//
// Forms of calls that are read: <tool_call>{...}</tool_call>, the same with <function=NAME> and
// <parameter=NAME> inside, [TOOL_CALLS], <|python_tag|>, and bare JSON with "name" and "arguments"
// or "parameters".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace stet::server {

struct ToolCall {
    std::string id;  // "call_..."
    std::string name;
    std::string arguments;  // JSON
};

struct ChatDelta {
    std::string reasoning;
    std::string content;
    std::vector<ToolCall> calls;  // only from finish()
    bool is_empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

class ChatOutput {
  public:
    struct Options {
        bool has_tools = false;
        bool starts_in_reasoning = false;  // the prompt ended with <think>
    };
    explicit ChatOutput(const Options& options);

    ChatDelta add(std::string_view text);
    ChatDelta finish();

    // Everything so far.
    const std::string& content() const { return content_; }
    const std::string& reasoning() const { return reasoning_; }
    const std::vector<ToolCall>& calls() const { return calls_; }

  private:
    enum class Part : std::uint8_t { start, reasoning, content, call };
    bool advance(ChatDelta& delta, bool is_final);
    bool advance_start(bool is_final);
    bool advance_reasoning(ChatDelta& delta, bool is_final);
    bool advance_content(ChatDelta& delta, bool is_final);
    void add_content(ChatDelta& delta, std::string_view text);

    Options options_;
    Part part_;
    std::string held_;
    std::string content_;
    std::string reasoning_;
    std::vector<ToolCall> calls_;
};

// Calls in a text that is known to begin with one; empty when it makes no sense.
std::vector<ToolCall> parse_tool_calls(std::string_view text);

}  // namespace stet::server
