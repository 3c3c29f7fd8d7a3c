// The encoding: every byte counts, every length is checked, and what is wrong with valid checksums
// is refused all the same, before the target changes, within bounded memory.
#include "state/encode.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <set>

#include "unit/state/context_world.h"
#include "unit/state/encoded_bytes.h"

namespace {

// Bytes from operator new that are alive, and their peak.
std::atomic<std::int64_t> g_alive{0};
std::atomic<std::int64_t> g_peak{0};

constexpr std::size_t kPrefix = 2 * sizeof(std::max_align_t);

void* counted(std::size_t size) {
    auto* block = static_cast<std::byte*>(std::malloc(size + kPrefix));
    if (block == nullptr) throw std::bad_alloc();
    std::memcpy(block, &size, sizeof(size));
    const std::int64_t alive =
        g_alive.fetch_add(static_cast<std::int64_t>(size)) + static_cast<std::int64_t>(size);
    std::int64_t peak = g_peak.load();
    while (alive > peak && !g_peak.compare_exchange_weak(peak, alive)) {
    }
    return block + kPrefix;
}

void uncounted(void* at) noexcept {
    if (at == nullptr) return;
    auto* block = static_cast<std::byte*>(at) - kPrefix;
    std::size_t size = 0;
    std::memcpy(&size, block, sizeof(size));
    g_alive.fetch_sub(static_cast<std::int64_t>(size));
    std::free(block);
}

}  // namespace

void* operator new(std::size_t size) {
    return counted(size);
}
void* operator new[](std::size_t size) {
    return counted(size);
}
void operator delete(void* at) noexcept {
    uncounted(at);
}
void operator delete[](void* at) noexcept {
    uncounted(at);
}
void operator delete(void* at, std::size_t) noexcept {
    uncounted(at);
}
void operator delete[](void* at, std::size_t) noexcept {
    uncounted(at);
}

namespace stet::state {
namespace {

using namespace state_test;
using format::kHeaderBytes;

// A small source of states, and a live target with neighbours that must not feel anything.
class EncodeTest : public testing::TestWithParam<unsigned> {
  protected:
    EncodeTest() : source_(schema()), target_(schema()) {
        source_.feed(0, 66);
        EXPECT_TRUE(source_.context.checkpoint(0));
        source_.feed(0, 5, 40);
        EXPECT_TRUE(source_.context.fork(0, 2));
        source_.feed(2, 3, 70);
        source_.dress(0);
        for (const SequenceId id : {0U, 1U, 3U}) target_.feed(id, 70 + id, 11);
        EXPECT_TRUE(target_.context.checkpoint(1));
        EXPECT_TRUE(target_.context.fork(1, 2));
        target_.feed(2, 3, 8);
    }
    static Schema schema() { return some_lifetimes(GetParam(), 9, 4); }

    // Refused, with nothing changed. The code, for those who want to know.
    Code refused(const Bytes& bytes, SavedKind kind) {
        const Photo photo(target_);
        SpanSource source(bytes);
        const Status status = kind == SavedKind::sequence ? target_.context.restore(1, source)
                                                          : target_.context.restore_all(source);
        EXPECT_EQ(photo.difference(), "") << status.to_string();
        return status.code();
    }
    Bytes saved(SavedKind kind) const {
        return kind == SavedKind::sequence ? source_.saved(0) : source_.saved_all();
    }

