// Calls of tools that a model must make: a grammar of the form in which its family writes them,
// with the arguments that the tool's schema allows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "text/chat_parser.h"

namespace stet::grammar {

struct Tool {
    std::string name;
    std::string parameters;  // JSON schema; empty: none
};

// The list of tools as in OpenAI's requests. invalid_argument: a tool without a name, or with one
// that has more than letters, digits, "_", "-" and ".".
Result<std::vector<Tool>> tools_of(std::string_view tools_json);

// How a model writes calls.
struct CallForm {
    const text::ChatFormat* format = nullptr;
    std::string_view chat_template;  // its source says which of the format's forms it is
    const text::Tokenizer* tokenizer = nullptr;
};

// One call of one of the tools, and nothing else; with `or_else` that instead. Tags and GBNF can
// not be `or_else`. invalid_argument: the family's form can't be forced.
Result<Source> forced_call(const CallForm& form, const std::vector<Tool>& tools,
                           const std::optional<Source>& or_else = std::nullopt);

}  // namespace stet::grammar
