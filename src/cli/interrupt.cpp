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

void catch_signal(int number) {
    struct sigaction action = {};
    action.sa_handler = on_interrupt;  // without SA_RESTART: a waiting read() comes back
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
}

}  // namespace

void catch_interrupts() {
    catch_signal(SIGINT);
}

void catch_termination() {
    catch_signal(SIGTERM);
}

std::atomic<bool>& interrupt_flag() {
    return g_interrupted;
}

}  // namespace stet::cli