    World source_;
    World target_;
};

constexpr std::array kKinds = {SavedKind::sequence, SavedKind::context};

TEST_P(EncodeTest, EveryFlippedByteIsRefused) {
    for (const SavedKind kind : kKinds) {
        const Bytes good = saved(kind);
        for (std::size_t i = 0; i < good.size(); ++i) {
            Bytes bad = good;
            bad[i] ^= std::byte{static_cast<unsigned char>(1U << i % 8)};
            ASSERT_EQ(refused(bad, kind), Code::corruption)
                << "byte " << i << " of " << good.size();
        }
    }
}

TEST_P(EncodeTest, EveryLengthButTheRightOneIsRefused) {
    for (const SavedKind kind : kKinds) {
        const Bytes good = saved(kind);
        for (std::size_t size = 0; size < good.size(); ++size) {
            const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
            ASSERT_EQ(refused(cut, kind), Code::corruption) << size;
        }
        Bytes longer = good;
        longer.push_back({});
        ASSERT_EQ(refused(longer, kind), Code::corruption);
    }
}

// Streams don't say how long they are: a cut shows when it is reached.
TEST_P(EncodeTest, EveryCutOfAStreamIsRefused) {
    const Bytes good = source_.saved(0);
    const Photo photo(target_);
    for (std::size_t size = 0; size < good.size(); ++size) {
        std::size_t at = 0;
        CallbackSource source([&](std::span<std::byte> into) {
            if (into.size() > size - at) return Status(Code::io, "the line is dead");
            std::memcpy(into.data(), good.data() + at, into.size());
            at += into.size();
            return Status();
        });
        ASSERT_EQ(target_.context.restore(1, source).code(), Code::io) << size;
    }
    EXPECT_EQ(photo.difference(), "");
}

// Values that break sloppy arithmetic.
constexpr std::array<std::uint64_t, 13> kEvilNumbers = {0,
                                                        1,
                                                        2,
                                                        0x7fffffff,
                                                        0x80000000,
                                                        0xfffffffe,
                                                        0xffffffff,
                                                        0x100000000,
                                                        0x7fffffffffffffff,
                                                        0x8000000000000000,
                                                        0xfffffffffffffffe,
                                                        0xffffffffffffffff,
                                                        0x1000000000000000};

// Every 4 and 8 bytes of the manifest in turn become each evil number, the checksums fitting. What
// is accepted must be a file that differs in content only: tokens and what rides along with them.
TEST_P(EncodeTest, EvilNumbersAreRefusedOrAreContent) {
    constexpr std::int64_t kSlack = 16 << 20;
    for (const SavedKind kind : kKinds) {
        const Bytes good = saved(kind);
        const std::size_t end = kHeaderBytes + manifest_size(good);
        std::size_t accepted = 0;
        for (std::size_t at = kHeaderBytes; at + 4 <= end; ++at) {
            for (const std::uint64_t number : kEvilNumbers) {
                for (const std::size_t width : {4U, 8U}) {
                    if (at + width > end) continue;
                    Bytes bad = good;
                    std::memcpy(bad.data() + at, &number, width);
                    if (bad == good) continue;
                    seal(bad, end - kHeaderBytes);
                    World other(schema());
                    g_peak = g_alive.load();
                    const std::int64_t before = g_alive.load();
                    const Status status = kind == SavedKind::sequence
                                              ? other.context.restore(1, bad)
                                              : other.context.restore_all(bad);
                    ASSERT_LT(g_peak.load() - before,
                              static_cast<std::int64_t>(good.size()) + kSlack);
                    if (!status) {
                        ASSERT_EQ(other.pool.stats().pages_in_use, 0U);
                        continue;
                    }
                    ++accepted;
                    // The same shape: sizes, rows, checkpoints.
                    for (SequenceId id = 0; id < 4; ++id) {
                        ASSERT_TRUE(validate(schema(), other.at(id)));
                    }
                    const Bytes again =
                        kind == SavedKind::sequence ? other.saved(1) : other.saved_all();
                    ASSERT_EQ(again.size(), bad.size()) << at;
                }
            }
        }
        EXPECT_GT(accepted, 0U) << "tokens may be others";
    }
}

// The fields that must have their one value, by place, each with every evil number.
TEST_P(EncodeTest, FieldsOfShapeHaveOneRightValue) {
    const Bytes good = source_.saved(0);
    const std::size_t end = kHeaderBytes + manifest_size(good);
    // Content lies in runs that can be found; what is before and behind them is shape.
    const Sequence& sequence = source_.at(0);
    const auto find = [&](std::span<const std::byte> run) {
        const auto found =
            std::search(good.begin() + kHeaderBytes, good.end(), run.begin(), run.end());
        return std::pair(static_cast<std::size_t>(found - good.begin()), run.size());
    };
    std::vector<bool> is_content(good.size());
    const auto mark = [&](std::pair<std::size_t, std::size_t> run) {
        ASSERT_LT(run.first, end);
        for (std::size_t i = 0; i < run.second; ++i) is_content[run.first + i] = true;
    };
    mark(find(std::as_bytes(std::span(sequence.tokens))));
    mark(find(std::as_bytes(std::span(sequence.extensions))));
    mark(find(std::as_bytes(std::span(*sequence.logits))));
    mark(find(*sequence.sampler));
    const std::string name = source_.context.identity().model_name;
    mark(find(std::as_bytes(std::span(name))));
    // Two values have the flag of a checkpoint, and its position where nothing is kept there.
    std::set<Bytes> accepted;
    for (std::size_t at = kHeaderBytes; at + 4 <= end; ++at) {
        for (const std::uint64_t number : kEvilNumbers) {
            Bytes bad = good;
            std::memcpy(bad.data() + at, &number, 4);
            bool only_shape = true;
            for (std::size_t i = at; i < at + 4; ++i) only_shape = only_shape && !is_content[i];
            if (bad == good || !only_shape) continue;
            seal(bad, end - kHeaderBytes);
            const Photo photo(target_);
            const Status status = target_.context.restore(1, bad);
            if (!status) {
                ASSERT_EQ(photo.difference(), "") << status.to_string();
                continue;
            }
            accepted.insert(bad);
            ASSERT_EQ(target_.at(1).checkpoints.size(), 1U);
            const Checkpoint& kept = *target_.at(1).checkpoints[0];
            ASSERT_TRUE(!kept.is_asked_for || !needs_checkpoints(schema())) << at;
        }
    }
    EXPECT_GE(accepted.size(), 1U);
    if (needs_checkpoints(schema())) {
        EXPECT_EQ(accepted.size(), 1U);
    }
}

TEST_P(EncodeTest, TheHeaderIsProvenToo) {
    const Bytes good = source_.saved(0);
    for (const std::size_t at : {8U, 12U, 16U, 20U, 24U, 28U}) {
        for (const std::uint64_t number : kEvilNumbers) {
            for (const std::size_t width : {4U, 8U}) {
                Bytes bad = good;
                std::memcpy(bad.data() + at, &number, width);
                if (bad == good) continue;
                const Hash128 header = xxh3_128(std::span(bad).first(48));
                std::memcpy(bad.data() + 48, header.bytes.data(), 16);
                const Code code = refused(bad, SavedKind::sequence);
                ASSERT_TRUE(code == Code::corruption || (at < 16 && code == Code::incompatible))
                    << at;
                // A stream proves nothing before it is read, and must not believe the header.
                std::size_t read = 0;
                CallbackSource source([&](std::span<std::byte> into) {
                    if (into.size() > bad.size() - read) return Status(Code::io, "dead");
                    std::memcpy(into.data(), bad.data() + read, into.size());
                    read += into.size();
                    return Status();
                });
                g_peak = g_alive.load();
                const std::int64_t before = g_alive.load();
                ASSERT_FALSE(target_.context.restore(1, source));
                ASSERT_LT(g_peak.load() - before,
                          static_cast<std::int64_t>(good.size()) + (16 << 20));
            }
        }
    }
}

TEST_P(EncodeTest, AnotherVersionIsNamedNotCalledDamage) {
    Bytes newer = source_.saved(0);
    write_at(newer, 8, std::uint32_t{7});
    seal(newer, manifest_size(newer));
    const Status status = target_.context.restore(1, newer);
    EXPECT_EQ(status.code(), Code::incompatible);
    EXPECT_NE(status.to_string().find("version 7"), std::string::npos) << status.to_string();
    EXPECT_NE(status.to_string().find("version 1"), std::string::npos) << status.to_string();
}

// Records exchanged, doubled, left out or added, with all checksums fitting.
TEST_P(EncodeTest, RecordsBelongWhereTheyAre) {
    const Bytes good = source_.saved(0);
    const std::size_t manifest_bytes = manifest_size(good);
    const Schema shape = schema();
    // The number of records stands behind the schema, whose bytes don't depend on the state.
    World empty(shape);
    const Bytes none = empty.saved(0);
    std::size_t at = kHeaderBytes;
    while (good[at] == none[at]) ++at;  // first difference: the number of records
    std::uint32_t count = 0;
    std::memcpy(&count, good.data() + at, sizeof(count));
    ASSERT_GT(count, 1U);
    const auto record = [&](std::size_t i) { return at + 4 + i * 32; };
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < count; ++j) {
            if (i == j) continue;
            Bytes bad = good;  // j is i once more
            std::memcpy(bad.data() + record(j), good.data() + record(i), 32);
            seal(bad, manifest_bytes);
            ASSERT_EQ(refused(bad, SavedKind::sequence), Code::corruption) << i << " " << j;
        }
        Bytes bad = good;  // left out
        bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(record(i)),
                  bad.begin() + static_cast<std::ptrdiff_t>(record(i)) + 32);
        write_at(bad, at, count - 1);
        seal(bad, manifest_bytes - 32);
        ASSERT_EQ(refused(bad, SavedKind::sequence), Code::corruption) << i;
        bad = good;  // added
        bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(record(count)),
                   good.begin() + static_cast<std::ptrdiff_t>(record(i)),
                   good.begin() + static_cast<std::ptrdiff_t>(record(i)) + 32);
        write_at(bad, at, count + 1);
        seal(bad, manifest_bytes + 32);
        ASSERT_EQ(refused(bad, SavedKind::sequence), Code::corruption) << i;
        for (const std::size_t offset : {0U, 4U, 8U}) {  // group, rows, place by one
            for (const std::uint32_t by : {1U, 0xffffffffU}) {
                bad = good;
                std::uint32_t value = 0;
                std::memcpy(&value, good.data() + record(i) + offset, 4);
                write_at(bad, record(i) + offset, value + by);
                seal(bad, manifest_bytes);
                ASSERT_EQ(refused(bad, SavedKind::sequence), Code::corruption)
                    << i << " " << offset;
            }
        }
    }
}

