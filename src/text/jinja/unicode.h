// Strings of templates are valid UTF-8 whose length, indices and character classes are those of
// code points, as in Python. Everything here requires valid UTF-8 except is_valid_utf8().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stet::text::jinja {

bool is_valid_utf8(std::string_view bytes);
// The code point at `offset`, which must be the start of one; moves `offset` behind it.
char32_t decode_at(std::string_view text, std::size_t& offset);
std::u32string decode(std::string_view text);
// Surrogates and values beyond U+10FFFF become U+FFFD.
void append_utf8(std::string& out, char32_t code_point);
std::string encode(std::u32string_view code_points);
std::size_t count_code_points(std::string_view text);
// Byte offset of code point `index`; the size of `text` when there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index);

bool is_space(char32_t c);
bool is_line_break(char32_t c);
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
// A character of a template's identifiers; `first` excludes digits.
bool is_identifier_char(char32_t c, bool first);

enum class Side : std::uint8_t { left, right, both };
// Without whitespace, or without any of the code points of `chars`, at the given side.
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, Side side, std::string_view chars);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title_case(std::string_view text);  // str.title(): a word is a run of letters
std::string swap_case(std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace stet::text::jinja
