// Filters on numbers.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/binder.h"
#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

// Digits with single '_' between them become digits; nullopt when '_' stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            out.push_back(text[i]);
            continue;
        }
        const auto alnum = [](char c) {
            return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        };
        if (i == 0 || i + 1 == text.size() || !alnum(text[i - 1]) || !alnum(text[i + 1])) {
            return std::nullopt;
        }
    }
    return out;
}

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base) {
    text = strip(text, Side::both);
    const bool negative = text.starts_with('-');
    if (negative || text.starts_with('+')) text.remove_prefix(1);
    const auto has_prefix = [&](char letter) {
        return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter;
    };
    const std::int64_t prefixed = has_prefix('x')   ? 16
                                  : has_prefix('o') ? 8
                                  : has_prefix('b') ? 2
                                                    : 0;
    if (prefixed != 0 && (base == 0 || base == prefixed)) {
        text.remove_prefix(2);
        if (text.starts_with('_')) text.remove_prefix(1);
        base = prefixed;
    } else if (base == 0) {
        base = 10;
        if (text.size() > 1 && text[0] == '0' &&
            text.find_first_not_of("0_") != std::string_view::npos) {
            return std::nullopt;
        }
    }
    if (base < 2 || base > 36) return std::nullopt;
    const auto digits = without_underscores(text);
    if (!digits || digits->empty()) return std::nullopt;
    std::int64_t value = 0;
    const std::string signed_digits = (negative ? "-" : "") + *digits;
    if (digits->front() == '-' || digits->front() == '+') return std::nullopt;
    const auto read =
        std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value,
                        static_cast<int>(base));
    if (read.ptr != signed_digits.data() + signed_digits.size()) return std::nullopt;
    if (read.ec != std::errc()) fail("int: the number is beyond 64 bits");
    return value;
}

std::optional<double> parse_real(std::string_view text) {
    text = strip(text, Side::both);
    const auto digits = without_underscores(text);
    if (!digits || digits->empty()) return std::nullopt;
    std::string_view rest = *digits;
    const bool negative = rest.starts_with('-');
    if (negative || rest.starts_with('+')) rest.remove_prefix(1);
    if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
    const std::string lower = to_lower(rest);
    if (lower.starts_with("nan(")) return std::nullopt;
    double value = 0;
    const auto read = std::from_chars(lower.data(), lower.data() + lower.size(), value);
    if (read.ptr != lower.data() + lower.size()) return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) {
        const bool tiny = lower.find("e-") != std::string::npos;
        value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    } else if (read.ec != std::errc()) {
        return std::nullopt;
    }
    return negative ? -value : value;
}

// int(float); nullopt for what has no integer.
std::optional<std::int64_t> truncated(double value) {
    if (!std::isfinite(value)) return std::nullopt;
    if (std::abs(value) >= 9.2233720368547758e18) fail("int: the number is beyond 64 bits");
    return static_cast<std::int64_t>(std::trunc(value));
}

Value to_integer(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("int", arguments);
    const Value otherwise = binder.value_or("default", Value::integer(0));
    const std::int64_t base = binder.integer_or("base", 10);
    binder.finish();
    require_defined(input);
    if (input.is_integer()) return Value::integer(input.as_integer());
    std::optional<std::int64_t> value;
    if (input.is_number()) {
        value = truncated(input.as_real());
    } else if (input.is_string()) {
        runtime.charge_work(4 * input.str().size());
        value = parse_integer(input.str(), base);
        if (!value) {
            const auto real = parse_real(input.str());
            if (real) value = truncated(*real);
        }
    }
    return value ? Value::integer(*value) : otherwise;
}

Value to_real(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("float", arguments);
    const Value otherwise = binder.value_or("default", Value::real(0));
    binder.finish();
    require_defined(input);
    if (input.is_number()) return Value::real(input.as_real());
    if (!input.is_string()) return otherwise;
    runtime.charge_work(4 * input.str().size());
    const auto value = parse_real(input.str());
    return value ? Value::real(*value) : otherwise;
}

Value absolute(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("abs", arguments).finish();
    require_defined(input);
    if (!input.is_number()) fail(fmt::format("abs does not work on {}", type_name(input)));
    if (!input.is_integer()) return Value::real(std::abs(input.as_real()));
    const std::int64_t value = input.as_integer();
    return value < 0 ? negate(runtime, input) : Value::integer(value);
}

// Rounds the exact value of the double, ties to even, as Python does: by its decimal digits.
double round_to(double value, std::int64_t digits) {
    if (!std::isfinite(value)) return value;
    if (digits > 323) return value;
    if (digits < -308) return std::copysign(0.0, value);
    if (digits < 0) {
        const double scale = std::pow(10.0, static_cast<double>(-digits));
        return std::nearbyint(value / scale) * scale;
    }
    std::array<char, 1024> buffer;
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                   std::chars_format::fixed, static_cast<int>(digits));
    double rounded = value;
    std::from_chars(buffer.data(), end.ptr, rounded);
    return rounded;
}

Value round_integer(std::int64_t value, std::int64_t digits) {
    if (digits >= 0) return Value::integer(value);
    if (digits < -18) return Value::integer(0);
    std::int64_t scale = 1;
    for (std::int64_t i = digits; i < 0; ++i) scale *= 10;
    const std::int64_t rest = value % scale;
    std::int64_t down = value - rest;
    const std::int64_t size = rest < 0 ? -rest : rest;
    const bool odd = (value / scale) % 2 != 0;
    if (size > scale / 2 || (size == scale / 2 && odd)) {
        if (__builtin_add_overflow(down, rest < 0 ? -scale : scale, &down)) {
            fail("round: the number is beyond 64 bits");
        }
    }
    return Value::integer(down);
}

Value round(Runtime& /*runtime*/, const Value& input, Arguments& arguments) {
    Binder binder("round", arguments);
    const std::int64_t digits = binder.integer_or("precision", 0);
    const auto method_value = binder.optional("method");
    binder.finish();
    const std::string method =
        method_value ? require_string(*method_value, "method") : std::string("common");
    require_defined(input);
    if (!input.is_number()) fail(fmt::format("round does not work on {}", type_name(input)));
    if (method == "common") {
        if (input.is_integer()) return round_integer(input.as_integer(), digits);
        return Value::real(round_to(input.as_real(), digits));
    }
    if (method != "ceil" && method != "floor") fail("round: the method is common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(digits));
    const double scaled = input.as_real() * scale;
    if (!std::isfinite(scaled)) fail("round: the number is not finite");
    const double rounded = (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0;
    return Value::real(rounded / scale);
}

constexpr auto kFilters = std::to_array<FilterEntry>({
    {"int", to_integer},
    {"float", to_real},
    {"abs", absolute},
    {"round", round},
});

}  // namespace

std::span<const FilterEntry> number_filters() {
    return kFilters;
}

}  // namespace stet::text::jinja
