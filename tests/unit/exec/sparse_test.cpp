// Choosing rows and attending to them, against the definitions computed in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "exec/sparse/indexer.h"
#include "exec/sparse/sparse_attention.h"

namespace stet::exec {
namespace {

using memory::kPageRows;

// Rows of f32 in pages: one plane, `elements` a row.
class Pages {
  public:
    Pages(std::uint64_t rows, std::uint32_t elements, std::mt19937& random)
        : elements_(elements), data_((rows + kPageRows - 1) / kPageRows * kPageRows * elements) {
        std::normal_distribution<float> normal;
        for (float& value : data_) value = normal(random);
        for (std::uint64_t i = 0; i * kPageRows < rows; ++i) {
            pages_.push_back(reinterpret_cast<std::byte*>(data_.data() + i * kPageRows * elements));
        }
    }
    float* row(std::uint64_t row) { return data_.data() + row * elements_; }
    const float* row(std::uint64_t row) const { return data_.data() + row * elements_; }
    PlaneView plane() const { return {0, elements_ * sizeof(float), memory::ElementType::f32}; }
    Segment segment(std::uint64_t position, std::uint32_t count, std::uint32_t begin) const {
        Segment segment;
        segment.pages = pages_.data();
        segment.position = position;
        segment.token_count = count;
        segment.token_begin = begin;
        return segment;
    }

