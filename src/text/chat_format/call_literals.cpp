#include "text/chat_format/call_literals.h"

#include <algorithm>

#include "text/chat_format/call_json.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

bool is_identifier(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_word_character);
}

bool is_bare_key(std::string_view text) {
    return !text.empty() && text.find_first_of(",{}[]()") == std::string_view::npos;
}

// Reads literals and writes them as JSON. Every function answers false where the text is none.
class LiteralParser {
  public:
    LiteralParser(std::string_view text, Quotes quotes) : text_(text), quotes_(quotes) {}

    bool at_end() {
        skip();
        return at_ == text_.size();
    }
    bool take(char c) {
        skip();
        if (at_ == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    // The name before `c`, which is taken with it.
    bool name_before(char c, std::string& name) {
        skip();
        const std::size_t end = text_.find(c, at_);
        if (end == std::string_view::npos) return false;
        name = without_blanks(text_.substr(at_, end - at_));
        at_ = end + 1;
        return true;
    }
    bool value(std::string& json, int depth) {
        skip();
        if (at_ == text_.size() || depth > kBracketsDepthMax) return false;
        const char c = text_[at_];
        if (c == '{') return mapping(json, depth);
        if (c == '[' || c == '(') return list(json, c == '[' ? ']' : ')', depth);
        std::string text;
        if (begins_text()) {
            if (!quoted(text)) return false;
            json += json_string(text);
            return true;
        }
        return word(json);
    }
    bool mapping(std::string& json, int depth) {
        if (!take('{')) return false;
        json += '{';
        for (bool is_first = true; !take('}'); is_first = false) {
            if (!is_first && !take(',')) return false;
            if (!is_first && take('}')) break;  // Python allows a last comma
            std::string key;
            skip();
            if (begins_text()) {
                if (!quoted(key) || !take(':')) return false;
            } else if (quotes_ == Quotes::python || !name_before(':', key) || !is_bare_key(key)) {
                return false;
            }
            json += (is_first ? "" : ",") + json_string(key) + ":";
            if (!value(json, depth + 1)) return false;
        }
        json += '}';
        return true;
    }
    // name(key=value, ...)
    bool call(ToolCall& call) {
        if (!name_before('(', call.name) || !is_identifier(call.name)) return false;
        call.arguments = "{";
        for (bool is_first = true; !take(')'); is_first = false) {
            if (!is_first && !take(',')) return false;
            if (!is_first && take(')')) break;
            std::string key;
            if (!name_before('=', key) || !is_identifier(key)) return false;
            call.arguments += (is_first ? "" : ",") + json_string(key) + ":";
            if (!value(call.arguments, 1)) return false;
        }
        call.arguments += '}';
        return true;
    }

  private:
    void skip() { at_ = skip_blanks(text_, at_); }
    bool begins_text() const {
        if (quotes_ == Quotes::marked) return text_.substr(at_).starts_with(kTextMark);
        return at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'');
    }
    bool list(std::string& json, char close, int depth) {
        ++at_;
        json += '[';
        for (bool is_first = true; !take(close); is_first = false) {
            if (!is_first && !take(',')) return false;
            if (!is_first && take(close)) break;
            if (!is_first) json += ',';
            if (!value(json, depth + 1)) return false;
        }
        json += ']';
        return true;
    }
    bool quoted(std::string& out) {
        if (quotes_ == Quotes::marked) {
            at_ += kTextMark.size();
            const std::size_t end = text_.find(kTextMark, at_);
            if (end == std::string_view::npos) return false;
            out = text_.substr(at_, end - at_);
            at_ = end + kTextMark.size();
            return true;
        }
        const char quote = text_[at_++];
        while (at_ < text_.size() && text_[at_] != quote) {
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
                ++at_;
                escape(out);
            } else {
                out += text_[at_++];
            }
        }
        if (at_ == text_.size()) return false;
        ++at_;
        return true;
    }
    // After a backslash. What Python doesn't know stays with its backslash.
    void escape(std::string& out) {
        constexpr std::string_view kFrom = "ntrbf\\'\"/0";
        constexpr std::string_view kTo{"\n\t\r\b\f\\'\"/\0", 10};
        const char c = text_[at_++];
        if (const std::size_t known = kFrom.find(c); known != std::string_view::npos) {
            out += kTo[known];
            return;
        }
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        char32_t code = 0;
        const bool is_code = digits > 0 && text_.size() - at_ >= digits &&
                             std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + digits),
                                         [&](char digit) { return add_hex(digit, code); });
        if (!is_code || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
            out += '\\';
            out += c;
            return;
        }
        utf8_append(out, code);
        at_ += digits;
    }
    static bool add_hex(char digit, char32_t& code) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        const std::size_t value = kDigits.find(static_cast<char>(digit | 0x20));
        if (value == std::string_view::npos) return false;
        code = code << 4 | static_cast<char32_t>(value);
        return true;
    }
    // A number, or a word of either language.
    bool word(std::string& json) {
        const std::size_t end = std::min(text_.find_first_of(",:)]}", at_), text_.size());
        const std::string_view word = without_blanks(text_.substr(at_, end - at_));
        at_ = end;
        if (word.empty()) return false;
        if (word == "True" || word == "False") {
            json += word == "True" ? "true" : "false";
        } else if (word == "None") {
            json += "null";
        } else {
            const std::string found = json_value(word, false);
            if (found.starts_with('"') && quotes_ == Quotes::python) return false;
            json += found;
        }
        return true;
    }

    std::string_view text_;
    Quotes quotes_;
    std::size_t at_ = 0;
};

}  // namespace

