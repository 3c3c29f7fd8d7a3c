#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

struct Operator {
    std::string_view text;
    TokenKind kind;
};

// Longer operators before their prefixes.
constexpr std::array<Operator, 26> kOperators = {{
    {"//", TokenKind::floordiv}, {"**", TokenKind::pow},     {"==", TokenKind::eq},
    {"!=", TokenKind::ne},       {">=", TokenKind::ge},      {"<=", TokenKind::le},
    {"+", TokenKind::add},       {"-", TokenKind::sub},      {"*", TokenKind::mul},
    {"/", TokenKind::div},       {"%", TokenKind::mod},      {"~", TokenKind::tilde},
    {"<", TokenKind::lt},        {">", TokenKind::gt},       {"=", TokenKind::assign},
    {".", TokenKind::dot},       {",", TokenKind::comma},    {":", TokenKind::colon},
    {";", TokenKind::semicolon}, {"|", TokenKind::pipe},     {"(", TokenKind::lparen},
    {")", TokenKind::rparen},    {"[", TokenKind::lbracket}, {"]", TokenKind::rbracket},
    {"{", TokenKind::lbrace},    {"}", TokenKind::rbrace},
}};

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_digit_of(char c, int base) {
    if (base == 16) {
        return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    }
    return c >= '0' && c < '0' + base;
}

std::string normalize_newlines(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            out.push_back('\n');
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            out.push_back(source[i]);
        }
    }
    // The one newline that ends a file is not part of the template.
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

class Lexer {
  public:
    explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

    std::vector<Token> run() {
        while (position_ < source_.size()) root();
        emit(TokenKind::end, {});
        return std::move(tokens_);
    }

  private:
    bool at(std::string_view text) const { return at(position_, text); }
    bool at(std::size_t position, std::string_view text) const {
        return std::string_view(source_).substr(position, text.size()) == text;
    }
    char peek(std::size_t offset) const { return offset < source_.size() ? source_[offset] : '\0'; }

    void emit(TokenKind kind, std::string text) {
        tokens_.push_back({kind, line_, std::move(text)});
    }

