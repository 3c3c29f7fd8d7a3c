// What an answer may look like: a JSON schema or a grammar (GBNF), compiled against a vocabulary
// into the set of tokens that may come next at each of its places. xgrammar does the work
// (arXiv 2411.15100); its names stay in this folder.
//
// Sources come from strangers. Their size and nesting are bounded, compiling counts its steps and
// stops at a bound, and it runs on a stack of its own, so that no source recurses out of one.
//
// Thread rules: a Grammar is immutable; a Compiler may be used by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "stet/status.h"
#include "text/tokenizer.h"

namespace stet::grammar {

using text::Token;

enum class Kind : std::uint8_t {
    json_schema,  // the answer is one JSON value that the schema allows
    gbnf,         // llama.cpp's form of BNF; the rule "root" is the answer
    tags,         // xgrammar's structural tags, made by forced_call.h
};

struct Source {
    Kind kind = Kind::json_schema;
    std::string text;

    auto operator<=>(const Source&) const = default;
};

// The schema of response_format {"type": "json_object"}.
Source any_json_object();

struct Limits {
    std::size_t source_bytes = 128U << 10U;
    std::uint32_t depth = 64;               // of brackets in a source
    std::int64_t compile_steps = 20000000;  // a second or two; schemas take some 100,000
    std::size_t grammar_bytes = 64U << 20U;
    std::size_t cache_bytes = 256U << 20U;
    std::size_t cache_count = 64;
};

class Grammar;  // compiled

class Compiler {
  public:
    // `vocabulary`: rows of the model's logits, at least the tokenizer's size. The tokenizer must
    // outlive the compiler.
    Compiler(const text::Tokenizer& tokenizer, std::uint32_t vocabulary, const Limits& limits = {});
    ~Compiler();

    // From memory when it was compiled before. Takes milliseconds to seconds. invalid_argument says
    // in one line what is wrong with the source: no JSON, unknown rule, a keyword that can't be
    // enforced, too large, too much work.
    Result<std::shared_ptr<const Grammar>> compile(const Source& source);
    // Null: not in memory.
    std::shared_ptr<const Grammar> find(const Source& source) const;

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace stet::grammar
