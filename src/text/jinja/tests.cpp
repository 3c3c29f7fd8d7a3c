// The tests behind `is`.
#include <array>

#include "text/jinja/binder.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/text.h"

namespace stet::text::jinja {

namespace {

using Simple = bool (*)(Runtime&, const Value&);

// A test without arguments.
template <Simple kTest>
bool simple(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("a test", arguments).finish();
    return kTest(runtime, input);
}

bool is_defined(Runtime&, const Value& v) {
    return !v.is_undefined();
}
bool is_undefined(Runtime&, const Value& v) {
    return v.is_undefined();
}
bool is_none(Runtime&, const Value& v) {
    return v.is_none();
}
bool is_boolean(Runtime&, const Value& v) {
    return v.is_boolean();
}
bool is_true(Runtime&, const Value& v) {
    return v.is_boolean() && v.as_boolean();
}
bool is_false(Runtime&, const Value& v) {
    return v.is_boolean() && !v.as_boolean();
}
bool is_integer(Runtime&, const Value& v) {
    return v.kind() == Kind::integer;
}
bool is_float(Runtime&, const Value& v) {
    return v.kind() == Kind::real;
}
bool is_number(Runtime&, const Value& v) {
    return v.is_number();
}
bool is_string(Runtime&, const Value& v) {
    return v.is_string();
}
bool is_mapping(Runtime&, const Value& v) {
    return v.as<Dict>() != nullptr;
}
bool is_iterable_test(Runtime&, const Value& v) {
    return is_iterable(v);
}
bool is_escaped(Runtime&, const Value& v) {
    return v.is_string() && v.text().markup;
}
bool is_sequence(Runtime&, const Value& v) {
    // An undefined value has both a length and (a failing) subscript.
    return has_length(v) && v.as<View>() == nullptr;
}
bool is_callable(Runtime&, const Value& v) {
    if (v.is_undefined()) return true;  // it can be called, to fail
    const Object* object = v.as_object();
    if (object == nullptr) return false;
    return object->kind == ObjectKind::method || object->kind == ObjectKind::function ||
           object->kind == ObjectKind::macro || object->kind == ObjectKind::loop ||
           object->kind == ObjectKind::joiner;
}
bool is_upper_test(Runtime& runtime, const Value& v) {
    return all_cased(to_string(runtime, v), true);
}
bool is_lower_test(Runtime& runtime, const Value& v) {
    return all_cased(to_string(runtime, v), false);
}
bool is_filter(Runtime&, const Value& v) {
    return v.is_string() && find_filter(v.str()) != nullptr;
}
bool is_test(Runtime&, const Value& v) {
    return v.is_string() && find_test(v.str()) != nullptr;
}

bool remainder_is(Runtime& runtime, const Value& input, const Value& by, std::int64_t rest) {
    const Value remainder = arithmetic(runtime, TokenKind::mod, input, by);
    return equal(runtime, remainder, Value::integer(rest));
}

bool is_odd(Runtime& runtime, const Value& v) {
    return remainder_is(runtime, v, Value::integer(2), 1);
}
bool is_even(Runtime& runtime, const Value& v) {
    return remainder_is(runtime, v, Value::integer(2), 0);
}

bool divisible_by(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("divisibleby", arguments);
    const Value by = binder.required("num");
    binder.finish();
    return remainder_is(runtime, input, by, 0);
}

bool same_as(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("sameas", arguments);
    const Value other = binder.required("other");
    binder.finish();
    if (input.kind() != other.kind()) return false;
    if (input.kind() == Kind::object) return input.as_object() == other.as_object();
    return equal(runtime, input, other);
}

bool is_in(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("in", arguments);
    const Value container = binder.required("seq");
    binder.finish();
    return contains(runtime, container, input);
}

template <TokenKind kOp>
bool compares(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("a comparing test", arguments);
    const Value other = binder.required("other");
    binder.finish();
    return compare(runtime, kOp, input, other);
}

constexpr auto kTests = std::to_array<TestEntry>({
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"sequence", simple<is_sequence>},
    {"iterable", simple<is_iterable_test>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"upper", simple<is_upper_test>},
    {"lower", simple<is_lower_test>},
    {"filter", simple<is_filter>},
    {"test", simple<is_test>},
    {"odd", simple<is_odd>},
    {"even", simple<is_even>},
    {"divisibleby", divisible_by},
    {"sameas", same_as},
    {"in", is_in},
    {"eq", compares<TokenKind::eq>},
    {"equalto", compares<TokenKind::eq>},
    {"==", compares<TokenKind::eq>},
    {"ne", compares<TokenKind::ne>},
    {"!=", compares<TokenKind::ne>},
    {"lt", compares<TokenKind::lt>},
    {"lessthan", compares<TokenKind::lt>},
    {"<", compares<TokenKind::lt>},
    {"le", compares<TokenKind::le>},
    {"<=", compares<TokenKind::le>},
    {"gt", compares<TokenKind::gt>},
    {"greaterthan", compares<TokenKind::gt>},
    {">", compares<TokenKind::gt>},
    {"ge", compares<TokenKind::ge>},
    {">=", compares<TokenKind::ge>},
});

}  // namespace

std::span<const TestEntry> tests() {
    return kTests;
}

}  // namespace stet::text::jinja
