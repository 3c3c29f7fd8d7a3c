// Rows of the file to the layout of packed_matrix.h.
//
// Thread rules: none; works on its arguments alone.
#pragma once

#include <cstdint>

#include "exec/product/packed_matrix.h"

namespace stet::exec {

// Groups [begin, end) of a matrix with `blocks` blocks a row; `source` is its first row, `out` its
// first group.
void pack_groups(PackedFormat format, const std::uint8_t* source, std::uint64_t blocks,
                 std::uint64_t begin, std::uint64_t end, std::uint8_t* out);

}  // namespace stet::exec
