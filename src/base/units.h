// Sizes and times as people write them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "stet/status.h"

namespace stet {

// "90s", "15m", "12h", "30d". invalid_argument says what is expected.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

// "500M", "20G", "1.5T" or a number of bytes; K, M, G and T are powers of 1,024 ("MiB" is the same,
// "MB" a power of 1,000).
Result<std::uint64_t> parse_size(std::string_view text);

}  // namespace stet
