// The `attribute` argument of filters: "name", "a.b.0", an integer, or none for the item itself.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace stet::text::jinja {

class AttributePath {
  public:
    explicit AttributePath(Runtime& runtime, const Value& attribute);
    // The part of `item`; `otherwise`, when given, stands for what is missing on the way.
    Value get(Runtime& runtime, Value item, const std::optional<Value>& otherwise = {}) const;

  private:
    std::vector<Value> parts_;
};

// Strings in lower case; other values as they are.
Value ignore_case(Runtime& runtime, const Value& value);

}  // namespace stet::text::jinja
