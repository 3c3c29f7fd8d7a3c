// What the headers of our files have in common: 64 bytes that begin with a magic of 8 and end with
// the XXH3-128 of those before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "state/stream.h"
#include "stet/status.h"

namespace stet::state {

inline constexpr std::uint64_t kFileHeaderBytes = 64;
using FileMagic = char[8];

// Ends a header that `writer` has all but the checksum of.
std::vector<std::byte> seal_file_header(Writer writer);
// Reads a header. corruption, with `what` the file should be, unless it is whole.
Result<std::array<std::byte, kFileHeaderBytes>> read_file_header(Source& source,
                                                                 const FileMagic& magic,
                                                                 std::string_view what);

// `size` bytes whose number only the source itself states: where it can't prove that so many are
// left, the memory for them grows with what arrives.
Result<std::vector<std::byte>> read_stated(Source& source, std::uint64_t size);

}  // namespace stet::state
