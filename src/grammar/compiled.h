// What is behind a Grammar. Only grammar/*.cpp includes this.
#pragma once

#include <xgrammar/xgrammar.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "text/tokenizer.h"

namespace stet::grammar {

using text::Token;

// The vocabulary as grammars see it: bytes of each token. Control tokens have none: a grammar takes
// them by their ids only.
struct Vocabulary {
    Vocabulary(const text::Tokenizer& tokenizer, std::uint32_t size);

    xgrammar::TokenizerInfo info{xgrammar::NullObj{}};
    std::vector<Token> ends;    // of generation
    std::vector<Token> blanks;  // nothing but spaces and line breaks
};

class Grammar {
  public:
    Grammar(xgrammar::CompiledGrammar compiled_grammar, std::shared_ptr<const Vocabulary> words)
        : compiled(std::move(compiled_grammar)), vocabulary(std::move(words)) {}

    xgrammar::CompiledGrammar compiled;
    std::shared_ptr<const Vocabulary> vocabulary;
};

}  // namespace stet::grammar
