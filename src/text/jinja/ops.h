// The operations of Python's data model that templates use, on Values. All of them charge the
// Runtime for their work and throw TemplateError where Python or Jinja raises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/lexer.h"
#include "text/jinja/value.h"

namespace stet::text::jinja {

bool truthy(Runtime& runtime, const Value& value);
bool equal(Runtime& runtime, const Value& a, const Value& b);
// a < b; throws when the types have no order.
bool less(Runtime& runtime, const Value& a, const Value& b);
// Equal values have equal hashes; throws for lists, dicts and undefined-like values.
std::size_t hash(Runtime& runtime, const Value& value);
bool contains(Runtime& runtime, const Value& container, const Value& item);

// op: add, sub, mul, div, floordiv, mod or pow.
Value arithmetic(Runtime& runtime, TokenKind op, const Value& a, const Value& b);
Value negate(Runtime& runtime, const Value& value);
// op: eq, ne, lt, le, gt or ge.
bool compare(Runtime& runtime, TokenKind op, const Value& a, const Value& b);

// A copy of what iterating over the value yields; empties a generator.
Values items_of(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
bool has_length(const Value& value);
std::int64_t length_of(Runtime& runtime, const Value& value);

// object.name: a method or attribute, else an item. object[key]: an item, else an attribute.
Value get_attribute(Runtime& runtime, const Value& object, const Value& name);
Value get_item(Runtime& runtime, const Value& object, const Value& key);
// Bounds are none where not given.
Value get_slice(Runtime& runtime, const Value& object, const Value& begin, const Value& end,
                const Value& step);
// An integer for use as `what`; throws for another type.
std::int64_t require_integer(const Value& value, std::string_view what);
const std::string& require_string(const Value& value, std::string_view what);

// str(value) and repr(value).
std::string to_string(Runtime& runtime, const Value& value);
std::string to_repr(Runtime& runtime, const Value& value);
// repr(float): the shortest text that reads back as the same number.
std::string real_to_string(double value);
std::string escape_html(std::string_view text);

}  // namespace stet::text::jinja
