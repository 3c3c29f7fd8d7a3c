// Calls that are written neither as JSON nor with tags around their values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format/parts.h"
#include "text/chat_format/scan.h"

namespace stet::text {

inline constexpr std::string_view kTextMark = "<|\"|>";  // of Gemma 4

// What stands around a text, so that brackets in it count for nothing.
enum class Quotes : std::uint8_t {
    python,  // ' or ", with backslashes
    marked,  // kTextMark on both sides
};

// Follows one bracket, of any kind, to its end: character after character.
class LiteralScanner {
  public:
    explicit LiteralScanner(Quotes quotes) : quotes_(quotes) {}
    JsonScanner::Step add(char c);

  private:
    bool is_quoted(char c);  // whether `c` belongs to a quoted text

    Quotes quotes_;
    int depth_ = 0;
    char quote_ = 0;           // python: the one that is open
    bool is_escaped_ = false;  // python: after a backslash
    bool is_open_ = false;     // marked: between two marks
    std::size_t matched_ = 0;  // marked: bytes of a mark so far
};

// Python: "[f(a=1, b='x'), g()]". Positional arguments, names that are expressions and values that
// are no literals are something else: nullopt.
std::optional<std::vector<ToolCall>> calls_of_python(std::string_view text);

// Gemma 4: "{a:1,b:<|"|>x<|"|>,c:[true]}" as a JSON object. Nested at most as deep as
// LiteralScanner allows.
std::optional<std::string> json_of_marked(std::string_view text);

}  // namespace stet::text
