#include "exec/sparse/selection.h"

#include "base/check.h"

namespace stet::exec {

void RowSelection::reset(std::span<const Segment> segments) {
    STET_CHECK(shape_.blocks_max > 0 && shape_.block_rows > 0 && shape_.ratio > 0);
    segments_.clear();
    choices_.clear();
    // The first position that sees more blocks than may be chosen.
    const std::uint64_t rows = std::uint64_t{shape_.blocks_max} * shape_.block_rows + 1;
    const std::uint64_t position = rows * shape_.ratio - 1;
    for (std::uint32_t i = 0; i < segments.size(); ++i) {
        const Segment& segment = segments[i];
        std::uint32_t first = 0;
        if (segment.position < position) {
            first = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(segment.token_count, position - segment.position));
        }
        segments_.push_back({first, choices_.size()});
        for (std::uint32_t token = first; token < segment.token_count; ++token) {
            choices_.push_back({i, token});
        }
    }
    const std::size_t size = choices_.size() * shape_.choosers * shape_.blocks_max;
    if (chosen_.size() < size) chosen_.resize(size);
}

}  // namespace stet::exec
