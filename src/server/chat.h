// A chat turn, whichever interface asked for it: from messages to jobs, with or without a session
// that remembers what was said before.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_form.h"
#include "server/chat_output.h"
#include "server/context.h"
#include "server/delivery.h"
#include "server/prompt.h"

namespace stet::server {

struct ChatTurn {
    ChatInput input;  // all messages; with a session: those that are new
    engine::GenerateOptions options;
    AnswerForm form;
    ToolChoice tool_choice;
    std::int64_t choices = 1;
    bool is_stream = false;
    bool may_commit = true;
    bool may_reuse = true;
    std::optional<std::uint32_t> slot;
    std::string key;          // a session's turn with this key is answered again, not made again
    std::string session;      // continues this one, or begins it
    std::string fork_from;    // the session begins as this one is
    bool must_exist = false;  // the session
};

// Makes the format when it is known how the prompt ends.
using FormatMaker = std::function<std::unique_ptr<AnswerFormat>(const text::ChatOptions&)>;

void add_responses_routes(std::vector<Route>& routes);

// Renders, tokenises and delivers. With a session its history is read first, on the keeper's
// thread.
Status run_chat(Call& call, ChatTurn turn, const FormatMaker& make_format);

}  // namespace stet::server
