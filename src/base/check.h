// STET_CHECK: always-on check of our own invariants. Never reachable from a file, a socket or an
// argument: those are answered with a Status.
#pragma once

namespace stet {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define STET_CHECK(condition) \
    ((condition) ? static_cast<void>(0) : ::stet::check_failed(#condition, __FILE__, __LINE__))
