#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace stet::text::jinja {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t upper_of(char32_t c) {
    return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t lower_of(char32_t c) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

char32_t title_of(char32_t c) {
    return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

// The only common letter whose capital is two letters.
constexpr char32_t kSharpS = 0xDF;

void append_upper(std::string& out, char32_t c) {
    if (c == kSharpS) {
        out += "SS";
    } else {
        append_utf8(out, upper_of(c));
    }
}

void append_title(std::string& out, char32_t c) {
    if (c == kSharpS) {
        out += "Ss";
    } else {
        append_utf8(out, title_of(c));
    }
}

std::size_t previous(std::string_view text, std::size_t end) {
    std::size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
    return start;
}

template <typename Drop>
std::string_view strip_if(std::string_view text, Side side, Drop drop) {
    std::size_t begin = 0;
    std::size_t end = text.size();
    if (side != Side::right) {
        while (begin < end) {
            std::size_t next = begin;
            if (!drop(decode_at(text, next))) break;
            begin = next;
        }
    }
    if (side != Side::left) {
        while (end > begin) {
            const std::size_t start = previous(text, end);
            std::size_t next = start;
            if (!drop(decode_at(text, next))) break;
            end = start;
        }
    }
    return text.substr(begin, end - begin);
}

}  // namespace

bool is_valid_utf8(std::string_view bytes) {
    const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
    std::size_t offset = 0;
    while (offset < bytes.size()) {
        if (data[offset] < 0x80U) {
            ++offset;
            continue;
        }
        utf8proc_int32_t code_point = 0;
        const auto left = static_cast<utf8proc_ssize_t>(bytes.size() - offset);
        const utf8proc_ssize_t used = utf8proc_iterate(data + offset, left, &code_point);
        if (used <= 0) return false;
        offset += static_cast<std::size_t>(used);
    }
    return true;
}

char32_t decode_at(std::string_view text, std::size_t& offset) {
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) & 0x3FU : 0U;
    };
    const auto lead = static_cast<unsigned char>(text[offset]);
    if (lead < 0x80U) {
        ++offset;
        return lead;
    }
    if (lead < 0xE0U) {
        const char32_t c = ((lead & 0x1FU) << 6U) | byte(offset + 1);
        offset = std::min(offset + 2, text.size());
        return c;
    }
    if (lead < 0xF0U) {
        const char32_t c = ((lead & 0x0FU) << 12U) | (byte(offset + 1) << 6U) | byte(offset + 2);
        offset = std::min(offset + 3, text.size());
        return c;
    }
    const char32_t c = ((lead & 0x07U) << 18U) | (byte(offset + 1) << 12U) |
                       (byte(offset + 2) << 6U) | byte(offset + 3);
    offset = std::min(offset + 4, text.size());
    return c;
}

std::u32string decode(std::string_view text) {
    std::u32string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) out.push_back(decode_at(text, i));
    return out;
}

void append_utf8(std::string& out, char32_t c) {
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = kReplacement;
    const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
    if (c < 0x80) {
        put(c);
    } else if (c < 0x800) {
        put(0xC0U | (c >> 6U));
        put(0x80U | (c & 0x3FU));
    } else if (c < 0x10000) {
        put(0xE0U | (c >> 12U));
        put(0x80U | ((c >> 6U) & 0x3FU));
        put(0x80U | (c & 0x3FU));
    } else {
        put(0xF0U | (c >> 18U));
        put(0x80U | ((c >> 12U) & 0x3FU));
        put(0x80U | ((c >> 6U) & 0x3FU));
        put(0x80U | (c & 0x3FU));
    }
}

std::string encode(std::u32string_view code_points) {
    std::string out;
    out.reserve(code_points.size());
    for (const char32_t c : code_points) append_utf8(out, c);
    return out;
}

std::size_t count_code_points(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
    std::size_t offset = 0;
    for (; index > 0 && offset < text.size(); --index) {
        ++offset;
        while (offset < text.size() &&
               (static_cast<unsigned char>(text[offset]) & 0xC0U) == 0x80U) {
            ++offset;
        }
    }
    return offset;
}

bool is_space(char32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
    if (c < 0x7F) return c >= 0x20;
    switch (category(c)) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS:
            return false;
        default:
            return true;
    }
}

bool is_alpha(char32_t c) {
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_numeric(char32_t c) {
    const auto kind = category(c);
    return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LL;
}

bool is_identifier_char(char32_t c, bool first) {
    if (c < 0x80) {
        return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (!first && c >= '0' && c <= '9');
    }
    if (is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL) return true;
    const auto kind = category(c);
    return !first && (kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
                      kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_PC);
}

std::string_view strip(std::string_view text, Side side) {
    return strip_if(text, side, is_space);
}

std::string_view strip(std::string_view text, Side side, std::string_view chars) {
    std::u32string set = decode(chars);
    std::sort(set.begin(), set.end());
    return strip_if(text, side,
                    [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::string to_upper(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) append_upper(out, decode_at(text, i));
    return out;
}

std::string to_lower(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) append_utf8(out, lower_of(decode_at(text, i)));
    return out;
}

std::string capitalize(std::string_view text) {
    if (text.empty()) return {};
    std::string out;
    std::size_t offset = 0;
    append_title(out, decode_at(text, offset));
    return out + to_lower(text.substr(offset));
}

std::string title_case(std::string_view text) {
    std::string out;
    bool in_word = false;
    for (std::size_t i = 0; i < text.size();) {
        const char32_t c = decode_at(text, i);
        if (in_word) {
            append_utf8(out, lower_of(c));
        } else {
            append_title(out, c);
        }
        const auto kind = category(c);
        in_word = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LT;
    }
    return out;
}

std::string swap_case(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const char32_t c = decode_at(text, i);
        if (is_lower(c)) {
            append_upper(out, c);
        } else {
            append_utf8(out, is_upper(c) ? lower_of(c) : c);
        }
    }
    return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
    std::vector<std::string_view> lines;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = i;
        const char32_t c = decode_at(text, i);
        if (!is_line_break(c)) continue;
        if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
        lines.push_back(text.substr(begin, (keep_ends ? i : end) - begin));
        begin = i;
    }
    if (begin < text.size()) lines.push_back(text.substr(begin));
    return lines;
}

}  // namespace stet::text::jinja
