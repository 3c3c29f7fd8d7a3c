#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace stet::text {
namespace {

constexpr bool is_continuation(unsigned char byte) {
    return (byte & 0xC0) == 0x80;
}

unsigned char byte_at(std::string_view text, std::size_t offset) {
    return static_cast<unsigned char>(text[offset]);
}

// The range that the second byte must lie in rules out overlong forms, surrogates and values
// beyond U+10FFFF.
struct SecondByte {
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
};

SecondByte second_byte(unsigned char lead) {
    switch (lead) {
        case 0xE0:
            return {0xA0, 0xBF};
        case 0xED:
            return {0x80, 0x9F};
        case 0xF0:
            return {0x90, 0xBF};
        case 0xF4:
            return {0x80, 0x8F};
        default:
            return {};
    }
}

std::size_t skip_ascii(std::string_view text, std::size_t offset) {
    while (offset + 8 <= text.size()) {
        std::uint64_t chunk = 0;
        std::memcpy(&chunk, text.data() + offset, sizeof(chunk));
        if ((chunk & 0x8080808080808080ULL) != 0) break;
        offset += 8;
    }
    while (offset < text.size() && byte_at(text, offset) < 0x80) ++offset;
    return offset;
}

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

Utf8Step utf8_step_beyond_ascii(std::string_view text, std::size_t offset) {
    const unsigned char lead = byte_at(text, offset);
    if (lead < 0xC2 || lead > 0xF4) return {};
    const std::uint32_t length = utf8_length(lead);
    char32_t codepoint = lead & (0x7FU >> length);
    const SecondByte second = second_byte(lead);
    for (std::uint32_t i = 1; i < length; ++i) {
        if (offset + i >= text.size()) return {0xFFFD, i, false, true};
        const unsigned char byte = byte_at(text, offset + i);
        const bool fits =
            i == 1 ? byte >= second.low && byte <= second.high : is_continuation(byte);
        if (!fits) return {0xFFFD, i, false, false};
        codepoint = codepoint << 6 | (byte & 0x3FU);
    }
    return {codepoint, length, true, false};
}

void utf8_append(std::string& out, char32_t c) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (c < 0x80) {
        put(c);
    } else if (c < 0x800) {
        put(0xC0 | c >> 6);
        put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        put(0xE0 | c >> 12);
        put(0x80 | (c >> 6 & 0x3F));
        put(0x80 | (c & 0x3F));
    } else {
        put(0xF0 | c >> 18);
        put(0x80 | (c >> 12 & 0x3F));
        put(0x80 | (c >> 6 & 0x3F));
        put(0x80 | (c & 0x3F));
    }
}

std::size_t utf8_valid_prefix(std::string_view text) {
    std::size_t offset = skip_ascii(text, 0);
    while (offset < text.size()) {
        const Utf8Step step = utf8_step(text, offset);
        if (!step.valid) return offset;
        offset += step.length;
        if (offset < text.size() && byte_at(text, offset) < 0x80) offset = skip_ascii(text, offset);
    }
    return offset;
}

std::string utf8_sanitize(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t valid = utf8_valid_prefix(text);
        out.append(text.substr(0, valid));
        if (valid == text.size()) break;
        out.append(kReplacementUtf8);
        text.remove_prefix(valid + utf8_step(text, valid).length);
    }
    return out;
}

bool is_space(char32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_decimal_digit(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_number(char32_t c) {
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t c) {
    const auto kind = category(c);  // the enum has letters, marks and numbers in this order
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NO) ||
           kind == UTF8PROC_CATEGORY_PC;
}

bool is_punctuation(char32_t c) {
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_nonspacing_mark(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_MN;
}

bool is_control(char32_t c) {
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_CC && kind <= UTF8PROC_CATEGORY_CO;
}

char32_t to_lower(char32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

std::vector<char32_t> nfd(std::string_view valid_utf8) {
    std::vector<char32_t> out;
    out.reserve(valid_utf8.size());
    const auto combining = [](char32_t c) {
        return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
    };
    std::size_t marks_begin = 0;  // out[marks_begin..] are combining marks not yet put in order
    const auto sort_marks = [&] {
        if (out.size() - marks_begin > 1) {
            std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(marks_begin), out.end(),
                             [&](char32_t a, char32_t b) { return combining(a) < combining(b); });
        }
    };
    for (std::size_t offset = 0; offset < valid_utf8.size();) {
        const Utf8Step step = utf8_step(valid_utf8, offset);
        offset += step.length;
        std::array<utf8proc_int32_t, 32> parts{};
        int boundary = 0;
        const auto count =
            utf8proc_decompose_char(static_cast<utf8proc_int32_t>(step.codepoint), parts.data(),
                                    parts.size(), UTF8PROC_DECOMPOSE, &boundary);
        const bool fits = count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size());
        for (utf8proc_ssize_t i = 0; i < (fits ? count : 1); ++i) {
            const char32_t part =
                fits ? static_cast<char32_t>(parts[static_cast<std::size_t>(i)]) : step.codepoint;
            if (combining(part) == 0) {
                sort_marks();
                out.push_back(part);
                marks_begin = out.size();
            } else {
                out.push_back(part);
            }
        }
    }
    sort_marks();
    return out;
}

const ByteAlphabet& byte_alphabet() {
    static const ByteAlphabet alphabet = [] {
        ByteAlphabet made;
        made.byte.fill(-1);
        char32_t spare = 256;  // bytes that don't print take the characters from here on
        for (int byte = 0; byte < 256; ++byte) {
            const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
            const char32_t c = prints ? static_cast<char32_t>(byte) : spare++;
            utf8_append(made.text[static_cast<std::size_t>(byte)], c);
            made.byte[c] = static_cast<std::int16_t>(byte);
        }
        return made;
    }();
    return alphabet;
}

void append_byte_encoded(std::string& out, std::string_view bytes) {
    const ByteAlphabet& alphabet = byte_alphabet();
    for (const char byte : bytes) out.append(alphabet.text[static_cast<unsigned char>(byte)]);
}

std::string byte_decoded(std::string_view token) {
    const ByteAlphabet& alphabet = byte_alphabet();
    std::string out;
    for (std::size_t offset = 0; offset < token.size();) {
        const Utf8Step step = utf8_step(token, offset);
        const bool known = step.valid && step.codepoint < alphabet.byte.size() &&
                           alphabet.byte[step.codepoint] >= 0;
        if (!known) return std::string(token);
        out.push_back(static_cast<char>(alphabet.byte[step.codepoint]));
        offset += step.length;
    }
    return out;
}

void append_escaped_spaces(std::string& out, std::string_view text) {
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t space = text.find(' ', begin);
        out.append(text.substr(begin, space - begin));
        if (space == std::string_view::npos) return;
        out.append(kEscapedSpace);
        begin = space + 1;
    }
}

std::string unescaped_spaces(std::string_view text) {
    std::string out;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t space = text.find(kEscapedSpace, begin);
        out.append(text.substr(begin, space - begin));
        if (space == std::string_view::npos) break;
        out.push_back(' ');
        begin = space + kEscapedSpace.size();
    }
    return out;
}

}  // namespace stet::text
