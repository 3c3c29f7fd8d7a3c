#include "server/chat_output.h"

#include "server/http_text.h"

namespace stet::server {

ChatOutput::ChatOutput(const text::ChatOptions& options)
    : parser_(options), has_short_ids_(text::has_short_call_ids(*options.format)) {}

ChatDelta ChatOutput::add(std::string_view text) {
    ChatDelta delta = parser_.add(text);
    name_calls(delta);
    return delta;
}

ChatDelta ChatOutput::finish() {
    ChatDelta delta = parser_.finish();
    name_calls(delta);
    return delta;
}

// Ids that the model gave stay: its template may want to see them again.
void ChatOutput::name_calls(ChatDelta& delta) {
    constexpr std::size_t kIdBytes = 12;
    constexpr std::size_t kShortId = 9;  // characters
    for (ToolCall& call : delta.calls) {
        if (call.id.empty()) {
            const std::string id = random_hex(kIdBytes);
            call.id = has_short_ids_ ? id.substr(0, kShortId) : "call_" + id;
        }
        calls_.push_back(call);
    }
}

}  // namespace stet::server
