#include "base/check.h"
#include "exec/attention.h"
#include "exec/kernel.h"

namespace stet::exec {

void append_rows(const float* rows, std::uint64_t row_stride, std::uint32_t elements,
                 const PlaneView& plane, std::span<const Segment> segments, int thread, int threads,
                 std::uint32_t ratio) {
    STET_CHECK(thread >= 0 && thread < threads);
    STET_CHECK(plane.type != memory::ElementType::q8_0 || elements % 32 == 0);
    std::uint64_t total = 0;
    for (const Segment& segment : segments) {
        total += segment.token_count;
    }
    const auto share = static_cast<std::uint64_t>(thread);
    const auto shares = static_cast<std::uint64_t>(threads);
    const std::uint64_t begin = total * share / shares;
    const std::uint64_t end = total * (share + 1) / shares;
    const auto store_row = kernels().store_row;
    std::uint64_t counted = 0;  // tokens of the segments before
    for (const Segment& segment : segments) {
        for (std::uint64_t token = begin > counted ? begin - counted : 0;
             token < segment.token_count && counted + token < end; ++token) {
            const std::uint64_t position = segment.position + token;
            if ((position + 1) % ratio != 0) continue;
            const std::uint64_t index = position / ratio - segment.first_row;
            std::byte* page = segment.pages[index / memory::kPageRows];
            store_row(rows + (segment.token_begin + token) * row_stride, elements, plane.type,
                      page + plane.offset_bytes + index % memory::kPageRows * plane.row_bytes);
        }
        counted += segment.token_count;
    }
}

}  // namespace stet::exec
