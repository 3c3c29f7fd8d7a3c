// Sources on their way to xgrammar: checked, and put into the words that it reads.
#pragma once

#include <string>
#include <string_view>

#include "grammar/grammar.h"

namespace stet::grammar {

// Blanks between the parts of JSON: enough to indent, too few to go on with for ever.
inline constexpr int kBlanksMax = 20;

// invalid_argument: larger or deeper than the limits allow.
Status check_size(const Source& source, const Limits& limits);

// GBNF as xgrammar reads it: "." becomes a class of all characters.
std::string plain_gbnf(std::string_view text);

}  // namespace stet::grammar
