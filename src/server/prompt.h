// From what clients send to token ids: prompts of text or ids, and messages through the model's
// chat template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/context.h"
#include "server/json.h"

namespace stet::server {

// Text as a prompt of its own: special tokens around it as the model wants them.
Result<std::vector<Token>> encode_prompt(const Context& context, std::string_view text);
// A string, a list of ids, or a list of both ("name" is for messages).
Result<std::vector<Token>> tokens_of_prompt(const Context& context, const Json& prompt,
                                            std::string_view name);
// Several prompts (at most `count_max`) where `prompt` is a list of strings or of lists.
Result<std::vector<std::vector<Token>>> prompts_of(const Context& context, const Json& prompt,
                                                   std::string_view name,
                                                   std::size_t count_max = 128);

struct ChatInput {
    Json messages = Json::array();  // as for the template: role, content as text, tool_calls, ...
    Json tools;                     // null: none
    Json template_options = Json::object();  // chat_template_kwargs
    bool add_generation_prompt = true;
};
// Checks roles and contents and turns lists of parts into text. Parts that are no text are refused
// (unimplemented).
Status read_messages(const Json& messages, ChatInput& input);
Result<std::string> render_chat(const Context& context, const ChatInput& input);
// What the template made, as tokens: markers are parsed, the first token is not doubled.
Result<std::vector<Token>> encode_rendered(const Context& context, std::string_view text,
                                           bool is_first = true);
// Role and text of each message, for the store.
std::vector<engine::Message> plain_messages(const Json& messages);

}  // namespace stet::server
