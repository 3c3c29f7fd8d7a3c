// JSON in and out of templates.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace stet::text::jinja {

// The JSON object `json` as a Dict, keys in their order, the last of equal keys kept. Throws when
// it is not JSON or not an object. Integers beyond 64 bits with sign become floating point.
Dict* parse_json_object(Runtime& runtime, std::string_view json);

struct JsonStyle {
    bool ascii_only = false;
    bool indented = false;
    std::string indent;  // of one level
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool sort_keys = false;
};
// As Python's json.dumps writes it; throws for what it can't write.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace stet::text::jinja
