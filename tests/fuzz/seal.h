// Makes the checksums and sizes of an encoded sequence or session fit what is there, or nothing
// behind them would ever be reached.
#pragma once

#include <cstddef>
#include <vector>

namespace stet::fuzz {

using Bytes = std::vector<std::byte>;

// Of the sequence that begins at `at`: magic, version, sizes and checksums of the header and, as
// far as the manifest can be read, the schema's hash and the checksums of the records.
void seal_sequence(Bytes& bytes, std::size_t at = 0);
// The header of a session, and the sequence in it. The body is compressed afterwards if the flags
// say so.
void seal_session(Bytes& bytes);

}  // namespace stet::fuzz
