// Calls as JSON, and values of arguments.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format/parts.h"

namespace stet::text {

// The calls of an object or list, complete or not at all; nullopt when it is anything else. Names
// of members are those that families use: name, tool_name, function; arguments, parameters; id.
std::optional<std::vector<ToolCall>> calls_of_json(std::string_view json);

// The same of a list of {NAME: ARGUMENTS}.
std::optional<std::vector<ToolCall>> calls_of_keyed_json(std::string_view json);

// Compact; nullopt when it is no JSON object. JSON nested deeper than JsonScanner allows is
// refused.
std::optional<std::string> json_object(std::string_view text);

std::string json_string(std::string_view text);

// Written without quotes: what `text` is as a value. With `is_text` a string; else JSON if it is
// some other than a string, and else a string.
std::string json_value(std::string_view text, bool is_text);

// Python: keyword arguments `a="x", b=1` as a JSON object; nullopt when they are something else.
std::optional<std::string> json_of_keywords(std::string_view text);

}  // namespace stet::text
