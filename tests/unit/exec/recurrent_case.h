// A ragged batch over blocks of a fixed group, for tests of recurrent kernels.
#pragma once

#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "exec/attention.h"

namespace stet::exec::test {

inline std::vector<float> noise(std::size_t count, unsigned seed, float scale = 1.0F) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, scale);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

using Block = std::vector<float>;

// One sequence's part: its state before (empty: at position 0) and its tokens.
struct Part {
    Block base;
    std::uint32_t tokens;
};

struct Batch {
    std::vector<Segment> segments;
    std::vector<Block> blocks;  // after the step, one a part; NaN where nothing wrote

    Batch(const std::vector<Part>& parts, std::size_t block_floats) {
        std::uint32_t token = 0;
        blocks.assign(parts.size(), Block(block_floats, std::numeric_limits<float>::quiet_NaN()));
        for (std::size_t i = 0; i < parts.size(); ++i) {
            Segment segment;
            if (!parts[i].base.empty()) {
                segment.base_block = reinterpret_cast<const std::byte*>(parts[i].base.data());
            }
            segment.new_block = reinterpret_cast<std::byte*>(blocks[i].data());
            segment.token_begin = token;
            segment.token_count = parts[i].tokens;
            token += parts[i].tokens;
            segments.push_back(segment);
        }
    }
};

// Runs a kernel's shares, last thread first: no share may need another.
inline void on_threads(int threads, const std::function<void(int thread, int threads)>& kernel) {
    for (int thread = threads; thread-- > 0;) kernel(thread, threads);
}

}  // namespace stet::exec::test
