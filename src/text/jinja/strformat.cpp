#include "text/jinja/strformat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxPrecision = 400;  // of numbers; a double has no more digits

struct Spec {
    std::string fill = " ";
    char align = '\0';
    char sign = '-';
    bool alternate = false;
    bool zero = false;
    char grouping = '\0';
    std::int64_t width = 0;
    std::optional<std::int64_t> precision;
    char type = '\0';
};

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::optional<std::int64_t> read_number(std::string_view text, std::size_t& i) {
    if (i >= text.size() || !is_digit(text[i])) return std::nullopt;
    std::int64_t value = 0;
    for (; i < text.size() && is_digit(text[i]); ++i) {
        value = value * 10 + (text[i] - '0');
        if (value > kMaxWidth) {
            fail_exhausted(fmt::format("a width or index in a format is beyond {}", kMaxWidth));
        }
    }
    return value;
}

std::string pad(Runtime& runtime, std::string body, const Spec& spec, char default_align) {
    const auto length = static_cast<std::int64_t>(count_code_points(body));
    if (length >= spec.width) return body;
    const auto missing = static_cast<std::size_t>(spec.width - length);
    runtime.charge_work(missing);
    const char align = spec.align != '\0' ? spec.align : default_align;
    const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    std::string out;
    const auto fill = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) out += spec.fill;
    };
    if (align == '=') {
        const std::size_t sign =
            !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ');
        out = body.substr(0, sign);
        fill(missing);
        return out + body.substr(sign);
    }
    fill(left);
    out += body;
    fill(missing - left);
    return out;
}

std::string with_sign(bool negative, std::string digits, const Spec& spec) {
    if (negative) return "-" + digits;
    if (spec.sign == '+' || spec.sign == ' ') return spec.sign + digits;
    return digits;
}

std::string group(std::string digits, char separator) {
    if (separator == '\0') return digits;
    const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    for (std::size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, separator);
    return digits;
}

std::string integer_digits(std::uint64_t magnitude, const Spec& spec) {
    switch (spec.type) {
        case 'x':
            return fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
        case 'X':
            return fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
        case 'o':
            return fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
        case 'b':
            return fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
        default:
            return group(std::to_string(magnitude), spec.grouping);
    }
}

std::string format_integer(Runtime& runtime, std::int64_t value, const Spec& spec) {
    const bool negative = value < 0;
    const auto bits = static_cast<std::uint64_t>(value);
    std::string digits = integer_digits(negative ? 0 - bits : bits, spec);
    // Only % formats have a precision here: the least number of digits.
    const std::int64_t least = std::min(spec.precision.value_or(0), kMaxPrecision);
    while (static_cast<std::int64_t>(digits.size()) < least) digits.insert(0, 1, '0');
    return pad(runtime, with_sign(negative, std::move(digits), spec), spec, '>');
}

std::string real_digits(double magnitude, char type, std::int64_t precision, bool alternate) {
    if (std::isnan(magnitude)) return "nan";
    if (std::isinf(magnitude)) return "inf";
    const auto style = type == 'e'   ? std::chars_format::scientific
                       : type == 'g' ? std::chars_format::general
                                     : std::chars_format::fixed;
    std::array<char, 1024> buffer;
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, style,
                                   static_cast<int>(precision));
    std::string out(buffer.data(), end.ptr);
    if (alternate && out.find('.') == std::string::npos && type == 'f') out.push_back('.');
    return out;
}

std::string format_real(Runtime& runtime, double value, const Spec& spec) {
    const bool upper = spec.type >= 'A' && spec.type <= 'Z';
    const char type = static_cast<char>(spec.type | 0x20);
    if (spec.precision.value_or(0) > kMaxPrecision) {
        fail_exhausted(fmt::format("a precision in a format is beyond {}", kMaxPrecision));
    }
    const double magnitude = std::abs(value);
    std::string digits;
    if (spec.type == '\0' && !spec.precision) {
        digits = real_to_string(magnitude);
    } else if (spec.type == '%') {
        digits = real_digits(magnitude * 100, 'f', spec.precision.value_or(6), false) + "%";
    } else if (spec.type == '\0' || type == 'g') {
        const std::int64_t precision = spec.precision.value_or(6);
        digits = real_digits(magnitude, 'g', precision == 0 ? 1 : precision, false);
        // Without a type, a float stays one to the eye.
        if (spec.type == '\0' && digits.find_first_not_of("0123456789") == std::string::npos) {
            digits += ".0";
        }
    } else {
        digits = real_digits(magnitude, type, spec.precision.value_or(6), spec.alternate);
    }
    if (upper) digits = to_upper(digits);
    digits = group(std::move(digits), spec.grouping);
    return pad(runtime, with_sign(std::signbit(value), std::move(digits), spec), spec, '>');
}

