// JSON schemas on their way to xgrammar, which leaves out what it can't enforce: here that is
// refused, and what can be said in its words is put into them.
#pragma once

#include <string>
#include <string_view>

#include "stet/status.h"

namespace stet::grammar {

// The schema (JSON Schema 2020-12) as xgrammar reads it in its strict mode: properties and items
// that it does not name are not allowed, except in objects and lists about which it says nothing.
// What the result allows, the schema allows. invalid_argument: no JSON, no schema, or a part of it
// that can't be enforced, by name. Nesting must be bounded before.
Result<std::string> strict_schema(std::string_view schema);

}  // namespace stet::grammar
