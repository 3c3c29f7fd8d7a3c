// What a line of chat that begins with a slash does.
#pragma once

#include <string_view>

#include "cli/run.h"

namespace stet::cli {

// `line` without its slash. Results go to standard output, as text or as a JSON line.
Status run_command(Run& run, std::string_view line, Terminal& terminal, bool& is_leaving);

}  // namespace stet::cli