// Bytes that no field names, at the end of the manifest and behind the payloads.
TEST_P(EncodeTest, NothingMayBeLeftOver) {
    const Bytes good = source_.saved(0);
    const std::size_t manifest_bytes = manifest_size(good);
    Bytes bad = good;
    bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(kHeaderBytes + manifest_bytes), {});
    seal(bad, manifest_bytes + 1);
    EXPECT_EQ(refused(bad, SavedKind::sequence), Code::corruption);
    bad = good;
    bad.push_back({});
    seal(bad, manifest_bytes);
    EXPECT_EQ(refused(bad, SavedKind::sequence), Code::corruption);
    bad = good;
    bad.pop_back();
    seal(bad, manifest_bytes);
    EXPECT_EQ(refused(bad, SavedKind::sequence), Code::corruption);
}

// Ids of a context's sequences: ascending, none twice.
TEST_P(EncodeTest, IdsAscend) {
    World world(schema());
    for (const SequenceId id : {0U, 1U}) {
        Sequence sequence = Sequence::empty(schema());
        ASSERT_TRUE(world.context.put(id, extended(world.pool, sequence, some_tokens(1, 321))));
    }
    const Bytes good = world.saved_all();
    const std::array<std::uint32_t, 4> token = {1, 1, 0, 321};  // id, one token (u64), the token
    const auto run = std::as_bytes(std::span(token));
    const auto found = std::search(good.begin(), good.end(), run.begin(), run.end());
    ASSERT_NE(found, good.end());
    Bytes bad = good;
    write_at(bad, static_cast<std::size_t>(found - good.begin()), std::uint32_t{0});
    seal(bad, manifest_size(good));
    EXPECT_EQ(refused(bad, SavedKind::context), Code::corruption) << "id 0 twice";
    write_at(bad, static_cast<std::size_t>(found - good.begin()), std::uint32_t{3});
    seal(bad, manifest_size(good));
    ASSERT_TRUE(target_.context.restore_all(bad));
    EXPECT_EQ(target_.at(3).position(), 1U);
}

