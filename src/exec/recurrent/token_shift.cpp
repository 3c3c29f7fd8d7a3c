#include "exec/recurrent/token_shift.h"

#include <algorithm>

namespace stet::exec {

void token_shift(std::uint32_t width, std::uint64_t offset_bytes, const ConstRows& x,
                 const Rows& out, std::span<const Segment> segments, int thread, int threads) {
    constexpr std::uint64_t kUnit = 64;
    const Share share = share_of(width, kUnit, thread, threads);
    const std::uint64_t count = share.end - share.begin;
    for (const Segment& segment : segments) {
        if (segment.token_count == 0) continue;
        const std::uint64_t first = segment.token_begin;
        const std::uint64_t last = first + segment.token_count - 1;
        start_from(base_row(segment, offset_bytes), out.row(first), share.begin, share.end);
        for (std::uint64_t t = first; t < last; ++t) {
            std::copy_n(x.row(t) + share.begin, count, out.row(t + 1) + share.begin);
        }
        std::copy_n(x.row(last) + share.begin, count, new_row(segment, offset_bytes) + share.begin);
    }
}

}  // namespace stet::exec
