// Where the program keeps what belongs to the person and not to a store.
#pragma once

#include <filesystem>

namespace stet::cli {

std::filesystem::path cache_directory();   // XDG_CACHE_HOME/stet or ~/.cache/stet
std::filesystem::path config_directory();  // XDG_CONFIG_HOME/stet or ~/.config/stet
std::filesystem::path state_directory();   // XDG_STATE_HOME/stet or ~/.local/state/stet

}  // namespace stet::cli