std::string format_text(Runtime& runtime, std::string_view text, const Spec& spec) {
    runtime.charge_work(text.size());
    if (spec.precision) {
        text = text.substr(0, byte_offset(text, static_cast<std::size_t>(*spec.precision)));
    }
    return pad(runtime, std::string(text), spec, '<');
}

bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

Spec parse_spec(std::string_view text) {
    Spec spec;
    std::size_t i = 0;
    if (!text.empty()) {
        std::size_t next = 0;
        decode_at(text, next);
        if (next < text.size() && is_align(text[next])) {
            spec.fill = std::string(text.substr(0, next));
            spec.align = text[next];
            i = next + 1;
        } else if (is_align(text[0])) {
            spec.align = text[0];
            i = 1;
        }
    }
    const auto take = [&](std::string_view any) {
        return i < text.size() && any.find(text[i]) != std::string_view::npos ? text[i++] : '\0';
    };
    if (const char sign = take("+- ")) spec.sign = sign;
    spec.alternate = take("#") != '\0';
    if (take("0") != '\0') {
        spec.zero = true;
        if (spec.align == '\0') {
            spec.align = '=';
            spec.fill = "0";
        }
    }
    spec.width = read_number(text, i).value_or(0);
    spec.grouping = take(",_");
    if (take(".") != '\0') {
        spec.precision = read_number(text, i);
        if (!spec.precision) fail("a format has a '.' without a precision");
    }
    if (i < text.size()) spec.type = text[i++];
    if (i < text.size()) fail(fmt::format("'{}' is not a format", text.substr(0, 64)));
    return spec;
}

// "%c" and "{:c}".
std::string character(const Value& value) {
    if (value.is_string() && value.text().length == 1) return value.str();
    const std::int64_t code = require_integer(value, "the value of a 'c' format");
    if (code < 0 || code > 0x10FFFF) fail("the value of a 'c' format is not a character");
    std::string out;
    append_utf8(out, static_cast<char32_t>(code));
    return out;
}

std::string format_value(Runtime& runtime, const Value& value, std::string_view text) {
    if (text.empty()) return to_string(runtime, value);
    Spec spec = parse_spec(text);
    constexpr std::string_view kIntegerTypes = "dxXobn";
    constexpr std::string_view kRealTypes = "eEfFgG%";
    const bool real_type = spec.type != '\0' && kRealTypes.find(spec.type) != kRealTypes.npos;
    const bool integer_type =
        spec.type != '\0' && kIntegerTypes.find(spec.type) != kIntegerTypes.npos;
    if (value.is_string() && (spec.type == '\0' || spec.type == 's') && spec.align != '=') {
        return format_text(runtime, value.str(), spec);
    }
    if (value.is_string() && spec.zero && (spec.type == '\0' || spec.type == 's')) {
        spec.align = '<';  // "{:05}" fills strings with zeros on the right
        return format_text(runtime, value.str(), spec);
    }
    if (value.is_integer() && spec.type == 'c') return format_text(runtime, character(value), spec);
    if (value.is_number() && real_type) return format_real(runtime, value.as_real(), spec);
    if (value.is_integer() && (integer_type || spec.type == '\0') && !spec.precision) {
        return format_integer(runtime, value.as_integer(), spec);
    }
    if (value.kind() == Kind::real && spec.type == '\0') {
        return format_real(runtime, value.as_real(), spec);
    }
    fail(fmt::format("the format '{}' does not fit a {}", text.substr(0, 64), type_name(value)));
}

// "{}".format(): one call.
class BraceFormatter {
  public:
    BraceFormatter(Runtime& runtime, const Arguments& arguments)
        : runtime_(runtime), arguments_(arguments) {}

    std::string run(std::string_view text, int depth) {
        if (depth > 2) fail("a format is nested too deeply");
        std::string out;
        for (std::size_t i = 0; i < text.size();) {
            const char c = text[i];
            if (c != '{' && c != '}') {
                out.push_back(c);
                ++i;
            } else if (i + 1 < text.size() && text[i + 1] == c) {
                out.push_back(c);
                i += 2;
            } else if (c == '}') {
                fail("a single '}' in a format");
            } else {
                const std::size_t end = field_end(text, i + 1);
                out += field(text.substr(i + 1, end - i - 1), depth);
                i = end + 1;
            }
            runtime_.check_size(1, out.size());
        }
        runtime_.charge_work(text.size() + out.size());
        return out;
    }

