// What an answer is taken apart into, and what helps to read calls.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stet::text {

struct ToolCall {
    std::string id;  // as the model gave it; mostly empty
    std::string name;
    std::string arguments;  // a JSON object
};

// What one step of the stream added.
struct ChatDelta {
    std::string reasoning;
    std::string content;
    std::vector<ToolCall> calls;  // each comes once, when it is complete
    bool is_empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// The types that tools declare for their parameters: forms without quotes don't say whether 1 is a
// number or a text.
class ToolTypes {
  public:
    // `tools_json`: the list as in OpenAI's requests; what is not of that form is passed over.
    static ToolTypes from_json(std::string_view tools_json);
    bool is_text(std::string_view tool, std::string_view parameter) const;

  private:
    std::set<std::pair<std::string, std::string>> texts_;  // tool, parameter
};

struct ChatFormat;

struct ChatOptions {
    const ChatFormat* format = nullptr;
    bool has_tools = false;            // calls are looked for
    bool starts_in_header = false;     // the prompt ended inside of a message's header
    std::string_view reasoning_close;  // the prompt ended inside of reasoning, which this closes
    std::shared_ptr<const ToolTypes> types;  // may be null
};

}  // namespace stet::text
