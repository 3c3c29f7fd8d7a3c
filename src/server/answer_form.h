// What clients want answers to look like: fields of requests as sources of grammars, and calls of
// tools that must come.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "server/context.h"
#include "server/delivery.h"
#include "server/job.h"
#include "server/json.h"

namespace stet::server {

using AnswerForm = std::optional<grammar::Source>;  // empty: any

// response_format, and llama-server's json_schema and grammar; one of them at most.
Status read_answer_form(Fields& fields, AnswerForm& form);
// {"type": "json_object"}, {"type": "json_schema", ...}, {"type": "text"}, as in response_format
// and in /v1/responses and /v1/messages, whose schema is one level higher.
Status read_format(const Json& format, std::string_view name, AnswerForm& form);

struct ToolChoice {
    enum class Kind : std::uint8_t { automatic, none, required };
    Kind kind = Kind::automatic;
    std::string tool;  // that must be called; empty: any of them
};

// "auto", "none", "required" or "any", or an object that names a tool, in the forms of all
// interfaces.
Status read_tool_choice(const Json& choice, ToolChoice& tool_choice);

// The form of an answer that may, or must, call tools. `tools`: as in OpenAI's requests.
// invalid_argument: the tool that must be called is not there.
Result<AnswerForm> form_with_tools(const Context& context, const Json& tools,
                                   const ToolChoice& choice, const AnswerForm& form);

// deliver(), once the form is compiled.
Status deliver_in_form(Call& call, const AnswerForm& form, std::vector<std::shared_ptr<Job>> jobs,
                       std::unique_ptr<AnswerFormat> format, bool is_stream);

}  // namespace stet::server
