// Texts of a file in messages.
#pragma once

#include <string>
#include <string_view>

namespace stet {

// A name from a file, made safe for a one-line message: quoted, escaped, shortened.
std::string quote_name(std::string_view name);

}  // namespace stet
