#include "grammar/begin.h"

#include <fmt/format.h>

namespace stet::grammar {
namespace {

// The one token that `text` is, or kNoToken.
Token token_of(std::string_view text, const text::Tokenizer& tokenizer) {
    const auto tokens = tokenizer.encode(text, {.add_special = false, .parse_special = true});
    return tokens && tokens->size() == 1 ? tokens->front() : text::kNoToken;
}

}  // namespace

Begin begin_of_calls(const text::ChatOptions& output, const text::Tokenizer& tokenizer) {
    Begin begin;
    if (!output.reasoning_close.empty()) {
        begin.after.emplace_back(output.reasoning_close);
        return begin;
    }
    for (const text::Pair& pair : output.format->reasoning) {
        begin.opening = token_of(pair.open, tokenizer);
        begin.opened_until = pair.close;
        if (begin.opening != text::kNoToken) break;
    }
    return begin;
}

Result<Begin> begin_of_answer(const text::ChatOptions& output, const text::Tokenizer& tokenizer) {
    if (output.format->shape == text::Shape::marked) return begin_of_calls(output, tokenizer);
    if (output.format->header == text::HeaderKind::channel) {
        Begin begin;
        begin.after = {"final<|message|>", "final <|constrain|>json<|message|>"};
        return begin;
    }
    return Status(
        Code::invalid_argument,
        fmt::format("answers of this model's chat format ({}) can't be held to a grammar: "
                    "they are messages to different recipients",
                    output.format->name));
}

}  // namespace stet::grammar
