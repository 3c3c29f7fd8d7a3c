// str() and repr() as Python prints them.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

void append_repr(Runtime& runtime, const Value& value, std::string& out);

void append_string_repr(Runtime& runtime, std::string_view text, std::string& out) {
    runtime.charge_work(text.size());
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    out.push_back(quote);
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t begin = i;
        const char32_t c = decode_at(text, i);
        if (c == static_cast<char32_t>(quote) || c == '\\') {
            out.push_back('\\');
            out.push_back(static_cast<char>(c));
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (is_printable(c)) {
            out += text.substr(begin, i - begin);
        } else if (c < 0x100) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        } else if (c < 0x10000) {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
            out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
        }
    }
    out.push_back(quote);
}

void append_items(Runtime& runtime, const Values& items, std::string& out) {
    bool first = true;
    for (const Value& item : items) {
        if (!first) out += ", ";
        first = false;
        append_repr(runtime, item, out);
    }
}

void append_dict(Runtime& runtime, const Dict& dict, std::string& out) {
    out.push_back('{');
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
        if (!first) out += ", ";
        first = false;
        append_repr(runtime, key, out);
        out += ": ";
        append_repr(runtime, value, out);
    }
    out.push_back('}');
}

void append_object(Runtime& runtime, const Value& value, std::string& out) {
    const Runtime::Level level(runtime);
    if (const auto* list = value.as<List>()) {
        out.push_back('[');
        append_items(runtime, list->items, out);
        out.push_back(']');
    } else if (const auto* tuple = value.as<Tuple>()) {
        out.push_back('(');
        append_items(runtime, tuple->items, out);
        out += tuple->items.size() == 1 ? ",)" : ")";
    } else if (const auto* dict = value.as<Dict>()) {
        append_dict(runtime, *dict, out);
    } else if (value.as<View>() != nullptr) {
        out += fmt::format("{}([", type_name(value));
        append_items(runtime, items_of(runtime, value), out);
        out += "])";
    } else if (const auto* range = value.as<Range>()) {
        out += range->step == 1
                   ? fmt::format("range({}, {})", range->begin, range->end)
                   : fmt::format("range({}, {}, {})", range->begin, range->end, range->step);
    } else if (const auto* space = value.as<Namespace>()) {
        out += "<Namespace ";
        append_dict(runtime, *space->attributes, out);
        out.push_back('>');
    } else {
        out += fmt::format("<{} object>", type_name(value));
    }
}

void append_repr(Runtime& runtime, const Value& value, std::string& out) {
    runtime.charge_steps(1);
    runtime.check_size(1, out.size());
    switch (value.kind()) {
        case Kind::undefined:
            out += "Undefined";
            break;
        case Kind::none:
            out += "None";
            break;
        case Kind::boolean:
            out += value.as_boolean() ? "True" : "False";
            break;
        case Kind::integer:
            out += std::to_string(value.as_integer());
            break;
        case Kind::real:
            out += real_to_string(value.as_real());
            break;
        case Kind::string:
            if (value.text().markup) out += "Markup(";
            append_string_repr(runtime, value.str(), out);
            if (value.text().markup) out += ")";
            break;
        case Kind::object:
            append_object(runtime, value, out);
            break;
    }
}

}  // namespace

std::string real_to_string(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
    std::array<char, 64> buffer;
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                   std::chars_format::scientific);
    std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
    const std::string sign(text.front() == '-' ? "-" : "");
    text.remove_prefix(sign.size());
    const std::size_t e = text.find('e');
    int exponent = 0;
    const std::string_view exponent_text = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
    std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
    std::string digits(1, text.front());
    if (e > 2) digits += text.substr(2, e - 2);
    if (exponent < -4 || exponent >= 16) {
        if (digits.size() > 1) digits.insert(1, ".");
        return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+',
                           std::abs(exponent));
    }
    if (exponent < 0) {
        return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    }
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= whole) {
        return sign + digits + std::string(whole - digits.size(), '0') + ".0";
    }
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string to_string(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return {};
    if (value.is_string()) {
        runtime.charge_work(value.str().size());
        return value.str();
    }
    return to_repr(runtime, value);
}

std::string to_repr(Runtime& runtime, const Value& value) {
    std::string out;
    append_repr(runtime, value, out);
    return out;
}

std::string escape_html(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '\'':
                out += "&#39;";
                break;
            case '"':
                out += "&#34;";
                break;
            default:
                out.push_back(c);
        }
    }
    return out;
}

}  // namespace stet::text::jinja
