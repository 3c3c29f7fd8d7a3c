// Sources on their way to xgrammar: checked, and put into the words that it reads.
#pragma once

#include <string>
#include <string_view>

#include "grammar/grammar.h"

namespace stet::grammar {

// invalid_argument: larger or deeper than the limits allow.
Status check_size(const Source& source, const Limits& limits);

// GBNF as xgrammar reads it: "." becomes a class of all characters.
std::string plain_gbnf(std::string_view text);

}  // namespace stet::grammar
