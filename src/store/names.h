// Names of sessions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stet/status.h"

namespace stet::store {

inline constexpr std::size_t kLongestName = 64;

// invalid_argument unless it is [A-Za-z0-9._-]{1,64} and does not start with a dot.
Status check_name(std::string_view name);

// Edits (insert, delete, replace a character) that make one of the other; at most kLongestName
// characters of each count.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The names of `names` that somebody who typed `name` may have meant, closest first, at most three.
std::vector<std::string> close_names(std::string_view name, const std::vector<std::string>& names);

}  // namespace stet::store
