// How much memory there is.
#pragma once

#include <cstdint>

namespace stet {

// Half of the machine's, in bytes: what state may take where nobody set a limit.
std::uint64_t half_of_memory();

}  // namespace stet