    // Moves to `end`, counting lines.
    void advance_to(std::size_t end) {
        line_ += static_cast<std::uint32_t>(
            std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                       source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
        if (end > position_) line_starting_ = source_[end - 1] == '\n';
        position_ = end;
    }

    std::size_t skip_space(std::size_t offset) const {
        while (offset < source_.size()) {
            std::size_t next = offset;
            if (!is_space(decode_at(source_, next))) break;
            offset = next;
        }
        return offset;
    }

    // The end of `{% WORD %}` with its signs when it starts at `position`, else npos. `plus` says
    // whether "+%}" may end it; `trims` whether a newline behind it belongs to it.
    std::size_t match_word_tag(std::size_t position, std::string_view word, bool plus, bool trims) {
        std::size_t p = position + 2;
        if (peek(p) == '-' || peek(p) == '+') ++p;
        p = skip_space(p);
        if (!at(p, word)) return std::string::npos;
        p = skip_space(p + word.size());
        if (at(p, "-%}")) return skip_space(p + 3);
        if (plus && at(p, "+%}")) return p + 3;
        if (!at(p, "%}")) return std::string::npos;
        p += 2;
        return trims && peek(p) == '\n' ? p + 1 : p;
    }

    // Text before a tag whose opening is two characters at `tag`, after the sign behind it or the
    // lstrip_blocks rule has taken its whitespace.
    void emit_data(std::size_t tag, bool may_lstrip) {
        std::string_view text = std::string_view(source_).substr(position_, tag - position_);
        const char sign = peek(tag + 2);
        if (sign == '-') {
            text = strip(text, Side::right);
        } else if (sign != '+' && may_lstrip) {
            const std::size_t newline = text.rfind('\n');
            const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
            if ((start > 0 || line_starting_) && strip(text.substr(start), Side::left).empty()) {
                text = text.substr(0, start);
            }
        }
        if (!text.empty()) emit(TokenKind::data, std::string(text));
        advance_to(tag);
    }

    void root() {
        std::size_t tag = position_;
        for (;; ++tag) {
            tag = source_.find('{', tag);
            if (tag == std::string::npos || tag + 1 >= source_.size()) {
                emit(TokenKind::data, source_.substr(position_));
                advance_to(source_.size());
                return;
            }
            const char next = source_[tag + 1];
            if (next == '{' || next == '%' || next == '#') break;
        }
        const char type = source_[tag + 1];
        emit_data(tag, type != '{');
        if (type == '%') {
            const std::size_t end = match_word_tag(tag, "raw", false, false);
            if (end != std::string::npos) {
                advance_to(end);
                raw();
                return;
            }
        }
        const char sign = peek(tag + 2);
        const std::size_t inside = tag + (sign == '-' || sign == '+' ? 3 : 2);
        if (type == '#') {
            comment(inside);
            return;
        }
        emit(type == '{' ? TokenKind::variable_begin : TokenKind::block_begin, {});
        advance_to(inside);
        inside_tag(type == '%');
    }

    void comment(std::size_t inside) {
        if (inside == source_.size()) {  // a last "{#" with nothing behind it is let pass
            advance_to(inside);
            return;
        }
        std::size_t close = source_.find("#}", inside);
        if (close == std::string::npos) fail("a comment {# is not closed by #}", line_);
        const char sign = close > inside ? source_[close - 1] : '\0';
        close += 2;
        if (sign == '-') {
            close = skip_space(close);
        } else if (sign != '+' && peek(close) == '\n') {
            ++close;
        }
        advance_to(close);
    }

    void raw() {
        if (position_ == source_.size()) return;  // let pass, as a last "{#" is
        for (std::size_t tag = position_;; tag += 2) {
            tag = source_.find("{%", tag);
            if (tag == std::string::npos) fail("{% raw %} is not closed by {% endraw %}", line_);
            const std::size_t end = match_word_tag(tag, "endraw", true, true);
            if (end == std::string::npos) continue;
            emit_data(tag, true);
            advance_to(end);
            return;
        }
    }

    bool tag_end(bool block) {
        const std::string_view close = block ? "%}" : "}}";
        std::size_t p = position_;
        const char sign = peek(p);
        if (sign == '-' || (block && sign == '+')) ++p;
        if (!at(p, close)) return false;
        emit(block ? TokenKind::block_end : TokenKind::variable_end, {});
        if (sign == '-') {
            p = skip_space(p + 2);
        } else if (sign == '+' || !block || peek(p + 2) != '\n') {
            p += 2;
        } else {
            p += 3;
        }
        advance_to(p);
        return true;
    }

    void inside_tag(bool block) {
        open_.clear();
        while (position_ < source_.size()) {
            if (open_.empty() && tag_end(block)) return;
            const std::size_t next = skip_space(position_);
            if (next != position_) {
                advance_to(next);
                continue;
            }
            if (number() || name() || string() || op()) continue;
            fail(fmt::format("unexpected character '{}' in a tag", character_at(position_)), line_);
        }
        // Running out inside a tag is the parser's to report: it knows what was expected.
    }

    std::string character_at(std::size_t position) const {
        std::size_t end = position;
        decode_at(source_, end);
        return source_.substr(position, end - position);
    }

    // End of a run of digits in which single '_' may stand between two digits.
    std::size_t digits(std::size_t p, int base) const {
        if (!is_digit_of(peek(p), base)) return p;
        ++p;
        for (;;) {
            if (is_digit_of(peek(p), base)) {
                ++p;
            } else if (peek(p) == '_' && is_digit_of(peek(p + 1), base)) {
                p += 2;
            } else {
                return p;
            }
        }
    }

    std::size_t real_end() const {
        if (position_ > 0 && source_[position_ - 1] == '.') return position_;
        std::size_t p = digits(position_, 10);
        bool real = false;
        if (peek(p) == '.' && is_digit(peek(p + 1))) {
            p = digits(p + 1, 10);
            real = true;
        }
        if (peek(p) == 'e' || peek(p) == 'E') {
            const std::size_t exponent = p + (peek(p + 1) == '+' || peek(p + 1) == '-' ? 2 : 1);
            if (is_digit(peek(exponent))) {
                p = digits(exponent, 10);
                real = true;
            }
        }
        return real ? p : position_;
    }

    std::size_t integer_end() const {
        if (source_[position_] != '0') return digits(position_, 10);
        const char kind = static_cast<char>(peek(position_ + 1) | 0x20);
        const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 1;
        if (base > 1) {
            std::size_t p = position_ + 2;
            if (peek(p) == '_') ++p;
            const std::size_t end = digits(p, base);
            if (end != p) return end;
        }
        return digits(position_, 1);  // zeros only
    }

    bool number() {
        if (!is_digit(source_[position_])) return false;
        std::size_t end = real_end();
        const bool real = end != position_;
        if (!real) end = integer_end();
        std::string text = source_.substr(position_, end - position_);
        text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
        emit(real ? TokenKind::real : TokenKind::integer, std::move(text));
        advance_to(end);
        return true;
    }

    bool name() {
        std::size_t end = position_;
        while (end < source_.size()) {
            std::size_t next = end;
            if (!is_identifier_char(decode_at(source_, next), end == position_)) break;
            end = next;
        }
        if (end == position_) return false;
        emit(TokenKind::name, source_.substr(position_, end - position_));
        advance_to(end);
        return true;
    }

    bool string() {
        const char quote = source_[position_];
        if (quote != '\'' && quote != '"') return false;
        std::size_t end = position_ + 1;
        while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
        if (end >= source_.size()) fail("a string is not closed", line_);
        const std::string_view body =
            std::string_view(source_).substr(position_ + 1, end - position_ - 1);
        emit(TokenKind::string, unescape(body));
        advance_to(end + 1);
        return true;
    }

    std::string unescape(std::string_view body) const;
    char32_t hex_escape(std::string_view body, std::size_t& i, std::size_t count) const;

    bool op() {
        for (const Operator& candidate : kOperators) {
            if (!at(candidate.text)) continue;
            balance(candidate.text.front());
            emit(candidate.kind, {});
            advance_to(position_ + candidate.text.size());
            return true;
        }
        return false;
    }

    void balance(char c) {
        if (c == '{') open_.push_back('}');
        if (c == '(') open_.push_back(')');
        if (c == '[') open_.push_back(']');
        if (c != '}' && c != ')' && c != ']') return;
        if (open_.empty()) fail(fmt::format("unexpected '{}'", c), line_);
        if (open_.back() != c) {
            fail(fmt::format("unexpected '{}', expected '{}'", c, open_.back()), line_);
        }
        open_.pop_back();
    }

    std::string source_;
    std::size_t position_ = 0;
    std::uint32_t line_ = 1;
    bool line_starting_ = true;  // what was read last ended a line
    std::string open_;           // closing brackets still to come in this tag
    std::vector<Token> tokens_;
};

char32_t Lexer::hex_escape(std::string_view body, std::size_t& i, std::size_t count) const {
    char32_t value = 0;
    for (std::size_t n = 0; n < count; ++n, ++i) {
        if (i >= body.size() || !is_digit_of(body[i], 16)) {
            fail(fmt::format("a string has an escape with fewer than {} hex digits", count), line_);
        }
        const char c = static_cast<char>(body[i] | 0x20);
        value = value * 16 + static_cast<char32_t>(is_digit(body[i]) ? c - '0' : c - 'a' + 10);
    }
    if (value > 0x10FFFF) fail("a string has an escape beyond U+10FFFF", line_);
    return value;
}

std::string Lexer::unescape(std::string_view body) const {
    constexpr std::string_view kFrom = "\\'\"abfnrtv";
    constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    out.reserve(body.size());
    char32_t high = 0;  // first half of a surrogate pair
    const auto put = [&](char32_t c) {
        if (high != 0 && c >= 0xDC00 && c < 0xE000) {
            c = 0x10000 + ((high - 0xD800) << 10U) + (c - 0xDC00);
            high = 0;
        }
        if (high != 0) append_utf8(out, std::exchange(high, 0));
        if (c >= 0xD800 && c < 0xDC00) {
            high = c;
        } else {
            append_utf8(out, c);
        }
    };
    for (std::size_t i = 0; i < body.size();) {
        if (body[i] != '\\') {
            put(decode_at(body, i));
            continue;
        }
        const char c = ++i < body.size() ? body[i] : '\\';
        if (const std::size_t known = kFrom.find(c); known != std::string_view::npos) {
            put(static_cast<char32_t>(kTo[known]));
            ++i;
        } else if (c >= '0' && c <= '7') {
            char32_t value = 0;
            for (int n = 0; n < 3 && i < body.size() && is_digit_of(body[i], 8); ++n, ++i) {
                value = value * 8 + static_cast<char32_t>(body[i] - '0');
            }
            put(value);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            ++i;
            put(hex_escape(body, i, c == 'x' ? 2 : c == 'u' ? 4 : 8));
        } else if (c == 'N') {
            fail("a string has a \\N{...} escape, which is not supported", line_);
        } else if (c == '\n') {
            ++i;
        } else {
            put('\\');
        }
    }
    if (high != 0) append_utf8(out, high);
    return out;
}

}  // namespace

std::string describe(const Token& token) {
    switch (token.kind) {
        case TokenKind::data:
            return "text";
        case TokenKind::variable_begin:
            return "'{{'";
        case TokenKind::variable_end:
            return "'}}'";
        case TokenKind::block_begin:
            return "'{%'";
        case TokenKind::block_end:
            return "'%}'";
        case TokenKind::end:
            return "end of template";
        case TokenKind::string:
            return "a string";
        case TokenKind::name:
        case TokenKind::integer:
        case TokenKind::real:
            return fmt::format("'{}'", token.text.substr(0, 64));
        default:
            break;
    }
    for (const Operator& op : kOperators) {
        if (op.kind == token.kind) return fmt::format("'{}'", op.text);
    }
    return "a token";
}

std::vector<Token> tokenize(std::string_view source) {
    return Lexer(source).run();
}

}  // namespace stet::text::jinja
