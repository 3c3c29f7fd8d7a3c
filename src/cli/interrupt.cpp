#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace stet::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

void on_interrupt(int) {
    constexpr int kExitCode = 130;  // as of Code::cancelled; exit_code() is not for handlers
    if (g_interrupted.exchange(true)) _exit(kExitCode);
}

}  // namespace

void catch_interrupts() {
    struct sigaction action = {};
    action.sa_handler = on_interrupt;  // without SA_RESTART: a waiting read() comes back
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
}

std::atomic<bool>& interrupt_flag() {
    return g_interrupted;
}

}  // namespace stet::cli
