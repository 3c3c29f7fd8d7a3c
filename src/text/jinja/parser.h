// Builds a Program from a template's source.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace stet::text::jinja {

// Throws TemplateError with the line. `source` is valid UTF-8.
std::unique_ptr<Program> parse(std::string_view source, Dialect dialect);

}  // namespace stet::text::jinja
