// What a schema is, for people and programs.
#pragma once

#include <string>

#include "cli/report.h"
#include "memory/schema.h"

namespace stet::cli {

// A line a group.
std::string groups_text(const memory::Schema& schema);
Json groups_json(const memory::Schema& schema);

}  // namespace stet::cli
