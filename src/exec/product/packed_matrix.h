// Weights repacked for products with activations that are rounded to 8 bits.
//
//   y[r] = sum over blocks of 32 columns:  d * s * (sum_k q[k] x[k]  -  offset * sum_k x[k])  +  m
//   * s * sum_k x[k]
//
// with the weight's value d * (q - offset) + m (formats Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 of ggml)
// and the activation's s * x, x in -127..127, s = largest / 127 of its block.
//
// Layout: 16 rows make a group; a group is its blocks in order of columns; a block holds
//   quads   for each 4 columns: the 4 values of each of the 16 rows, so that one broadcast of 4
//           activations meets 16 rows. 4- and 5-bit values: quad p in the low and quad p + 4 in the
//           high halves of the bytes; 8-bit values as value + 128.
//   high    5-bit values only: for each quad 64 bits, the fifth bit of each byte
//   scales  16 f16 d, then (Q4_1, Q5_1) 16 f16 m
// As many bytes as in the file.
//
// Thread rules: immutable once filled; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stet/status.h"

namespace stet::exec {

enum class PackedFormat : std::uint8_t { q4_0, q4_1, q5_0, q5_1, q8_0 };

inline constexpr std::size_t kPackedRows = 16;     // rows of a group
inline constexpr std::size_t kPackedColumns = 32;  // columns of a block

struct PackedLayout {
    std::size_t quad_bytes;   // of the quads of a block
    std::size_t high_bytes;   // of the fifth bits
    std::size_t scale_bytes;  // d, or d and m
    int offset;               // subtracted from a value
    constexpr std::size_t block_bytes() const { return quad_bytes + high_bytes + scale_bytes; }
};

constexpr PackedLayout packed_layout(PackedFormat format) {
    constexpr std::size_t kHalf = kPackedRows * sizeof(std::uint16_t);
    switch (format) {
        case PackedFormat::q4_0:
            return {256, 0, kHalf, 8};
        case PackedFormat::q4_1:
            return {256, 0, 2 * kHalf, 0};
        case PackedFormat::q5_0:
            return {256, 64, kHalf, 16};
        case PackedFormat::q5_1:
            return {256, 64, 2 * kHalf, 0};
        case PackedFormat::q8_0:
            return {512, 0, kHalf, 128};
    }
    return {};
}

class PackedMatrix {
  public:
    // Whether rows x columns of `format` can be packed.
    static bool is_packable(std::uint64_t rows, std::uint64_t columns);
    // Room for a matrix. resource_exhausted without memory for as many bytes as the file has.
    static Result<PackedMatrix> create(PackedFormat format, std::uint64_t rows,
                                       std::uint64_t columns);
    // Converts the rows of groups [group_begin, group_end). `source` holds all rows, as the file
    // does. Threads may fill different groups at the same time.
    void fill(std::span<const std::byte> source, std::uint64_t group_begin,
              std::uint64_t group_end);

    PackedFormat format() const { return format_; }
    std::uint64_t rows() const { return rows_; }
    std::uint64_t columns() const { return columns_; }
    std::uint64_t groups() const { return rows_ / kPackedRows; }
    std::uint64_t blocks() const { return columns_ / kPackedColumns; }  // of a group
    std::uint64_t size_bytes() const { return groups() * group_bytes(); }
    const std::uint8_t* group(std::uint64_t index) const {
        return data_.get() + index * group_bytes();
    }

  private:
    PackedMatrix() = default;
    std::uint64_t group_bytes() const { return blocks() * packed_layout(format_).block_bytes(); }

    struct Free {
        void operator()(std::uint8_t* data) const;
    };

    PackedFormat format_ = PackedFormat::q8_0;
    std::uint64_t rows_ = 0;
    std::uint64_t columns_ = 0;
    std::unique_ptr<std::uint8_t, Free> data_;  // 64-byte aligned
};

}  // namespace stet::exec
