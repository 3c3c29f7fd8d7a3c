// Where the answer of a chat model begins, behind its reasoning.
#pragma once

#include "grammar/matcher.h"
#include "text/chat_parser.h"

namespace stet::grammar {

// `output`: how the answer begins (text::chat_options_of). invalid_argument: the format has no
// place where an answer, and nothing else, begins.
Result<Begin> begin_of_answer(const text::ChatOptions& output, const text::Tokenizer& tokenizer);

// The same for calls of tools, which stand where the format puts them.
Begin begin_of_calls(const text::ChatOptions& output, const text::Tokenizer& tokenizer);

}  // namespace stet::grammar