TEST_P(EncodeTest, FullPoolsLeaveTheTargetAlone) {
    const Bytes one = source_.saved(0);
    const Bytes all = source_.saved_all();
    const Snapshot snapshot = source_.context.snapshot(0).value();
    World roomy(schema());
    ASSERT_TRUE(roomy.context.restore(0, one));
    const std::uint64_t needed = roomy.pool.stats().bytes_in_use;
    for (std::uint64_t limit = 0; limit < 2 * needed;
         limit += std::max<std::uint64_t>(needed / 40, 1)) {
        World tight(schema(), 4096, 4, limit);
        auto first = Append::begin(tight.pool, tight.at(1), some_tokens(1));
        if (!first) continue;  // not even room for a neighbour
        write_rows(tight.schema(), *first);
        ASSERT_TRUE(tight.context.put(1, std::move(*first).commit()));
        const std::uint64_t left = limit - tight.pool.stats().bytes_in_use;
        const Photo photo(tight);
        const std::vector<Status> statuses = {tight.context.restore(0, one)};
        EXPECT_EQ(statuses[0].code(), left < needed ? Code::resource_exhausted : Code::ok) << limit;
        if (!statuses[0]) {
            EXPECT_EQ(photo.difference(), "");
            EXPECT_EQ(tight.context.restore(0, snapshot).code(), Code::resource_exhausted);
            EXPECT_EQ(photo.difference(), "");
            EXPECT_EQ(tight.context.restore_all(all).code(), Code::resource_exhausted);
            EXPECT_EQ(photo.difference(), "");
        }
    }
}

