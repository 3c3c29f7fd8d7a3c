#include "base/memory_size.h"

#include <unistd.h>

namespace stet {

std::uint64_t half_of_memory() {
    return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
}

}  // namespace stet
