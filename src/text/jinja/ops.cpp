#include "text/jinja/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/strformat.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
    fail(fmt::format("{} does not work between {} and {}", op, type_name(a), type_name(b)));
}

std::string_view symbol(TokenKind op) {
    switch (op) {
        case TokenKind::add:
            return "+";
        case TokenKind::sub:
            return "-";
        case TokenKind::mul:
            return "*";
        case TokenKind::div:
            return "/";
        case TokenKind::floordiv:
            return "//";
        case TokenKind::mod:
            return "%";
        default:
            return "**";
    }
}

[[noreturn]] void fail_overflow(TokenKind op) {
    fail(fmt::format("the result of {} is beyond 64-bit integers", symbol(op)));
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) fail("0 can't be raised to a negative power");
        return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    }
    std::int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
            fail_overflow(TokenKind::pow);
        }
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
            fail_overflow(TokenKind::pow);
        }
    }
    return Value::integer(result);
}

Value integer_arithmetic(TokenKind op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    switch (op) {
        case TokenKind::add:
            if (__builtin_add_overflow(a, b, &result)) fail_overflow(op);
            return Value::integer(result);
        case TokenKind::sub:
            if (__builtin_sub_overflow(a, b, &result)) fail_overflow(op);
            return Value::integer(result);
        case TokenKind::mul:
            if (__builtin_mul_overflow(a, b, &result)) fail_overflow(op);
            return Value::integer(result);
        case TokenKind::pow:
            return integer_power(a, b);
        default:
            break;
    }
    if (b == 0) fail("division by zero");
    if (op == TokenKind::div) {
        return Value::real(static_cast<double>(a) / static_cast<double>(b));
    }
    if (b == -1) {  // the one case in which C++ division overflows
        if (op == TokenKind::mod) return Value::integer(0);
        if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) fail_overflow(op);
        return Value::integer(result);
    }
    // Python rounds towards minus infinity.
    std::int64_t quotient = a / b;
    std::int64_t rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
    }
    return Value::integer(op == TokenKind::mod ? rest : quotient);
}

Value real_arithmetic(TokenKind op, double a, double b) {
    switch (op) {
        case TokenKind::add:
            return Value::real(a + b);
        case TokenKind::sub:
            return Value::real(a - b);
        case TokenKind::mul:
            return Value::real(a * b);
        case TokenKind::pow: {
            if (a == 0 && b < 0) fail("0.0 can't be raised to a negative power");
            if (a < 0 && std::floor(b) != b) fail("a negative number to a broken power is complex");
            const double result = std::pow(a, b);
            if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
                fail("the result of ** is beyond floating-point numbers");
            }
            return Value::real(result);
        }
        default:
            break;
    }
    if (b == 0) fail("division by zero");
    if (op == TokenKind::div) return Value::real(a / b);
    double rest = std::fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    if (op == TokenKind::mod) return Value::real(rest == 0 ? std::copysign(0.0, b) : rest);
    const double quotient = (a - rest) / b;
    if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
    double floored = std::floor(quotient);
    if (quotient - floored > 0.5) floored += 1;
    return Value::real(floored);
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
    if (a.is_string() && b.is_string()) {
        const bool markup = a.text().markup || b.text().markup;
        if (!markup) return runtime.string(a.str() + b.str());
        const auto safe = [](const Value& v) {
            return v.text().markup ? v.str() : escape_html(v.str());
        };
        return runtime.markup(safe(a) + safe(b));
    }
    const bool lists = a.as<List>() != nullptr && b.as<List>() != nullptr;
    const bool tuples = a.as<Tuple>() != nullptr && b.as<Tuple>() != nullptr;
    if (!lists && !tuples) fail_operands("+", a, b);
    Values joined = *sequence_items(a);
    const Values& tail = *sequence_items(b);
    joined.insert(joined.end(), tail.begin(), tail.end());
    return lists ? runtime.list(std::move(joined)) : runtime.tuple(std::move(joined));
}

Value repeat(Runtime& runtime, const Value& what, std::int64_t times) {
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
    if (what.is_string()) {
        runtime.check_size(count, what.str().size());
        std::string out = repeat_text(what.str(), count);
        return what.text().markup ? runtime.markup(std::move(out)) : runtime.string(std::move(out));
    }
    const Values& items = *sequence_items(what);
    runtime.check_size(count, items.size() * sizeof(Value));
    runtime.charge_steps(items.empty() ? 0 : count * items.size() / 8);
    Values out;
    out.reserve(count * items.size());
    for (std::size_t i = 0; i < count && !items.empty(); ++i) {
        out.insert(out.end(), items.begin(), items.end());
    }
    return what.as<List>() != nullptr ? runtime.list(std::move(out))
                                      : runtime.tuple(std::move(out));
}

bool is_repeatable(const Value& v) {
    return v.is_string() || sequence_items(v) != nullptr;
}

bool equal_items(Runtime& runtime, const Values& a, const Values& b) {
    if (a.size() != b.size()) return false;
    runtime.charge_steps(a.size() / 4);
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!equal(runtime, a[i], b[i])) return false;
    }
    return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
    if (a.size() != b.size()) return false;
    runtime.charge_steps(a.size() / 4);
    for (const auto& [key, value] : a.entries()) {
        const Value* other = b.find(runtime, key);
        if (other == nullptr || !equal(runtime, value, *other)) return false;
    }
    return true;
}

