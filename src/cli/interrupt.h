// Ctrl-C as a flag. The first one asks whatever runs to stop; a second one before the flag was
// lowered ends the process on the spot, which never harms a session.
#pragma once

#include <atomic>

namespace stet::cli {

void catch_interrupts();
// SIGTERM asks to stop as well: for verbs that run until they are told to.
void catch_termination();
// Raised by SIGINT; whoever honours it lowers it.
std::atomic<bool>& interrupt_flag();

}  // namespace stet::cli
