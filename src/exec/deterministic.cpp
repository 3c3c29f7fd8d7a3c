#include "exec/deterministic.h"

#include <atomic>

namespace stet::exec {
namespace {

std::atomic<bool> g_is_on{false};

}  // namespace

void set_deterministic(bool is_on) {
    g_is_on.store(is_on, std::memory_order_relaxed);
}

bool is_deterministic() {
    return g_is_on.load(std::memory_order_relaxed);
}

}  // namespace stet::exec
