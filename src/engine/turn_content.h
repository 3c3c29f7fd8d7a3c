// The JSON that a stored turn carries for people and clients:
//   {"messages": [{"role": "user", "content": "..."}, ...], "text": "...", "key": "..."}
// `text` is what the turn's tokens stand for, special tokens written out. `key` names the request
// that made the turn, so that it isn't made twice; mostly there is none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stet/status.h"

namespace stet::engine {

struct Message {
    std::string role;  // "system", "user", "assistant"
    std::string content;
};

struct TurnContent {
    std::vector<Message> messages;
    std::string text;
    std::string key = {};
};

// Bytes that are not UTF-8 become U+FFFD.
std::string encode_turn_content(const TurnContent& content);
Result<TurnContent> decode_turn_content(std::string_view json);

// The variables of a chat template: messages, add_generation_prompt, bos_token, eos_token.
std::string template_variables(const std::vector<Message>& messages, bool generation_prompt,
                               std::string_view bos, std::string_view eos);

}  // namespace stet::engine
