#include <rapidcheck.h>

#include "unit/store/store_history.h"

namespace stet::store_test {
namespace {

Operation operation_of(std::uint64_t choice, std::uint64_t seed) {
    using Kind = Operation::Kind;
    // Commits are what a store lives on.
    constexpr std::array<Kind, 18> kKinds = {
        Kind::commit, Kind::commit,  Kind::commit, Kind::commit,   Kind::create, Kind::create,
        Kind::fork,   Kind::fork,    Kind::rename, Kind::rollback, Kind::remove, Kind::remove,
        Kind::reopen, Kind::collect, Kind::pin,    Kind::verify,   Kind::both,   Kind::carry};
    return {kKinds[choice % kKinds.size()], mix(seed, 1), mix(seed, 2), mix(seed, 3)};
}

// Any history of operations leaves the store equal to its model, open and reopened.
TEST(StoreHistory, EqualsAPlainModel) {
    const bool holds = rc::check([] {
        const auto lifetimes = *rc::gen::inRange<unsigned>(0, 16);
        const auto window = *rc::gen::element<std::uint32_t>(1, 3, 64, 130);
        const auto choices = *rc::gen::container<std::vector<std::uint64_t>>(
            rc::gen::inRange<std::uint64_t>(0, 13000));
        World world(make_schema(lifetimes, window, *rc::gen::element<std::uint32_t>(1, 4, 100)));
        // Small segments, so that there are many and the garbage collection has work.
        world.options.segment_bytes = *rc::gen::element<std::uint64_t>(1, 20000, 1U << 20);
        if (*rc::gen::arbitrary<bool>()) world.options.key = key_of('a');
        RC_ASSERT(world.open().is_ok());
        History history(world);
        for (const std::uint64_t choice : choices) {
            const Status done = history.apply(operation_of(choice, choice));
            if (!done) RC_FAIL(done.to_string());
        }
        RC_ASSERT(history.difference() == std::string());
        RC_ASSERT(world.open().is_ok());
        RC_ASSERT(history.difference() == std::string());
        RC_ASSERT(world.store->collect_garbage().is_ok());
        RC_ASSERT(history.difference() == std::string());
    });
    EXPECT_TRUE(holds);
}

// One long life, so that deep trees and many segments occur.
TEST(StoreHistory, ALongLife) {
    World world(make_schema(15, 70, 4));
    world.options.segment_bytes = 100000;
    ASSERT_TRUE(world.open().is_ok());
    History history(world);
    for (std::uint64_t i = 0; i < 400; ++i) {
        const Status done = history.apply(operation_of(mix(77, i), i));
        ASSERT_TRUE(done.is_ok()) << "operation " << i << ": " << done.to_string();
        if (i % 40 == 39) {
            ASSERT_EQ(history.difference(), "") << "after operation " << i;
        }
    }
    EXPECT_EQ(history.difference(), "");
}

// The same under a limit that most of it does not fit into: turns stay, states come and go, and
// the directory never takes more.
TEST(StoreHistory, ALongLifeUnderALimit) {
    World world(make_schema(15, 70, 4));
    world.options.disk_limit_bytes = 1U << 20;
    ASSERT_TRUE(world.open().is_ok());
    History history(world);
    for (std::uint64_t i = 0; i < 200; ++i) {
        Operation operation = operation_of(mix(78, i), i);
        if (operation.kind == Operation::Kind::pin) continue;
        if (i % 5 == 0) operation.kind = Operation::Kind::commit_large;
        const Status done = history.apply(operation);
        // Turns can't be evicted; when they fill the store it says so.
        if (done.code() == Code::resource_exhausted) continue;
        ASSERT_TRUE(done.is_ok()) << "operation " << i << ": " << done.to_string();
        ASSERT_LE(directory_bytes(world.directory()), world.options.disk_limit_bytes);
        if (i % 20 == 19) {
            ASSERT_EQ(history.difference(), "") << "after operation " << i;
        }
    }
}

// After everything is removed, nothing but an empty catalogue is left.
TEST(StoreHistory, GarbageIsGoneInTheEnd) {
    World world;
    world.options.segment_bytes = 50000;
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.create("a").is_ok());
    ASSERT_TRUE(world.create("b").is_ok());
    Sequence a = Sequence::empty(world.schema);
    Sequence b = Sequence::empty(world.schema);
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        ASSERT_TRUE(world.commit("a", a, 150, seed).is_ok());
        ASSERT_TRUE(world.commit("b", b, 10, 50 + seed).is_ok());
    }
    const std::uint64_t full = segment_bytes(world.directory());
    ASSERT_TRUE(world.store->remove("a").is_ok());
    const auto reclaimed = world.store->collect_garbage();
    ASSERT_TRUE(reclaimed.is_ok()) << reclaimed.status().to_string();
    EXPECT_GT(reclaimed->records, 0U);
    EXPECT_GT(reclaimed->segments, 0U);
    // New segments for what was copied have headers of their own.
    EXPECT_NEAR(static_cast<double>(reclaimed->bytes),
                static_cast<double>(full - segment_bytes(world.directory())), 256);
    EXPECT_LT(segment_bytes(world.directory()), full / 2);
    EXPECT_EQ(world.wrong_session("b", b.tokens), "");
    ASSERT_TRUE(world.store->remove("b").is_ok());
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.store->collect_garbage().is_ok());
    EXPECT_LE(segment_files(world.directory()).size(), 1U) << "the one being written";
}

}  // namespace
}  // namespace stet::store_test
