// UTF-8, character classes and the byte alphabet of byte-level vocabularies.
//
// All functions are pure; any thread may call them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stet::text {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";     // U+2581

struct Utf8Step {
    char32_t codepoint = 0xFFFD;
    std::uint32_t length = 1;  // bytes read, at least 1
    bool valid = false;        // else `length` is a maximal ill-formed part (Unicode, 3.9)
    bool cut_short = false;    // ill-formed only because the text ends here
};
Utf8Step utf8_step_beyond_ascii(std::string_view text, std::size_t offset);
// Decodes at `offset`, which must lie inside `text`.
inline Utf8Step utf8_step(std::string_view text, std::size_t offset) {
    const auto lead = static_cast<unsigned char>(text[offset]);
    if (lead < 0x80) return {lead, 1, true, false};
    return utf8_step_beyond_ascii(text, offset);
}
// Length that a leading byte announces, 1 for anything else. For text known to be valid.
inline std::uint32_t utf8_length(unsigned char lead) {
    return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}
void utf8_append(std::string& out, char32_t codepoint);
// Bytes at the front of `text` that are well-formed; all of it when the text is valid.
std::size_t utf8_valid_prefix(std::string_view text);
// Replaces every maximal ill-formed part by U+FFFD, as browsers and Python do.
std::string utf8_sanitize(std::string_view text);

// The White_Space property, which is what \s means to the tokenizers' own patterns.
bool is_space(char32_t c);
inline bool is_ascii_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_decimal_digit(char32_t c);    // Nd
bool is_number(char32_t c);           // N*
bool is_word(char32_t c);             // L*, M*, N*, Pc
bool is_punctuation(char32_t c);      // P*
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_control(char32_t c);          // C* but unassigned
char32_t to_lower(char32_t c);

// Canonical decomposition. Linear but for sorting runs of combining marks, which is O(k log k).
std::vector<char32_t> nfd(std::string_view valid_utf8);

// Byte-level vocabularies write each byte as one printable character.
struct ByteAlphabet {
    std::array<std::string, 256> text;   // byte -> its character
    std::array<std::int16_t, 324> byte;  // character -> byte, or -1
};
const ByteAlphabet& byte_alphabet();
void append_byte_encoded(std::string& out, std::string_view bytes);
// The bytes that a byte-level token stands for; the text itself when it isn't of the alphabet.
std::string byte_decoded(std::string_view token);

void append_escaped_spaces(std::string& out, std::string_view text);  // ' ' becomes U+2581
std::string unescaped_spaces(std::string_view text);                  // and back

}  // namespace stet::text