  private:
    static std::size_t field_end(std::string_view text, std::size_t i) {
        int open = 1;
        for (; i < text.size(); ++i) {
            if (text[i] == '{') ++open;
            if (text[i] == '}' && --open == 0) return i;
        }
        fail("a '{' in a format is not closed");
    }

    std::string field(std::string_view text, int depth) {
        runtime_.charge_steps(1);
        const std::size_t name_end = std::min(text.find_first_of("!:"), text.size());
        Value value = look_up(text.substr(0, name_end));
        text.remove_prefix(name_end);
        if (text.starts_with('!')) {
            if (text.size() < 2 || (text.size() > 2 && text[2] != ':')) {
                fail("a format has a '!' without a conversion");
            }
            if (text[1] == 'r' || text[1] == 'a') {
                value = runtime_.string(to_repr(runtime_, value));
            } else if (text[1] == 's') {
                value = runtime_.string(to_string(runtime_, value));
            } else {
                fail(fmt::format("'!{}' is not a conversion", text[1]));
            }
            text.remove_prefix(2);
        }
        std::string spec;
        if (text.starts_with(':')) spec = run(text.substr(1), depth + 1);
        return format_value(runtime_, value, spec);
    }

    Value look_up(std::string_view name) {
        std::size_t i = std::min(name.find_first_of(".["), name.size());
        Value value = first(name.substr(0, i));
        while (i < name.size()) {
            const bool attribute = name[i] == '.';
            const std::size_t begin = i + 1;
            const std::size_t end = std::min(
                attribute ? name.find_first_of(".[", begin) : name.find(']', begin), name.size());
            if (!attribute && end == name.size()) fail("a '[' in a format is not closed");
            const std::string_view part = name.substr(begin, end - begin);
            if (part.empty()) fail("an empty name in a format");
            std::size_t used = 0;
            const auto index = attribute ? std::nullopt : read_number(part, used);
            if (attribute) {
                value = get_attribute(runtime_, value, runtime_.string(part));
            } else if (index && used == part.size()) {
                value = get_item(runtime_, value, Value::integer(*index));
            } else {
                value = get_item(runtime_, value, runtime_.string(part));
            }
            require_defined(value);
            i = attribute ? end : end + 1;
        }
        return value;
    }

    Value first(std::string_view name) {
        std::size_t used = 0;
        std::optional<std::int64_t> index = read_number(name, used);
        if (name.empty()) {
            if (mode_ == 'm') fail("a format mixes {} and {0}");
            mode_ = 'a';
            index = next_++;
        } else if (index && used == name.size()) {
            if (mode_ == 'a') fail("a format mixes {} and {0}");
            mode_ = 'm';
        } else {
            for (const auto& [key, value] : arguments_.named) {
                if (key == name) return value;
            }
            fail(fmt::format("a format names '{}', which was not given", name.substr(0, 64)));
        }
        if (static_cast<std::size_t>(*index) >= arguments_.positional.size()) {
            fail(fmt::format("a format needs value {}, and {} were given", *index,
                             arguments_.positional.size()));
        }
        return arguments_.positional[static_cast<std::size_t>(*index)];
    }

    Runtime& runtime_;
    const Arguments& arguments_;
    std::int64_t next_ = 0;
    char mode_ = '\0';  // 'a': {}, 'm': {0}
};

// "..." % values: one operation.
class PercentFormatter {
  public:
    PercentFormatter(Runtime& runtime, const Value& values) : runtime_(runtime), values_(values) {
        const auto* tuple = values.as<Tuple>();
        if (tuple != nullptr) {
            items_ = tuple->items;
        } else {
            items_.push_back(values);
        }
    }

    std::string run(std::string_view text) {
        std::string out;
        std::size_t i = 0;
        while (i < text.size()) {
            if (text[i] != '%') {
                out.push_back(text[i++]);
                continue;
            }
            ++i;
            out += directive(text, i);
            runtime_.check_size(1, out.size());
        }
        runtime_.charge_work(text.size() + out.size());
        // Anything with subscripts may be unused: it could be a mapping.
        const bool subscripts = values_.is_undefined() || values_.as<Dict>() != nullptr ||
                                values_.as<List>() != nullptr || values_.as<Range>() != nullptr;
        if (next_ < items_.size() && !subscripts) fail("not all values were used by a % format");
        return out;
    }

