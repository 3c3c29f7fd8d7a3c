// y = W x for packed weights (packed_matrix.h). Two calls: round the activations, then multiply.
//
// Both may be split over threads in any way, and over columns of the batch in any way: each result
// is computed by the same operations in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/product/packed_matrix.h"

namespace stet::exec {

// Activations of 32 columns, rounded.
struct RoundedBlock {
    float scale;
    float scaled_sum;           // scale * sum of values
    std::int16_t half_sums[2];  // of the first 16 values, and of the others
    std::int8_t values[kPackedColumns];

    int sum() const { return half_sums[0] + half_sums[1]; }
};
static_assert(sizeof(RoundedBlock) == 44);

// `count` blocks of 32 from consecutive floats. Values that aren't finite give a block of NaN.
void round_activations(const float* from, std::size_t count, RoundedBlock* to);

// y[token * y_stride + row] for rows of the groups [group_begin, group_end).
//   x     [tokens][columns / 32]
//   bias  f32 [rows] or null
void multiply(const PackedMatrix& weights, const RoundedBlock* x, std::size_t tokens,
              std::uint64_t group_begin, std::uint64_t group_end, const float* bias, float* y,
              std::size_t y_stride);

// The same for Q8_0 rows as the file has them (34 bytes a block: f16 d, 32 values), for large
// matrices that few tokens meet, such as an output head: nothing is repacked, the rows stay in the
// file.
//   weights  [rows][blocks], rows [row_begin, row_end) of it are multiplied
void multiply_q8_rows(const std::uint8_t* weights, std::size_t blocks, const RoundedBlock* x,
                      std::size_t tokens, std::uint64_t row_begin, std::uint64_t row_end, float* y,
                      std::size_t y_stride);

// For tests: as kernel_targets() and force_kernel_target() of exec/kernel.h, which apply here too.
std::vector<std::string> product_targets();

}  // namespace stet::exec