bool equal_objects(Runtime& runtime, const Value& a, const Value& b) {
    if (a.as_object() == b.as_object()) return true;
    if (a.as_object()->kind != b.as_object()->kind) return false;
    const Runtime::Level level(runtime);
    if (sequence_items(a) != nullptr) {
        return equal_items(runtime, *sequence_items(a), *sequence_items(b));
    }
    if (a.as<Dict>() != nullptr) return equal_dicts(runtime, *a.as<Dict>(), *b.as<Dict>());
    if (a.as<Range>() != nullptr) {
        return equal_items(runtime, items_of(runtime, a), items_of(runtime, b));
    }
    return false;
}

}  // namespace

bool truthy(Runtime& runtime, const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
        case Kind::integer:
            return value.as_integer() != 0;
        case Kind::real:
            return value.as_real() != 0;
        case Kind::string:
            return !value.str().empty();
        case Kind::object:
            break;
    }
    return !has_length(value) || length_of(runtime, value) != 0;
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) {
        if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
        return a.as_real() == b.as_real();
    }
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::string:
            if (a.str().size() != b.str().size()) return false;
            runtime.charge_work(a.str().size());
            return a.str() == b.str();
        case Kind::object:
            return equal_objects(runtime, a, b);
        default:
            return true;  // none and none, undefined and undefined
    }
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) {
        if (a.is_integer() && b.is_integer()) return a.as_integer() < b.as_integer();
        return a.as_real() < b.as_real();
    }
    if (a.is_string() && b.is_string()) {
        runtime.charge_work(std::min(a.str().size(), b.str().size()));
        return a.str() < b.str();  // UTF-8 sorts as its code points do
    }
    require_defined(a);
    require_defined(b);
    const bool lists = a.as<List>() != nullptr && b.as<List>() != nullptr;
    const bool tuples = a.as<Tuple>() != nullptr && b.as<Tuple>() != nullptr;
    if (!lists && !tuples) fail_operands("ordering", a, b);
    const Runtime::Level level(runtime);
    const Values& x = *sequence_items(a);
    const Values& y = *sequence_items(b);
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
        runtime.charge_steps(1);
        if (!equal(runtime, x[i], y[i])) return less(runtime, x[i], y[i]);
    }
    return x.size() < y.size();
}

bool compare(Runtime& runtime, TokenKind op, const Value& a, const Value& b) {
    switch (op) {
        case TokenKind::eq:
            return equal(runtime, a, b);
        case TokenKind::ne:
            return !equal(runtime, a, b);
        case TokenKind::lt:
            return less(runtime, a, b);
        case TokenKind::gt:
            return less(runtime, b, a);
        case TokenKind::le:
            return less(runtime, a, b) || equal(runtime, a, b);
        default:
            return less(runtime, b, a) || equal(runtime, a, b);
    }
}

std::size_t hash(Runtime& runtime, const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
        case Kind::none:
            return 1;
        case Kind::boolean:
        case Kind::integer:
            return std::hash<double>()(value.as_real());
        case Kind::real:
            return std::hash<double>()(value.as_real());
        case Kind::string:
            runtime.charge_work(value.str().size());
            return std::hash<std::string>()(value.str());
        case Kind::object:
            break;
    }
    if (const auto* tuple = value.as<Tuple>()) {
        const Runtime::Level level(runtime);
        std::size_t combined = tuple->items.size();
        for (const Value& item : tuple->items) combined = combined * 31 + hash(runtime, item);
        return combined;
    }
    if (value.as<List>() != nullptr || value.as<Dict>() != nullptr) {
        fail(fmt::format("a {} can't be a key: it is not hashable", type_name(value)));
    }
    return std::hash<Object*>()(value.as_object());
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
    if (container.is_string()) {
        if (!item.is_string()) {
            fail(fmt::format("'in <string>' needs a string on its left, not {}", type_name(item)));
        }
        runtime.charge_work(container.str().size());
        return find_text(container.str(), item.str()) != std::string::npos;
    }
    if (const auto* dict = container.as<Dict>()) return dict->find(runtime, item) != nullptr;
    if (const Values* items = sequence_items(container)) {
        for (const Value& candidate : *items) {
            runtime.charge_steps(1);
            if (equal(runtime, candidate, item)) return true;
        }
        return false;
    }
    for (const Value& candidate : items_of(runtime, container)) {
        if (equal(runtime, candidate, item)) return true;
    }
    return false;
}

Value arithmetic(Runtime& runtime, TokenKind op, const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) {
        if (a.is_integer() && b.is_integer()) {
            return integer_arithmetic(op, a.as_integer(), b.as_integer());
        }
        return real_arithmetic(op, a.as_real(), b.as_real());
    }
    if (op == TokenKind::mod && a.is_string()) return format_percent(runtime, a.str(), b);
    require_defined(a);
    require_defined(b);
    if (op == TokenKind::add) return add(runtime, a, b);
    if (op == TokenKind::mul) {
        if (is_repeatable(a) && b.is_integer()) return repeat(runtime, a, b.as_integer());
        if (is_repeatable(b) && a.is_integer()) return repeat(runtime, b, a.as_integer());
    }
    fail_operands(symbol(op), a, b);
}

Value negate(Runtime& /*runtime*/, const Value& value) {
    if (value.is_integer()) {
        return integer_arithmetic(TokenKind::sub, 0, value.as_integer());
    }
    if (value.is_number()) return Value::real(-value.as_real());
    require_defined(value);
    fail(fmt::format("a minus sign does not work on {}", type_name(value)));
}

std::int64_t require_integer(const Value& value, std::string_view what) {
    require_defined(value);
    if (!value.is_integer()) {
        fail(fmt::format("{} must be an integer, not {}", what, type_name(value)));
    }
    return value.as_integer();
}

const std::string& require_string(const Value& value, std::string_view what) {
    require_defined(value);
    if (!value.is_string()) {
        fail(fmt::format("{} must be a string, not {}", what, type_name(value)));
    }
    return value.str();
}

}  // namespace stet::text::jinja