  private:
    Value take() {
        if (next_ >= items_.size()) fail("too few values for a % format");
        return items_[next_++];
    }

    std::string directive(std::string_view text, std::size_t& i) {
        runtime_.charge_steps(1);
        std::optional<Value> named;
        if (i < text.size() && text[i] == '(') {
            const std::size_t end = text.find(')', i);
            if (end == std::string_view::npos) fail("a %( in a format is not closed");
            const auto* dict = values_.as<Dict>();
            if (dict == nullptr) fail("a % format with names needs a mapping");
            const Value* found =
                dict->find(runtime_, runtime_.string(text.substr(i + 1, end - i - 1)));
            if (found == nullptr) fail("a % format names a key that is missing");
            named = *found;
            i = end + 1;
        }
        Spec spec;
        spec.align = '>';
        for (; i < text.size() && std::string_view("-+ #0").find(text[i]) != std::string_view::npos;
             ++i) {
            if (text[i] == '-') spec.align = '<';
            if (text[i] == '+' || (text[i] == ' ' && spec.sign != '+')) spec.sign = text[i];
            if (text[i] == '#') spec.alternate = true;
            if (text[i] == '0') spec.zero = true;
        }
        spec.width = number(text, i).value_or(0);
        if (spec.width < 0) {
            spec.align = '<';
            spec.width = -spec.width;
        }
        if (i < text.size() && text[i] == '.') {
            ++i;
            spec.precision = std::max<std::int64_t>(number(text, i).value_or(0), 0);
        }
        while (i < text.size() && (text[i] == 'l' || text[i] == 'h' || text[i] == 'L')) ++i;
        if (i >= text.size()) fail("a % format ends too early");
        const char type = text[i++];
        if (type == '%') return "%";
        return convert(named ? *named : take(), type, spec);
    }

    std::optional<std::int64_t> number(std::string_view text, std::size_t& i) {
        if (i >= text.size() || text[i] != '*') return read_number(text, i);
        ++i;
        const std::int64_t width = require_integer(take(), "a format's width");
        if (width > kMaxWidth || width < -kMaxWidth) {
            fail_exhausted(fmt::format("a width in a format is beyond {}", kMaxWidth));
        }
        return width;
    }

    std::string convert(const Value& value, char type, Spec spec) {
        if (type == 's') return format_text(runtime_, to_string(runtime_, value), spec);
        if (type == 'r' || type == 'a')
            return format_text(runtime_, to_repr(runtime_, value), spec);
        if (type == 'c') return format_text(runtime_, character(value), spec);
        if (spec.zero && spec.align != '<') {
            spec.align = '=';
            spec.fill = "0";
        }
        require_defined(value);
        if (!value.is_number()) {
            fail(fmt::format("%{} in a format needs a number, not {}", type, type_name(value)));
        }
        if (std::string_view("diuxXo").find(type) != std::string_view::npos) {
            return integer(value, type, spec);
        }
        if (std::string_view("eEfFgG").find(type) == std::string_view::npos) {
            fail(fmt::format("%{} is not a format", type));
        }
        spec.type = type;
        return format_real(runtime_, value.as_real(), spec);
    }

    std::string integer(const Value& value, char type, Spec spec) {
        spec.type = type == 'i' || type == 'u' ? 'd' : type;
        if (value.is_integer()) {
            return format_integer(runtime_, value.as_integer(), spec);
        }
        const double whole = std::trunc(value.as_real());
        if (type == 'x' || type == 'X' || type == 'o' || std::abs(whole) >= 9.2e18 ||
            std::isnan(whole)) {
            fail(fmt::format("%{} in a format needs an integer", type));
        }
        return format_integer(runtime_, static_cast<std::int64_t>(whole), spec);
    }

    Runtime& runtime_;
    const Value& values_;
    Values items_;
    std::size_t next_ = 0;
};

}  // namespace

Value format_percent(Runtime& runtime, std::string_view text, const Value& values) {
    return runtime.string(PercentFormatter(runtime, values).run(text));
}

Value format_braces(Runtime& runtime, std::string_view text, const Arguments& arguments) {
    return runtime.string(BraceFormatter(runtime, arguments).run(text, 0));
}

}  // namespace stet::text::jinja