// Whatever lay in the pages before, nothing of it is seen after a load.
TEST_P(EncodeTest, PoisonDoesNotShowThrough) {
    const Bytes bytes = source_.saved(0);
    for (const unsigned char poison : {0x3e, 0xff}) {  // a plausible number, and NaN
        World world(schema());
        world.pool.set_poison(std::byte{poison});
        world.feed(0, 200, 5);
        ASSERT_TRUE(world.context.clear(0));
        ASSERT_TRUE(world.context.restore(0, bytes));
        EXPECT_EQ(difference(schema(), world.at(0), source_.at(0)), "");
        world.feed(0, 100, 9);
        EXPECT_EQ(first_wrong_row(schema(), world.at(0)), "");
    }
}

// Negative tokens, times that fall, and the like: content that no sequence can have.
TEST_P(EncodeTest, ImpossibleContentIsRefused) {
    Sequence& sequence = const_cast<Sequence&>(source_.at(0));
    const Sequence good = sequence;
    const auto is_refused = [&](auto change) {
        sequence = good;
        change(sequence);
        const Bytes bytes = source_.saved(0);
        sequence = good;
        return refused(bytes, SavedKind::sequence) == Code::corruption;
    };
    EXPECT_TRUE(is_refused([](Sequence& s) { s.tokens[3] = -1; }));
    EXPECT_TRUE(is_refused([](Sequence& s) { s.extensions[3].time = 100; }));
    EXPECT_TRUE(is_refused([](Sequence& s) { s.extensions[0].time = -1; }));
    EXPECT_TRUE(is_refused([](Sequence& s) { s.extensions[3].row = -1; }));
    EXPECT_TRUE(is_refused([](Sequence& s) { s.extensions[3].column = -1; }));
    EXPECT_TRUE(is_refused([](Sequence& s) { s.extensions.pop_back(); }));
    const auto with_checkpoint_at = [&](std::uint64_t position) {
        return is_refused([&](Sequence& s) {
            auto kept = std::make_shared<Checkpoint>(*s.checkpoints[0]);
            kept->position = position;
            s.checkpoints[0] = kept;
        });
    };
    EXPECT_TRUE(with_checkpoint_at(0));
    EXPECT_TRUE(with_checkpoint_at(72));
    EXPECT_TRUE(with_checkpoint_at(~0ULL));
    EXPECT_TRUE(is_refused([](Sequence& s) { s.checkpoints.push_back(s.checkpoints[0]); }));
}

INSTANTIATE_TEST_SUITE_P(Lifetimes, EncodeTest, testing::Values(1U, 2U, 8U, 9U, 15U));

}  // namespace
}  // namespace stet::state
