// Weights repacked for products with activations that are rounded to 8 bits.
//
// Every format that can be packed has, for each 32 columns of a row (a part), the value
//
//   d * scale * (q - offset) - dmin * min          (K-quants; others: d * (q - offset) + m)
//
// with integers q, scale and min; formats Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, Q4_K, Q5_K, Q6_K
// and IQ4_XS of ggml. Q6_K has a scale for each 16 columns. IQ4 values are looked up in a table
// of 16.
//
// Layout: 16 rows make a group; a group is its blocks in order of columns, of 32 or (K-quants and
// IQ4_XS) 256 columns. A block holds its scales, then its parts:
//   d       16 f16, then 16 f16 m or dmin, where the format has them
//   scales  Q4_K, Q5_K   for each part 16 bytes, low four bits of scale | of min << 4; then for
//   each
//                        two parts 16 bytes: upper two bits of scale, min | of the second part << 4
//           Q6_K         for each half part 16 bytes
//           IQ4_XS       for each two parts 16 bytes, low four bits of scale | second part << 4;
//           then
//                        for each four parts 16 bytes, their upper two bits in order
//   parts   quads  for each 4 columns: the 4 values of each of the 16 rows, so that one broadcast
//   of
//                  4 activations meets 16 rows. Up to 6 bits: the low four of quad p in the low and
//                  those of quad p + 4 in the high halves of the bytes; 8 bits: value + 128.
//           upper  fifth bits: for each quad 64 bits, the fifth bit of each byte;
//                  fifth and sixth: 64 bytes for quads 0-3, two bits for each in order, then the
//                  same for quads 4-7
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

enum class PackedFormat : std::uint8_t {
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q8_0,
    iq4_nl,
    q4_k,
    q5_k,
    q6_k,
    iq4_xs,
};

inline constexpr std::size_t kPackedRows = 16;     // rows of a group
inline constexpr std::size_t kPackedColumns = 32;  // columns of a part

struct PackedLayout {
    std::size_t parts;         // of a block
    std::size_t scale_bytes;   // of a block
    std::size_t quad_bytes;    // of the quads of a part
    std::size_t upper_bytes;   // of the bits above the fourth
    int offset;                // subtracted from a value
    std::size_t source_bytes;  // of a block of one row in the file
    constexpr std::size_t part_bytes() const { return quad_bytes + upper_bytes; }
    constexpr std::size_t block_bytes() const { return scale_bytes + parts * part_bytes(); }
    constexpr std::size_t columns() const { return parts * kPackedColumns; }
};

constexpr PackedLayout packed_layout(PackedFormat format) {
    constexpr std::size_t kHalf = kPackedRows * sizeof(std::uint16_t);
    switch (format) {
        case PackedFormat::q4_0:
            return {1, kHalf, 256, 0, 8, 18};
        case PackedFormat::q4_1:
            return {1, 2 * kHalf, 256, 0, 0, 20};
        case PackedFormat::q5_0:
            return {1, kHalf, 256, 64, 16, 22};
        case PackedFormat::q5_1:
            return {1, 2 * kHalf, 256, 64, 0, 24};
        case PackedFormat::q8_0:
            return {1, kHalf, 512, 0, 128, 34};
        case PackedFormat::iq4_nl:
            return {1, kHalf, 256, 0, 128, 18};
        case PackedFormat::q4_k:
            return {8, 2 * kHalf + 12 * kPackedRows, 256, 0, 0, 144};
        case PackedFormat::q5_k:
            return {8, 2 * kHalf + 12 * kPackedRows, 256, 64, 0, 176};
        case PackedFormat::q6_k:
            return {8, kHalf + 16 * kPackedRows, 256, 128, 32, 210};
        case PackedFormat::iq4_xs:
            return {8, kHalf + 6 * kPackedRows, 256, 0, 128, 136};
    }
    return {};
}

// Values of IQ4_NL and IQ4_XS, plus 128.
inline constexpr std::uint8_t kIq4Values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};

class PackedMatrix {
  public:
    // Whether rows x columns of `format` can be packed.
    static bool is_packable(PackedFormat format, std::uint64_t rows, std::uint64_t columns);
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
    std::uint64_t parts() const { return columns_ / kPackedColumns; }  // of a group
    std::uint64_t size_bytes() const { return groups() * group_bytes(); }
    std::uint64_t group_bytes() const {
        const PackedLayout layout = packed_layout(format_);
        return parts() / layout.parts * layout.block_bytes();
    }
    // Of a group's rows in the file.
    std::uint64_t source_group_bytes() const {
        const PackedLayout layout = packed_layout(format_);
        return parts() / layout.parts * layout.source_bytes * kPackedRows;
    }
    const std::uint8_t* group(std::uint64_t index) const {
        return data_.get() + index * group_bytes();
    }

  private:
    PackedMatrix() = default;

    struct Free {
        void operator()(std::uint8_t* data) const;
    };

    PackedFormat format_ = PackedFormat::q8_0;
    std::uint64_t rows_ = 0;
    std::uint64_t columns_ = 0;
    std::unique_ptr<std::uint8_t, Free> data_;  // 64-byte aligned
};

}  // namespace stet::exec
