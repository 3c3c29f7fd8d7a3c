// The methods of strings, lists, tuples and dicts.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace stet::text::jinja {

// Null when values of this type have no such method.
const MethodEntry* find_method(const Value& self, std::string_view name);

std::span<const MethodEntry> string_methods();
std::span<const MethodEntry> string_predicates();

}  // namespace stet::text::jinja
