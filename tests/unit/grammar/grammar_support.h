// A tokenizer to test grammars with, and answers fed to them token by token.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/matcher.h"
#include "support/models.h"
#include "text/tokenizer.h"

namespace stet::grammar {

// SmolLM2's, loaded once; null (and the test skipped or failed) when the file is not there.
inline const text::Tokenizer* tokenizer() {
    static const std::unique_ptr<text::Tokenizer> loaded = [] {
        const auto file = test::open_model("models/smollm2-135m-instruct-q4_1.gguf");
        if (!file) return std::unique_ptr<text::Tokenizer>();
        auto made = text::Tokenizer::load(*file);
        EXPECT_TRUE(made) << made.status().to_string();
        return made ? std::move(made).value() : nullptr;
    }();
    return loaded.get();
}

#define STET_NEED_TOKENIZER() \
    if (tokenizer() == nullptr) return

inline std::vector<Token> tokens_of(std::string_view text) {
    auto tokens = tokenizer()->encode(text, {.add_special = false, .parse_special = false});
    EXPECT_TRUE(tokens);
    return tokens ? *tokens : std::vector<Token>();
}

inline std::uint32_t vocabulary() {
    return static_cast<std::uint32_t>(tokenizer()->size());
}

// Whether the matcher lets the text pass, each token allowed by the mask before it comes.
inline bool passes(Matcher& matcher, std::string_view text) {
    const std::vector<float> logits(vocabulary(), 0.0F);
    for (const Token token : tokens_of(text)) {
        const auto mask = matcher.mask(logits);
        EXPECT_TRUE(mask) << mask.status().to_string();
        if (!mask || mask->empty()) return false;
        if (std::isinf((*mask)[static_cast<std::size_t>(token)])) return false;
        const auto accepted = matcher.accept(token);
        EXPECT_TRUE(accepted) << accepted.status().to_string();
        if (!accepted || !*accepted) return false;
    }
    return true;
}

// Whether generation may end here.
inline bool may_end(Matcher& matcher) {
    const std::vector<float> logits(vocabulary(), 0.0F);
    const auto mask = matcher.mask(logits);
    EXPECT_TRUE(mask) << mask.status().to_string();
    return mask && !mask->empty() &&
           !std::isinf((*mask)[static_cast<std::size_t>(tokenizer()->eos())]);
}

inline std::unique_ptr<Matcher> matcher_of(Compiler& compiler, const Source& source,
                                           Begin begin = {}) {
    auto grammar = compiler.compile(source);
    EXPECT_TRUE(grammar) << grammar.status().to_string();
    if (!grammar) return nullptr;
    auto made = Matcher::create({*grammar, std::move(begin)}, *tokenizer());
    EXPECT_TRUE(made) << made.status().to_string();
    return made ? std::move(made).value() : nullptr;
}

// The whole text is an answer.
inline bool allows(Compiler& compiler, const Source& source, std::string_view text) {
    const auto matcher = matcher_of(compiler, source);
    return matcher != nullptr && passes(*matcher, text) && matcher->is_complete() &&
           may_end(*matcher);
}

}  // namespace stet::grammar
