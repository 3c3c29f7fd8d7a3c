// Python's two ways to fill strings in: "%s" % value and "{}".format(value).
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace stet::text::jinja {

// text % values, where a tuple is several values and a dict is read by %(name)s.
Value format_percent(Runtime& runtime, std::string_view text, const Value& values);
Value format_braces(Runtime& runtime, std::string_view text, const Arguments& arguments);

}  // namespace stet::text::jinja
