// For work that recurses as deep as its input says.
#pragma once

#include <cstddef>
#include <functional>

#include "stet/status.h"

namespace stet {

// Runs `work` on a thread with a stack of its own and waits for it. Memory is used only as deep as
// the stack gets. `work` must not throw. resource_exhausted: no such thread can be had.
Status run_on_deep_stack(std::size_t stack_bytes, const std::function<void()>& work);

}  // namespace stet
