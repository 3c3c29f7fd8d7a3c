#include "cli/paths.h"

#include <cstdlib>

namespace stet::cli {
namespace {

// The XDG base directory rules: a relative path in the variable does not count.
std::filesystem::path directory(const char* variable, const char* below_home) {
    const char* value = std::getenv(variable);
    if (value != nullptr && value[0] == '/') return std::filesystem::path(value) / "stet";
    const char* home = std::getenv("HOME");
    const std::filesystem::path base = home != nullptr && home[0] == '/' ? home : "/tmp";
    return base / below_home / "stet";
}

}  // namespace

std::filesystem::path cache_directory() {
    return directory("XDG_CACHE_HOME", ".cache");
}
std::filesystem::path config_directory() {
    return directory("XDG_CONFIG_HOME", ".config");
}
std::filesystem::path state_directory() {
    return directory("XDG_STATE_HOME", ".local/state");
}

}  // namespace stet::cli
