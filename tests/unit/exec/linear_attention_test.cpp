#include "exec/recurrent/linear_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "exec/kernel.h"

namespace stet::exec {
namespace {

struct Sequence {
    std::uint32_t tokens = 1;
    bool is_new = true;
};

// A made-up call over several sequences, with blocks that hold something else around the state.
struct Case {
    LinearAttentionShape shape;
    std::vector<Sequence> sequences;
    std::uint32_t seed = 1;
};

class Computation {
  public:
    explicit Computation(const Case& what) : shape(what.shape) {
        std::mt19937 random(what.seed);
        std::uniform_real_distribution<float> value(-1.0F, 1.0F);
        std::uniform_real_distribution<float> share(0.5F, 1.0F);
        for (const Sequence& sequence : what.sequences) tokens += sequence.tokens;
        const auto fill = [&](std::vector<float>& to, std::size_t count, auto& from) {
            to.resize(count);
            for (float& x : to) x = from(random);
        };
        const std::size_t size = shape.size;
        fill(qkv, tokens * (2 * shape.key_heads + shape.heads) * size, value);
        for (float& x : qkv) x /= std::sqrt(static_cast<float>(size));
        fill(decay, tokens * shape.heads * (shape.column_decay ? size : 1), share);
        fill(beta, std::size_t{tokens} * shape.heads, share);
        const std::size_t floats = kBefore + shape.heads * size * size + 3;
        for (const Sequence& sequence : what.sequences) {
            fill(base.emplace_back(), floats, value);
            next.emplace_back(floats, 7.0F);
            is_new.push_back(sequence.is_new);
        }
        shape.state_offset_bytes = kBefore * sizeof(float);
        std::uint32_t begin = 0;
        for (std::size_t i = 0; i < what.sequences.size(); ++i) {
            Segment segment;
            segment.base_block =
                is_new[i] ? nullptr : reinterpret_cast<const std::byte*>(base[i].data());
            segment.new_block = reinterpret_cast<std::byte*>(next[i].data());
            segment.token_begin = begin;
            segment.token_count = what.sequences[i].tokens;
            begin += segment.token_count;
            segments.push_back(segment);
        }
        out.assign(std::size_t{tokens} * shape.heads * size, -9.0F);
    }

    LinearAttentionInputs inputs() const {
        const std::uint64_t size = shape.size;
        const std::uint64_t stride = (2 * shape.key_heads + shape.heads) * size;
        const std::uint64_t keys = shape.key_heads * size;
        const std::uint64_t decays = shape.column_decay ? size : 1;
        return {{qkv.data(), stride, size},
                {qkv.data() + keys, stride, size},
                {qkv.data() + 2 * keys, stride, size},
                {decay.data(), shape.heads * decays, decays},
                {beta.data(), shape.heads, 1}};
    }

    void compute(int threads) {
        const LinearAttentionInputs all = inputs();
        std::vector<std::thread> running;
        for (int i = 0; i < threads; ++i) {
            running.emplace_back(
                [&, i] { linear_attention(shape, all, segments, out.data(), i, threads); });
        }
        for (std::thread& thread : running) thread.join();
    }

    // The definition, in double precision: checks every result and every state.
    void expect_right() const {
        for (std::size_t i = 0; i < segments.size(); ++i) {
            for (std::uint32_t h = 0; h < shape.heads; ++h) expect_head(i, h);
            for (std::size_t j = 0; j < kBefore; ++j) ASSERT_EQ(next[i][j], 7.0F);
            for (std::size_t j = next[i].size() - 3; j < next[i].size(); ++j) {
                ASSERT_EQ(next[i][j], 7.0F);
            }
        }
    }

    static constexpr std::size_t kBefore = 5;
    LinearAttentionShape shape;
    std::uint32_t tokens = 0;
    std::vector<float> qkv, decay, beta, out;
    std::vector<std::vector<float>> base, next;
    std::vector<bool> is_new;
    std::vector<Segment> segments;

