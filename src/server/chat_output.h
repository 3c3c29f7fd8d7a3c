// The parts of an answer as chat interfaces show them: text/chat_parser.h, and an id for each call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_parser.h"

namespace stet::server {

using text::ChatDelta;
using text::ToolCall;

class ChatOutput {
  public:
    explicit ChatOutput(const text::ChatOptions& options);

    ChatDelta add(std::string_view text);
    ChatDelta finish();

    // Everything so far.
    const std::string& content() const { return parser_.content(); }
    const std::string& reasoning() const { return parser_.reasoning(); }
    const std::vector<ToolCall>& calls() const { return calls_; }

  private:
    void name_calls(ChatDelta& delta);

    text::ChatParser parser_;
    bool has_short_ids_;  // Mistral's templates take 9 letters and digits, nothing else
    std::vector<ToolCall> calls_;
};

}  // namespace stet::server
