#include "grammar/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_brackets.h"

namespace stet::grammar {
namespace {

// Depth of brackets, those inside of strings not counted.
std::uint32_t json_depth(std::string_view text) {
    JsonBrackets brackets;
    std::uint32_t depth = 0, deepest = 0;
    for (const char c : text) {
        const int step = brackets.add(c);
        if (step > 0) deepest = std::max(deepest, ++depth);
        if (step < 0 && depth > 0) --depth;
    }
    return deepest;
}

// Follows GBNF from character to character: what is inside of a literal, a class or a comment is
// not structure.
class GbnfScan {
  public:
    // Whether `c` is structure.
    bool add(char c) {
        const bool was_escape = is_escape_;
        is_escape_ = false;
        switch (part_) {
            case '#':
                if (c == '\n') part_ = 0;
                return false;
            case '"':
            case '[':
                if (!was_escape && c == '\\') is_escape_ = true;
                if (!was_escape && c == (part_ == '"' ? '"' : ']')) part_ = 0;
                return false;
            default:
                if (c == '#' || c == '"' || c == '[') part_ = c;
                return part_ == 0;
        }
    }

  private:
    char part_ = 0;
    bool is_escape_ = false;
};

std::uint32_t gbnf_depth(std::string_view text) {
    GbnfScan scan;
    std::uint32_t depth = 0, deepest = 0;
    for (const char c : text) {
        if (!scan.add(c)) continue;
        if (c == '(') deepest = std::max(deepest, ++depth);
        if (c == ')' && depth > 0) --depth;
    }
    return deepest;
}

bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

}  // namespace

Source any_json_object() {
    return {Kind::json_schema, R"({"type":"object"})"};
}

Status check_size(const Source& source, const Limits& limits) {
    const std::string_view what = source.kind == Kind::json_schema ? "JSON schema" : "grammar";
    if (source.text.size() > limits.source_bytes) {
        return Status(Code::invalid_argument,
                      fmt::format("the {} has {} bytes, at most {} are allowed", what,
                                  source.text.size(), limits.source_bytes));
    }
    const std::uint32_t depth =
        source.kind == Kind::gbnf ? gbnf_depth(source.text) : json_depth(source.text);
    if (depth > limits.depth) {
        return Status(Code::invalid_argument,
                      fmt::format("the {} nests {} levels deep, at most {} are allowed", what,
                                  depth, limits.depth));
    }
    return {};
}

std::string plain_gbnf(std::string_view text) {
    std::string plain;
    GbnfScan scan;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool is_alone =
            (i == 0 || !is_name(text[i - 1])) && (i + 1 == text.size() || !is_name(text[i + 1]));
        if (scan.add(text[i]) && text[i] == '.' && is_alone) {
            plain += "[\\x01-\\U0010FFFF]";
        } else {
            plain += text[i];
        }
    }
    return plain;
}

}  // namespace stet::grammar