  private:
    void expect_head(std::size_t i, std::uint32_t h) const {
        const std::size_t n = shape.size;
        std::vector<double> state(n * n, 0.0);
        if (!is_new[i]) {
            const float* from = base[i].data() + kBefore + h * n * n;
            state.assign(from, from + n * n);
        }
        const LinearAttentionInputs all = inputs();
        const std::uint32_t key_head = shape.key_order == KeyHeads::grouped
                                           ? h / (shape.heads / shape.key_heads)
                                           : h % shape.key_heads;
        for (std::uint32_t s = 0; s < segments[i].token_count; ++s) {
            const std::size_t t = segments[i].token_begin + s;
            const float* q = all.q.data + t * all.q.token_stride + key_head * n;
            const float* k = all.k.data + t * all.k.token_stride + key_head * n;
            const float* v = all.v.data + t * all.v.token_stride + h * n;
            const float* g =
                all.decay.data + t * all.decay.token_stride + h * all.decay.head_stride;
            for (std::size_t r = 0; r < n; ++r) {
                double known = 0.0;
                double result = 0.0;
                for (std::size_t c = 0; c < n; ++c) {
                    double& x = state[r * n + c];
                    x *= static_cast<double>(g[shape.column_decay ? c : 0]);
                    known += x * static_cast<double>(k[c]);
                }
                double u = static_cast<double>(v[r]);
                if (shape.delta_rule) {
                    u = static_cast<double>(beta[t * shape.heads + h]) * (u - known);
                }
                for (std::size_t c = 0; c < n; ++c) {
                    state[r * n + c] += u * static_cast<double>(k[c]);
                    result += state[r * n + c] * static_cast<double>(q[c]);
                }
                ASSERT_NEAR(out[(t * shape.heads + h) * n + r],
                            static_cast<double>(shape.scale) * result, 2e-5)
                    << "token " << t << " head " << h << " row " << r;
            }
        }
        for (std::size_t j = 0; j < n * n; ++j) {
            ASSERT_NEAR(next[i][kBefore + h * n * n + j], state[j], 2e-5) << "head " << h;
        }
    }
};

LinearAttentionShape shape_of(std::uint32_t heads, std::uint32_t key_heads, std::uint32_t size) {
    LinearAttentionShape shape;
    shape.heads = heads;
    shape.key_heads = key_heads;
    shape.size = size;
    shape.scale = 1.0F / std::sqrt(static_cast<float>(size));
    return shape;
}

std::vector<LinearAttentionShape> shapes() {
    std::vector<LinearAttentionShape> all = {shape_of(2, 2, 128), shape_of(6, 2, 32),
                                             shape_of(6, 2, 20), shape_of(3, 1, 7),
                                             shape_of(1, 1, 1)};
    const std::size_t plain = all.size();
    for (std::size_t i = 0; i < plain; ++i) {
        LinearAttentionShape shape = all[i];
        shape.key_order = KeyHeads::tiled;
        all.push_back(shape);
        shape.column_decay = true;
        all.push_back(shape);
        shape.column_decay = false;
        shape.delta_rule = false;
        shape.scale = 1.0F;
        all.push_back(shape);
    }
    return all;
}

class LinearAttentionTest : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { force_kernel_target(GetParam()); }
    void TearDown() override { force_kernel_target(""); }
};

INSTANTIATE_TEST_SUITE_P(Targets, LinearAttentionTest, testing::ValuesIn(kernel_targets()),
                         [](const auto& parameter) { return parameter.param; });

TEST_P(LinearAttentionTest, EqualsTheDefinition) {
    for (const LinearAttentionShape& shape : shapes()) {
        Computation run({shape, {{9, true}, {1, false}, {1, true}, {5, false}}});
        run.compute(1);
        run.expect_right();
        if (HasFatalFailure()) FAIL() << "size " << shape.size << " heads " << shape.heads;
    }
}

TEST_P(LinearAttentionTest, ThreadsDontChangeABit) {
    for (const LinearAttentionShape& shape : shapes()) {
        const Case what = {shape, {{3, false}, {1, true}}};
        Computation alone(what);
        alone.compute(1);
        for (const int threads : {2, 3, 7}) {
            Computation shared(what);
            shared.compute(threads);
            ASSERT_EQ(alone.out, shared.out) << threads << " threads, size " << shape.size;
            ASSERT_EQ(alone.next, shared.next) << threads << " threads, size " << shape.size;
        }
    }
}

TEST_P(LinearAttentionTest, APromptMayBeCutAnywhere) {
    for (const LinearAttentionShape& shape : shapes()) {
        Computation whole({shape, {{12, false}}});
        whole.compute(2);
        for (const std::uint32_t cut : {1U, 5U, 11U}) {
            Computation parts({shape, {{12, false}}});
            parts.segments[0].token_count = cut;
            parts.compute(2);
            parts.base = parts.next;
            Segment& segment = parts.segments[0];
            segment.base_block = reinterpret_cast<const std::byte*>(parts.base[0].data());
            segment.token_begin = cut;
            segment.token_count = 12 - cut;
            parts.compute(2);
            ASSERT_EQ(whole.out, parts.out) << "cut at " << cut << ", size " << shape.size;
            ASSERT_EQ(whole.next, parts.next) << "cut at " << cut << ", size " << shape.size;
        }
    }
}

// A new sequence must not read a block that another one left there.
TEST_P(LinearAttentionTest, AtPositionZeroTheStateIsZero) {
    const LinearAttentionShape shape = shape_of(2, 2, 16);
    Computation clean({shape, {{4, true}}});
    Computation dirty({shape, {{4, true}}});
    for (float& x : dirty.next[0]) x = std::nanf("");
    clean.compute(1);
    dirty.compute(1);
    EXPECT_EQ(clean.out, dirty.out);
}

}  // namespace
}  // namespace stet::exec
