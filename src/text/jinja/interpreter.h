// Runs a Program.
#pragma once

#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace stet::text::jinja {

// The text that the template makes of `variables`, whose values belong to `runtime`. Throws
// TemplateError with the line. Leaves values in `runtime`, which must not be used again.
std::string interpret(const Program& program, Runtime& runtime, const Dict& variables);

}  // namespace stet::text::jinja