bool LiteralScanner::is_quoted(char c) {
    if (quotes_ == Quotes::marked) {
        // No part of a mark begins it anew but its first byte.
        matched_ = c == kTextMark[matched_] ? matched_ + 1 : c == kTextMark[0] ? 1 : 0;
        if (matched_ == kTextMark.size()) {
            matched_ = 0;
            is_open_ = !is_open_;
            return true;
        }
        return is_open_;
    }
    if (quote_ == 0) {
        if (c == '"' || c == '\'') quote_ = c;
        return quote_ != 0;
    }
    if (is_escaped_) {
        is_escaped_ = false;
    } else if (c == '\\') {
        is_escaped_ = true;
    } else if (c == quote_) {
        quote_ = 0;
    }
    return true;
}

JsonScanner::Step LiteralScanner::add(char c) {
    using Step = JsonScanner::Step;
    if (is_quoted(c)) return depth_ == 0 ? Step::bad : Step::more;
    if (c == '{' || c == '[' || c == '(') ++depth_;
    if (c == '}' || c == ']' || c == ')') --depth_;
    if (depth_ < 0 || depth_ > kBracketsDepthMax) return Step::bad;
    if (depth_ > 0) return Step::more;
    return c == '}' || c == ']' || c == ')' ? Step::end : Step::bad;
}

std::optional<std::vector<ToolCall>> calls_of_python(std::string_view text) {
    LiteralParser parser(text, Quotes::python);
    std::vector<ToolCall> calls;
    if (!parser.take('[')) return std::nullopt;
    while (!parser.take(']')) {
        if (!calls.empty() && !parser.take(',')) return std::nullopt;
        if (!calls.empty() && parser.take(']')) break;
        if (!parser.call(calls.emplace_back())) return std::nullopt;
    }
    if (calls.empty() || !parser.at_end()) return std::nullopt;
    return calls;
}

std::optional<std::string> json_of_marked(std::string_view text) {
    LiteralParser parser(text, Quotes::marked);
    std::string json;
    if (!parser.mapping(json, 1) || !parser.at_end()) return std::nullopt;
    return json;
}

}  // namespace stet::text
