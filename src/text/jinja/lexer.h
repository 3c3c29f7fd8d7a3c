// Splits a template into text, tags and the tokens inside tags, with Jinja's whitespace control and
// the settings trim_blocks and lstrip_blocks on, as chat templates are written for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stet::text::jinja {

enum class TokenKind : std::uint8_t {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    end,
    add,
    sub,
    mul,
    div,
    floordiv,
    mod,
    pow,
    tilde,
    eq,
    ne,
    lt,
    le,
    gt,
    ge,
    assign,
    dot,
    comma,
    colon,
    semicolon,
    pipe,
    lparen,
    rparen,
    lbracket,
    rbracket,
    lbrace,
    rbrace,
};

struct Token {
    TokenKind kind;
    std::uint32_t line;
    std::string text;  // of data and names; the value of strings; digits without '_' of numbers
};

// "'endif'", "end of print statement", ...: for messages.
std::string describe(const Token& token);

// The last token is `end`. Throws TemplateError. `source` is valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace stet::text::jinja
