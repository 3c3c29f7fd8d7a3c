#include "exec/product/packed_matrix.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>

#include "base/check.h"
#include "exec/product/pack.h"

namespace stet::exec {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargePage = 2U << 20;

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

bool PackedMatrix::is_packable(PackedFormat format, std::uint64_t rows, std::uint64_t columns) {
    return rows != 0 && columns != 0 && rows % kPackedRows == 0 &&
           columns % packed_layout(format).columns() == 0;
}

Result<PackedMatrix> PackedMatrix::create(PackedFormat format, std::uint64_t rows,
                                          std::uint64_t columns) {
    STET_CHECK(is_packable(format, rows, columns));
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
    STET_CHECK(source.size() == groups() * source_group_bytes());
    STET_CHECK(group_begin <= group_end && group_end <= groups());
    pack_groups(format_, reinterpret_cast<const std::uint8_t*>(source.data()),
                parts() / packed_layout(format_).parts, group_begin, group_end, data_.get());
}

}  // namespace stet::exec
