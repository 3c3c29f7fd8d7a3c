// Line editing and history on a terminal, by libedit.
#pragma once

#include <memory>

#include "cli/line_reader.h"

namespace stet::cli {

// Null when libedit can't work here.
std::unique_ptr<LineReader> create_line_editor(const Terminal& terminal);

}  // namespace stet::cli
