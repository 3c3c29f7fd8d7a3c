#include "exec/thread_runtime.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace stet::exec {
namespace {

// Long enough that a thread that had to sleep is back before the other falls asleep in turn, short
// beside a time slice that somebody else waits for.
constexpr const char* kSpins = "10000";

}  // namespace

void restart_with_short_spins(char** argv) {
    if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) {
        return;
    }
    std::error_code error;  // by its own path, so that it keeps its name in process lists
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error || setenv("GOMP_SPINCOUNT", kSpins, 1) != 0) return;
    execv(self.c_str(), argv);
}

}  // namespace stet::exec
