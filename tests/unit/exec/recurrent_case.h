// A ragged batch over blocks of a fixed group, for tests of recurrent kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "exec/recurrent/parts.h"

namespace stet::exec::test {

inline std::vector<float> noise(std::size_t count, unsigned seed, float scale = 1.0F) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, scale);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

using Block = std::vector<float>;
inline constexpr std::size_t kOffset = 5;  // floats of other planes before a kernel's state
inline constexpr std::size_t kOffsetBytes = kOffset * sizeof(float);

// One sequence's part of a step: its state before (empty: at position 0), and which tokens of its
// inputs.
struct Part {
    Block base;
    unsigned sequence;
    std::uint32_t begin;
    std::uint32_t end;
};

// A kernel with inputs of its own making.
struct Tested {
    using Inputs = std::vector<std::vector<float>>;  // each [tokens][width]
    using Run = std::function<void(std::span<const ConstRows> in, const Rows& out,
                                   std::span<const Segment> segments, int thread, int threads)>;

    std::vector<std::uint32_t> widths;  // of the inputs
    std::uint32_t out_width;
    std::size_t state_floats;
    std::function<Inputs(unsigned sequence, std::uint32_t tokens)> inputs;
    Run run;
};

struct Outcome {
    std::vector<std::vector<float>> out;  // one a part
    std::vector<Block> states;            // likewise; NaN where nothing was written
};

inline constexpr std::uint32_t kTokens = 50;  // of each sequence

// Runs the shares of all threads, last one first: no share may need another.
inline Outcome run(const Tested& tested, const std::vector<Part>& parts, int threads) {
    std::vector<std::vector<float>> in(tested.widths.size());
    std::vector<Segment> segments;
    std::vector<Block> bases;
    std::vector<Block> blocks;
    std::uint32_t tokens = 0;
    bases.reserve(parts.size());
    for (const Part& part : parts) {
        const auto inputs = tested.inputs(part.sequence, kTokens);
        for (std::size_t i = 0; i < in.size(); ++i) {
            const auto begin = inputs[i].begin() + std::ptrdiff_t{part.begin} * tested.widths[i];
            const auto end = inputs[i].begin() + std::ptrdiff_t{part.end} * tested.widths[i];
            in[i].insert(in[i].end(), begin, end);
        }
        Segment segment;
        if (!part.base.empty()) {
            Block& base = bases.emplace_back(kOffset, -7.0F);
            base.insert(base.end(), part.base.begin(), part.base.end());
            segment.base_block = reinterpret_cast<const std::byte*>(base.data());
        }
        segment.token_begin = tokens;
        segment.token_count = part.end - part.begin;
        tokens += segment.token_count;
        segments.push_back(segment);
        blocks.emplace_back(kOffset + tested.state_floats, std::numeric_limits<float>::quiet_NaN());
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        segments[i].new_block = reinterpret_cast<std::byte*>(blocks[i].data());
    }
    std::vector<ConstRows> rows;
    for (std::size_t i = 0; i < in.size(); ++i) rows.push_back({in[i].data(), tested.widths[i]});
    std::vector<float> out(std::size_t{tokens} * tested.out_width);
    for (int thread = threads; thread-- > 0;) {
        tested.run(rows, {out.data(), tested.out_width}, segments, thread, threads);
    }
    Outcome outcome;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto begin = out.begin() + std::ptrdiff_t{segments[i].token_begin} * tested.out_width;
        outcome.out.emplace_back(
            begin, begin + std::ptrdiff_t{segments[i].token_count} * tested.out_width);
        outcome.states.emplace_back(blocks[i].begin() + kOffset, blocks[i].end());
    }
    return outcome;
}

// One sequence from position 0.
inline Outcome run_whole(const Tested& tested) {
    return run(tested, {{{}, 0, 0, kTokens}}, 1);
}

// Where a sequence is cut into steps, what shares its steps and how many threads there are: the
// results are the same to the bit.
inline void expect_cuts_change_nothing(const Tested& tested) {
    const Outcome whole = run_whole(tested);
    for (const std::uint32_t cut : {1U, 2U, 3U, 20U, kTokens - 1}) {
        const Outcome first = run(tested, {{{}, 0, 0, cut}, {{}, 1, 0, 9}}, 3);
        const Outcome second =
            run(tested, {{first.states[1], 1, 9, 20}, {first.states[0], 0, cut, kTokens}}, 2);
        std::vector<float> out = first.out[0];
        out.insert(out.end(), second.out[1].begin(), second.out[1].end());
        EXPECT_EQ(out, whole.out[0]) << "cut after " << cut;
        EXPECT_EQ(second.states[1], whole.states[0]) << "cut after " << cut;
    }
}

}  // namespace stet::exec::test