  private:
    std::uint32_t elements_;
    std::vector<float> data_;
    std::vector<std::byte*> pages_;
};

std::vector<float> made(std::size_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

template <typename Work>
void on_threads(int threads, const Work& work) {
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([&, i] { work(i); });
    work(0);
    for (std::thread& other : others) other.join();
}

void choose(RowIndexer& indexer, std::span<const Segment> segments, const IndexerInput& in,
            int threads) {
    indexer.reset(segments, threads);
    on_threads(threads, [&](int thread) { indexer.score(in, thread, threads); });
    on_threads(threads, [&](int thread) { indexer.choose(in, thread, threads); });
}

std::vector<std::uint32_t> best(const std::vector<float>& scores, std::uint32_t count) {
    std::vector<std::uint32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0U);
    std::partial_sort(order.begin(), order.begin() + count, order.end(),
                      [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
    order.resize(count);
    std::sort(order.begin(), order.end());
    return order;
}

float dot(const float* a, const float* b, std::uint32_t count) {
    double sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += double{a[i]} * double{b[i]};
    return static_cast<float>(sum);
}

std::vector<std::uint32_t> chosen(const RowSelection& selection, std::size_t segment,
                                  std::uint32_t token, std::uint32_t chooser) {
    const auto blocks = selection.blocks(segment, token, chooser);
    return {blocks.begin(), blocks.end()};
}

TEST(RowSelection, TokensThatSeeNoMoreThanTheLimitHaveNoChoice) {
    RowSelection selection({.blocks_max = 3, .block_rows = 4});
    const Segment segments[] = {{.position = 0, .token_count = 20},
                                {.position = 30, .token_count = 2},
                                {.position = 5, .token_count = 1}};
    selection.reset(segments);
    EXPECT_EQ(selection.first_choice(0), 12U);  // position 12 is the first of a fourth block
    EXPECT_EQ(selection.first_choice(1), 0U);
    EXPECT_EQ(selection.first_choice(2), 1U);
    EXPECT_EQ(selection.choices().size(), 10U);
}

TEST(RowSelection, RowsOfRatiosAreSeenWhenTheirLastTokenIs) {
    RowSelection selection({.blocks_max = 2, .ratio = 4});
    const Segment segments[] = {{.position = 0, .token_count = 20}};
    selection.reset(segments);
    EXPECT_EQ(selection.visible_rows(2), 0U);
    EXPECT_EQ(selection.visible_rows(3), 1U);
    EXPECT_EQ(selection.first_choice(0), 11U);  // position 11 completes the third row
}

struct Lightning {
    static constexpr std::uint32_t kHeads = 3, kSize = 40, kCount = 17;
    std::mt19937 random{7};
    Pages first{500, kSize, random}, second{90, kSize, random};
    std::vector<Segment> segments{first.segment(300, 60, 0), second.segment(10, 40, 60)};
    std::vector<float> q = made(100 * kHeads * kSize, random);
    std::vector<float> weights = made(100 * kHeads, random);
    RowSelection selection{{.blocks_max = kCount}};

    IndexerInput input() { return {q.data(), kHeads * kSize, weights.data(), kHeads}; }
    RowIndexer indexer() { return {{kHeads, kSize, first.plane()}, selection}; }
    std::vector<float> scores(const Segment& segment, const Pages& pages, std::uint32_t token) {
        std::vector<float> result;
        const std::uint64_t column = segment.token_begin + token;
        for (std::uint64_t row = 0; row <= segment.position + token; ++row) {
            double sum = 0;
            for (std::uint32_t h = 0; h < kHeads; ++h) {
                const float s = dot(&q[(column * kHeads + h) * kSize], pages.row(row), kSize);
                sum += double{weights[column * kHeads + h]} * double{std::max(0.0F, s)};
            }
            result.push_back(static_cast<float>(sum));
        }
        return result;
    }
};

TEST(RowIndexer, ChoosesTheRowsOfHighestScore) {
    Lightning made;
    RowIndexer indexer = made.indexer();
    for (const int threads : {1, 3}) {
        choose(indexer, made.segments, made.input(), threads);
        EXPECT_EQ(made.selection.first_choice(1), 7U);
        for (std::uint32_t token = 0; token < 60; ++token) {
            EXPECT_EQ(chosen(made.selection, 0, token, 0),
                      best(made.scores(made.segments[0], made.first, token), Lightning::kCount));
        }
        for (std::uint32_t token = 7; token < 40; ++token) {
            EXPECT_EQ(chosen(made.selection, 1, token, 0),
                      best(made.scores(made.segments[1], made.second, token), Lightning::kCount));
        }
    }
}

TEST(RowIndexer, FewChoicesAreSplitAndChooseTheSame) {
    std::mt19937 random(3);
    constexpr std::uint32_t kHeads = 2, kSize = 32, kCount = 100;
    constexpr std::uint64_t kRows = 6000;  // several pieces
    const Pages pages(kRows, kSize, random);
    const auto q = made(kHeads * kSize * 20, random);
    const auto weights = made(kHeads * 20, random);
    const IndexerInput in{q.data(), kHeads * kSize, weights.data(), kHeads};
    RowSelection together({.blocks_max = kCount});
    RowIndexer one({kHeads, kSize, pages.plane()}, together);
    const Segment all[] = {pages.segment(kRows - 20, 20, 0)};
    choose(one, all, in, 2);
    for (std::uint32_t token = 0; token < 20; token += 7) {
        RowSelection alone({.blocks_max = kCount});
        RowIndexer other({kHeads, kSize, pages.plane()}, alone);
        const Segment single[] = {pages.segment(kRows - 20 + token, 1, token)};
        for (const int threads : {1, 2, 5}) {
            choose(other, single, in, threads);
            EXPECT_EQ(chosen(alone, 0, 0, 0), chosen(together, 0, token, 0));
        }
    }
}

TEST(RowIndexer, EqualScoresAreKeptAsThePartialSortKeepsThem) {
    // Rows in groups of equal keys: scores tie everywhere, also at the edge.
    Lightning made;
    for (std::uint64_t row = 0; row < 500; ++row) {
        std::copy_n(made.first.row(row % 5), Lightning::kSize, made.first.row(row));
    }
    RowIndexer indexer = made.indexer();
    choose(indexer, made.segments, made.input(), 2);
    for (std::uint32_t token = 0; token < 60; token += 9) {
        auto scores = made.scores(made.segments[0], made.first, token);
        for (std::size_t i = 5; i < scores.size(); ++i) scores[i] = scores[i % 5];
        EXPECT_EQ(chosen(made.selection, 0, token, 0), best(scores, Lightning::kCount));
    }
}

TEST(RowIndexer, BlocksAreChosenByTheirBestRowAndLocalOnesAlways) {
    std::mt19937 random(5);
    constexpr std::uint32_t kHeads = 2, kSize = 24, kCount = 4, kBlock = 6;
    const Pages pages(200, kSize, random);
    const auto q = made(30 * kHeads * kSize, random);
    RowSelection selection(
        {.choosers = kHeads, .blocks_max = kCount, .block_rows = kBlock, .local_blocks = 2});
    RowIndexer indexer({kHeads, kSize, pages.plane()}, selection);
    const Segment segments[] = {pages.segment(150, 30, 0)};
    choose(indexer, segments, {q.data(), kHeads * kSize, nullptr, 0}, 2);
    for (std::uint32_t token = 0; token < 30; ++token) {
        const std::uint64_t rows = 150 + token + 1;
        for (std::uint32_t head = 0; head < kHeads; ++head) {
            std::vector<float> scores((rows + kBlock - 1) / kBlock, -1e30F);
            for (std::uint64_t row = 0; row < rows; ++row) {
                float& score = scores[row / kBlock];
                score = std::max(score,
                                 dot(&q[(token * kHeads + head) * kSize], pages.row(row), kSize));
            }
            for (std::size_t i = scores.size() - 2; i < scores.size(); ++i) scores[i] = 1e30F;
            EXPECT_EQ(chosen(selection, 0, token, head), best(scores, kCount));
        }
    }
}

// Softmax over the rows given, in double precision.
struct RowRef {
    const float* k;
    const float* v;
};
std::vector<double> attend(const float* q, const std::vector<RowRef>& rows, std::uint32_t key_size,
                           std::uint32_t value_size, float scale, const float* sink) {
    std::vector<double> scores;
    double top = sink != nullptr ? double{*sink} : -1e300;
    for (const RowRef& row : rows) {
        scores.push_back(double{scale} * double{dot(q, row.k, key_size)});
        top = std::max(top, scores.back());
    }
    double total = sink != nullptr ? std::exp(double{*sink} - top) : 0.0;
    std::vector<double> out(value_size);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const double weight = std::exp(scores[i] - top);
        total += weight;
        for (std::uint32_t e = 0; e < value_size; ++e) out[e] += weight * double{rows[i].v[e]};
    }
    for (double& value : out) value /= total;
    return out;
}

void expect_close(const std::vector<double>& expected, const float* found) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(expected[i], double{found[i]}, 2e-5 * (1.0 + std::abs(expected[i])));
    }
}

TEST(SparseAttention, LatentRowsThatWereChosenAndSinks) {
    Lightning index;
    RowIndexer indexer = index.indexer();
    choose(indexer, index.segments, index.input(), 1);
    constexpr std::uint32_t kHeads = 50, kKey = 36, kValue = 20;  // heads of two items
    std::mt19937 random(11);
    const Pages first(500, kKey, random);
    const Pages second(90, kKey, random);
    const std::vector<Segment> segments{first.segment(300, 60, 0), second.segment(10, 40, 60)};
    const auto q = made(100 * kHeads * kKey, random);
    const auto sinks = made(kHeads, random);
    AttentionShape shape;
    shape.heads = kHeads;
    shape.kv_heads = 1;
    shape.key_size = kKey;
    shape.value_size = kValue;
    shape.scale = 0.2F;
    const RowSource sources[] = {{first.plane(), first.plane(), 1, &index.selection}};
    const std::span<const Segment> spans[] = {segments};
    std::vector<float> before;
    for (const int threads : {1, 3}) {
        AttentionScratch scratch;
        SparseAttentionJob job;
        std::vector<float> out(100 * kHeads * kValue, 1e30F);
        job.reset(shape, sources, spans, threads, scratch);
        on_threads(threads, [&](int thread) {
            job.compute(q.data(), kHeads * kKey, sinks.data(), out.data(), thread);
        });
        if (!before.empty()) {
            EXPECT_EQ(before, out);
        }
        before = out;
    }
    for (std::uint32_t column = 0; column < 100; ++column) {
        const std::size_t s = column < 60 ? 0 : 1;
        const Pages& pages = s == 0 ? first : second;
        const std::uint32_t token = column - segments[s].token_begin;
        std::vector<RowRef> rows;
        if (token < index.selection.first_choice(s)) {
            for (std::uint64_t row = 0; row <= segments[s].position + token; ++row) {
                rows.push_back({pages.row(row), pages.row(row)});
            }
        } else {
            for (const std::uint32_t row : index.selection.blocks(s, token, 0)) {
                rows.push_back({pages.row(row), pages.row(row)});
            }
        }
        for (std::uint32_t head = 0; head < kHeads; head += 7) {
            const std::size_t place = std::size_t{column} * kHeads + head;
            expect_close(attend(&q[place * kKey], rows, kKey, kValue, shape.scale, &sinks[head]),
                         &before[place * kValue]);
        }
    }
}

// Choices are made among pooled rows; attention reads the tokens that they stand for, and the last
// tokens, which no pooled row has yet.
TEST(SparseAttention, ChosenRowsMayStandForTokens) {
    std::mt19937 random(23);
    constexpr std::uint32_t kHeads = 3, kSize = 16, kRatio = 4, kCount = 5;
    const Pages tokens(200, kSize, random);
    const Pages pools(50, kSize, random);
    const std::vector<Segment> own{tokens.segment(10, 70, 0), tokens.segment(150, 3, 70)};
    const std::vector<Segment> pooled{pools.segment(10, 70, 0), pools.segment(150, 3, 70)};
    const auto q = made(73 * kHeads * kSize, random);
    const auto index_q = made(73 * kSize, random);
    const auto weights = made(73, random);
    RowSelection selection({.blocks_max = kCount, .ratio = kRatio, .stands_for_tokens = true});
    RowIndexer indexer({1, kSize, pools.plane()}, selection);
    choose(indexer, pooled, {index_q.data(), kSize, weights.data(), 1}, 2);
    EXPECT_EQ(selection.first_choice(0), 13U);  // position 23 completes the sixth pool
    AttentionShape shape;
    shape.heads = kHeads;
    shape.kv_heads = 1;
    shape.key_size = shape.value_size = kSize;
    shape.scale = 0.3F;
    const RowSource sources[] = {{tokens.plane(), tokens.plane(), 1, &selection}};
    const std::span<const Segment> spans[] = {own};
    AttentionScratch scratch;
    SparseAttentionJob job;
    std::vector<float> out(73 * kHeads * kSize, 1e30F);
    job.reset(shape, sources, spans, 2, scratch);
    on_threads(
        2, [&](int thread) { job.compute(q.data(), kHeads * kSize, nullptr, out.data(), thread); });
    for (std::uint32_t column = 0; column < 73; ++column) {
        const std::size_t s = column < 70 ? 0 : 1;
        const std::uint32_t token = column - own[s].token_begin;
        const std::uint64_t position = own[s].position + token;
        std::vector<RowRef> rows;
        const auto add = [&](std::uint64_t begin, std::uint64_t end) {
            for (std::uint64_t row = begin; row < end; ++row) {
                rows.push_back({tokens.row(row), tokens.row(row)});
            }
        };
        const std::uint64_t tail = (position + 1) / kRatio * kRatio;
        if (token < selection.first_choice(s)) {
            add(0, tail);
        } else {
            std::vector<float> scores;
            for (std::uint64_t pool = 0; pool < tail / kRatio; ++pool) {
                const float score = dot(&index_q[column * kSize], pools.row(pool), kSize);
                scores.push_back(weights[column] * std::max(0.0F, score));
            }
            for (const std::uint32_t pool : best(scores, kCount)) {
                add(pool * kRatio, (pool + 1) * kRatio);
            }
        }
        add(tail, position + 1);
        for (std::uint32_t head = 0; head < kHeads; ++head) {
            const std::size_t place = std::size_t{column} * kHeads + head;
            expect_close(attend(&q[place * kSize], rows, kSize, kSize, shape.scale, nullptr),
                         &out[place * kSize]);
        }
    }
}

TEST(SparseAttention, EachKvHeadHasBlocksOfItsOwn) {
    std::mt19937 random(13);
    constexpr std::uint32_t kKv = 2, kHeads = 4, kSize = 16, kRow = 2 * kKv * kSize;
    const Pages pages(200, kRow, random);  // K of all heads, then V, in one row
    const auto q = made(30 * kHeads * kSize, random);
    RowSelection selection({.choosers = kKv, .blocks_max = 3, .block_rows = 8});
    const std::vector<Segment> segments{pages.segment(100, 30, 0)};
    selection.reset(segments);
    for (std::uint32_t token = 0; token < 30; ++token) {
        for (std::uint32_t kv = 0; kv < kKv; ++kv) {
            const auto blocks = selection.blocks(0, token, kv);
            blocks[0] = kv;
            blocks[1] = 5 + kv;
            blocks[2] = (100 + token) / 8;  // in part beyond what is seen
        }
    }
    AttentionShape shape;
    shape.heads = kHeads;
    shape.kv_heads = kKv;
    shape.key_size = shape.value_size = shape.v_head_stride = kSize;
    shape.scale = 0.25F;
    // Planes side by side in one page: a plane's rows are contiguous in a real page.
    Pages keys(200, kKv * kSize, random);
    Pages values(200, kKv * kSize, random);
    std::vector<std::vector<float>> joined(4, std::vector<float>(kPageRows * kRow));
    std::vector<std::byte*> both;
    for (std::size_t page = 0; page < joined.size(); ++page) {
        for (std::uint64_t r = 0; r < kPageRows && page * kPageRows + r < 200; ++r) {
            std::copy_n(keys.row(page * kPageRows + r), kKv * kSize,
                        &joined[page][r * kKv * kSize]);
            std::copy_n(values.row(page * kPageRows + r), kKv * kSize,
                        &joined[page][(kPageRows + r) * kKv * kSize]);
        }
        both.push_back(reinterpret_cast<std::byte*>(joined[page].data()));
    }
    std::vector<Segment> placed = segments;
    placed[0].pages = both.data();
    PlaneView v = keys.plane();
    v.offset_bytes = kPageRows * v.row_bytes;
    const RowSource sources[] = {{keys.plane(), v, 1, &selection}};
    const std::span<const Segment> spans[] = {placed};
    AttentionScratch scratch;
    SparseAttentionJob job;
    std::vector<float> out(30 * kHeads * kSize, 1e30F);
    job.reset(shape, sources, spans, 1, scratch);
    job.compute(q.data(), kHeads * kSize, nullptr, out.data(), 0);
    for (std::uint32_t token = 0; token < 30; ++token) {
        for (std::uint32_t head = 0; head < kHeads; ++head) {
            const std::uint32_t kv = head / 2;
            std::vector<RowRef> rows;
            for (const std::uint32_t block : selection.blocks(0, token, kv)) {
                for (std::uint64_t row = block * 8; row < block * 8 + 8 && row <= 100 + token;
                     ++row) {
                    rows.push_back({keys.row(row) + kv * kSize, values.row(row) + kv * kSize});
                }
            }
            const std::size_t place = std::size_t{token} * kHeads + head;
            expect_close(attend(&q[place * kSize], rows, kSize, kSize, shape.scale, nullptr),
                         &out[place * kSize]);
        }
    }
}

TEST(SparseAttention, AWindowAndCompressedRowsShareOneSoftmax) {
    std::mt19937 random(17);
    constexpr std::uint32_t kHeads = 3, kSize = 32, kRatio = 4, kWindow = 10;
    const Pages raw(100, kSize, random);
    const Pages compressed(25, kSize, random);
    const auto q = made(50 * kHeads * kSize, random);
    const auto sinks = made(kHeads, random);
    RowSelection selection({.blocks_max = 6, .ratio = kRatio});
    const std::vector<Segment> near{raw.segment(40, 50, 0)};
    const std::vector<Segment> far{compressed.segment(40, 50, 0)};
    selection.reset(far);
    for (const RowSelection::Choice& choice : selection.choices()) {
        const auto blocks = selection.blocks(choice.segment, choice.token, 0);
        for (std::uint32_t i = 0; i < 6; ++i) blocks[i] = i + (i > 2 ? 1 + choice.token % 3 : 0);
    }
    AttentionShape shape;
    shape.heads = kHeads;
    shape.kv_heads = 1;
    shape.key_size = shape.value_size = kSize;
    shape.scale = 0.3F;
    shape.window_kind = Window::sliding;
    shape.window = kWindow;
    const RowSource sources[] = {{raw.plane(), raw.plane(), 1, nullptr},
                                 {compressed.plane(), compressed.plane(), kRatio, &selection}};
    const std::span<const Segment> spans[] = {near, far};
    AttentionScratch scratch;
    SparseAttentionJob job;
    std::vector<float> out(50 * kHeads * kSize, 1e30F);
    job.reset(shape, sources, spans, 2, scratch);
    on_threads(2, [&](int thread) {
        job.compute(q.data(), kHeads * kSize, sinks.data(), out.data(), thread);
    });
    for (std::uint32_t token = 0; token < 50; ++token) {
        const std::uint64_t position = 40 + token;
        std::vector<RowRef> rows;
        for (std::uint64_t row = position + 1 - kWindow; row <= position; ++row) {
            rows.push_back({raw.row(row), raw.row(row)});
        }
        if (token < selection.first_choice(0)) {
            for (std::uint64_t row = 0; row < (position + 1) / kRatio; ++row) {
                rows.push_back({compressed.row(row), compressed.row(row)});
            }
        } else {
            for (const std::uint32_t row : selection.blocks(0, token, 0)) {
                rows.push_back({compressed.row(row), compressed.row(row)});
            }
        }
        for (std::uint32_t head = 0; head < kHeads; ++head) {
            const std::size_t place = std::size_t{token} * kHeads + head;
            expect_close(attend(&q[place * kSize], rows, kSize, kSize, shape.scale, &sinks[head]),
                         &out[place * kSize]);
        }
    }
}

}  // namespace
}  // namespace stet::exec
