#include "exec/product/packed_matrix.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace stet::exec {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargePage = 2U << 20;
constexpr std::size_t kWordBytes = 4;  // a quad of one row
constexpr std::size_t kQuads = kPackedColumns / 4;

// Where the parts of a block are in the file's row.
struct SourceLayout {
    std::size_t block_bytes;
    std::size_t m_offset;     // of m; 0: none
    std::size_t high_offset;  // of the fifth bits; 0: none
    std::size_t value_offset;
    std::size_t value_bytes;
};

constexpr SourceLayout source_layout(PackedFormat format) {
    switch (format) {
        case PackedFormat::q4_0:
            return {18, 0, 0, 2, 16};
        case PackedFormat::q4_1:
            return {20, 2, 0, 4, 16};
        case PackedFormat::q5_0:
            return {22, 0, 2, 6, 16};
        case PackedFormat::q5_1:
            return {24, 2, 4, 8, 16};
        case PackedFormat::q8_0:
            return {34, 0, 0, 2, 32};
    }
    return {};
}

// The fifth bits of 16 rows: bit c of a row's word belongs to column c.
void pack_high(const std::array<std::uint32_t, kPackedRows>& bits, std::uint8_t* out) {
    for (std::size_t quad = 0; quad < kQuads; ++quad) {
        std::uint64_t mask = 0;
        for (std::size_t row = 0; row < kPackedRows; ++row) {
            mask |= std::uint64_t{(bits[row] >> (4 * quad)) & 0xFU} << (4 * row);
        }
        std::memcpy(out + quad * sizeof(mask), &mask, sizeof(mask));
    }
}

template <PackedFormat kFormat>
void pack_block(const std::uint8_t* source, std::size_t row_bytes, std::uint8_t* out) {
    constexpr SourceLayout from = source_layout(kFormat);
    constexpr PackedLayout to = packed_layout(kFormat);
    std::array<std::uint32_t, kPackedRows> high{};
    std::uint8_t* d = out + to.quad_bytes + to.high_bytes;
    std::uint8_t* m = d + kPackedRows * 2;
    for (std::size_t row = 0; row < kPackedRows; ++row) {
        const std::uint8_t* block = source + row * row_bytes;
        for (std::size_t word = 0; word < from.value_bytes / kWordBytes; ++word) {
            std::uint32_t values;
            std::memcpy(&values, block + from.value_offset + word * kWordBytes, kWordBytes);
            if (kFormat == PackedFormat::q8_0) values ^= 0x80808080U;
            std::memcpy(out + (word * kPackedRows + row) * kWordBytes, &values, kWordBytes);
        }
        std::memcpy(d + row * 2, block, 2);
        if constexpr (from.m_offset != 0) std::memcpy(m + row * 2, block + from.m_offset, 2);
        if constexpr (from.high_offset != 0)
            std::memcpy(&high[row], block + from.high_offset, kWordBytes);
    }
    if constexpr (to.high_bytes != 0) pack_high(high, out + to.quad_bytes);
}

// Groups [begin, end) of a matrix with `blocks` blocks a row.
template <PackedFormat kFormat>
void pack_groups(const std::uint8_t* source, std::size_t blocks, std::size_t begin, std::size_t end,
                 std::uint8_t* out) {
    constexpr std::size_t kFrom = source_layout(kFormat).block_bytes;
    constexpr std::size_t kTo = packed_layout(kFormat).block_bytes();
    for (std::size_t group = begin; group < end; ++group) {
        const std::uint8_t* in = source + group * kPackedRows * blocks * kFrom;
        for (std::size_t b = 0; b < blocks; ++b) {
            pack_block<kFormat>(in + b * kFrom, blocks * kFrom, out + (group * blocks + b) * kTo);
        }
    }
}

using PackGroups = void (*)(const std::uint8_t*, std::size_t, std::size_t, std::size_t,
                            std::uint8_t*);

PackGroups pack_groups_of(PackedFormat format) {
    switch (format) {
        case PackedFormat::q4_0:
            return pack_groups<PackedFormat::q4_0>;
        case PackedFormat::q4_1:
            return pack_groups<PackedFormat::q4_1>;
        case PackedFormat::q5_0:
            return pack_groups<PackedFormat::q5_0>;
        case PackedFormat::q5_1:
            return pack_groups<PackedFormat::q5_1>;
        case PackedFormat::q8_0:
            return pack_groups<PackedFormat::q8_0>;
    }
    return nullptr;
}

// Large pages where the kernel has them: a fault for each 4 KiB costs more than the conversion.
std::uint8_t* allocate(std::size_t size_bytes) {
    const std::size_t alignment = size_bytes >= kLargePage ? kLargePage : kAlignment;
    const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
    void* data = std::aligned_alloc(alignment, rounded);
    if (data != nullptr && alignment == kLargePage) madvise(data, rounded, MADV_HUGEPAGE);
    return static_cast<std::uint8_t*>(data);
}

}  // namespace

void PackedMatrix::Free::operator()(std::uint8_t* data) const {
    std::free(data);
}

bool PackedMatrix::is_packable(std::uint64_t rows, std::uint64_t columns) {
    return rows != 0 && columns != 0 && rows % kPackedRows == 0 && columns % kPackedColumns == 0;
}

Result<PackedMatrix> PackedMatrix::create(PackedFormat format, std::uint64_t rows,
                                          std::uint64_t columns) {
    STET_CHECK(is_packable(rows, columns));
    PackedMatrix packed;
    packed.format_ = format;
    packed.rows_ = rows;
    packed.columns_ = columns;
    packed.data_.reset(allocate(packed.size_bytes()));
    if (!packed.data_) {
        return Status(Code::resource_exhausted,
                      fmt::format("no memory to repack a weight of {} bytes", packed.size_bytes()));
    }
    return packed;
}

void PackedMatrix::fill(std::span<const std::byte> source, std::uint64_t group_begin,
                        std::uint64_t group_end) {
    STET_CHECK(source.size() == rows_ * blocks() * source_layout(format_).block_bytes);
    STET_CHECK(group_begin <= group_end && group_end <= groups());
    pack_groups_of(format_)(reinterpret_cast<const std::uint8_t*>(source.data()), blocks(),
                            group_begin, group_end, data_.get());
}

}  // namespace stet::exec
