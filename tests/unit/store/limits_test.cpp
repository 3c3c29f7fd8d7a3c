// Limits, eviction, pins, expiry and scrubbing: what is taken is never missed without a word, and
// what comes back is right.

#include <set>

#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

#define ASSERT_OK(expression)                                \
    do {                                                     \
        const Status status_ = (expression);                 \
        ASSERT_TRUE(status_.is_ok()) << status_.to_string(); \
    } while (false)

TEST(StoreLimits, TheLongestUnusedAreEvictedAndComputedAgain) {
    World world;
    world.options.disk_limit_bytes = 4U << 20;
    ASSERT_OK(world.open());
    std::vector<Sequence> values;
    for (std::uint64_t i = 0; i < 40; ++i) {
        const std::string name = fmt::format("s{}", i);
        ASSERT_OK(world.create(name));
        if (i == 0) ASSERT_OK(world.store->pin(name, true));
        values.push_back(Sequence::empty(world.schema));
        ASSERT_OK(world.commit(name, values.back(), 900, 100 + i).status());
        ASSERT_OK(world.commit(name, values.back(), 100, 200 + i).status());
        EXPECT_LE(directory_bytes(world.directory()), world.options.disk_limit_bytes) << i;
    }
    std::size_t evicted = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string name = fmt::format("s{}", i);
        const auto loaded = world.store->load(name, world.fingerprint, world.pool);
        if (loaded) {
            EXPECT_EQ(wrong_content(world.schema, loaded->sequence), "") << name;
            EXPECT_EQ(loaded->sequence.tokens, values[i].tokens);
            continue;
        }
        EXPECT_EQ(loaded.status().code(), Code::unavailable) << loaded.status().to_string();
        EXPECT_EQ(*world.store->tokens(name), values[i].tokens);
        EXPECT_NE(i, 0U) << "pinned";
        EXPECT_NE(i + 1, values.size()) << "the latest";
        ++evicted;
    }
    EXPECT_GT(evicted, 0U) << "else this proves nothing";
    EXPECT_LT(evicted + 2, values.size());
    // Computed again, it is whole after its next turn, in a later life of the store as well.
    ASSERT_OK(world.open());
    ASSERT_EQ(world.store->load("s1", world.fingerprint, world.pool).status().code(),
              Code::unavailable);
    ASSERT_OK(world.commit("s1", values[1], 20, 7).status());
    EXPECT_EQ(world.wrong_session("s1", values[1].tokens), "");
    ASSERT_OK(world.open());
    EXPECT_EQ(world.wrong_session("s1", values[1].tokens), "");
    EXPECT_EQ(world.wrong_session("s0", values[0].tokens), "");
}

TEST(StoreLimits, WhatCanNeverFitTakesNothingFromOthers) {
    World world;
    world.options.disk_limit_bytes = 1U << 20;
    ASSERT_OK(world.open());
    for (const char* name : {"small", "large"}) ASSERT_OK(world.create(name));
    Sequence small = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("small", small, 100, 1).status());
    Sequence large = Sequence::empty(world.schema);
    const Status refused = world.commit("large", large, 20000, 2).status();
    EXPECT_EQ(refused.code(), Code::resource_exhausted) << refused.to_string();
    EXPECT_EQ(world.wrong_session("small", small.tokens), "");
    EXPECT_LE(directory_bytes(world.directory()), world.options.disk_limit_bytes);
}

TEST(StoreLimits, PinnedSessionsStayAndTheCommitIsRefused) {
    World world;
    world.options.disk_limit_bytes = 1U << 20;
    ASSERT_OK(world.open());
    std::vector<Sequence> kept;
    Status last;
    for (std::uint64_t i = 0; last && i < 100; ++i) {
        const std::string name = fmt::format("s{}", i);
        ASSERT_OK(world.create(name));
        ASSERT_OK(world.store->pin(name, true));
        Sequence value = Sequence::empty(world.schema);
        last = world.commit(name, value, 500, 50 + i).status();
        if (last) kept.push_back(value);
    }
    EXPECT_EQ(last.code(), Code::resource_exhausted);
    ASSERT_GT(kept.size(), 0U);
    for (std::size_t i = 0; i < kept.size(); ++i) {
        EXPECT_EQ(world.wrong_session(fmt::format("s{}", i), kept[i].tokens), "");
    }
}

TEST(StoreLimits, ExpiredSessionsGoPinnedOnesStay) {
    World world;
    ASSERT_OK(world.open());
    for (const char* name : {"a", "b"}) {
        ASSERT_OK(world.create(name));
        Sequence value = Sequence::empty(world.schema);
        ASSERT_OK(world.commit(name, value, 20, 1).status());
    }
    ASSERT_OK(world.store->pin("b", true));
    world.options.ttl = std::chrono::hours(1);
    ASSERT_OK(world.open());
    EXPECT_EQ(world.store->collect_garbage()->sessions, 0U);
    world.options.ttl = std::chrono::nanoseconds(1);
    ASSERT_OK(world.open());
    EXPECT_EQ(world.store->collect_garbage()->sessions, 1U);
    ASSERT_EQ(world.store->list()->size(), 1U);
    EXPECT_TRUE(world.store->list()->front().is_pinned);
    // A pin goes with its session: the next one with its id has none.
    ASSERT_OK(world.store->remove("b"));
    ASSERT_OK(world.create("c"));
    EXPECT_FALSE(world.store->find("c")->is_pinned);
}

TEST(StoreVerify, NamesTheSessionsOfADamagedRecordAndTheNextTurnMendsThem) {
    World world(make_schema(1));
    ASSERT_OK(world.open());
    for (const char* name : {"a", "b"}) ASSERT_OK(world.create(name));
    Sequence a = Sequence::empty(world.schema);
    Sequence b = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("a", a, 200, 1).status());
    ASSERT_OK(world.commit("b", b, 200, 2).status());
    const auto file = segment_files(world.directory()).front();
    auto bytes = read_bytes(file);
    bytes[400] ^= std::byte{1};  // of a's first record
    write_bytes(file, bytes);
    std::set<std::string> sessions;
    std::uint64_t records = 0;
    std::size_t stretches = 0;
    std::size_t damages = 0;
    for (std::int64_t next = 0; stretches == 0 || next != 0; ++stretches) {
        const auto verified = world.store->verify(next, 1);
        ASSERT_OK(verified.status());
        ASSERT_EQ(verified->records, 1U);
        next = verified->next;
        records += verified->records;
        damages += verified->damages.size();
        sessions.insert(verified->sessions.begin(), verified->sessions.end());
    }
    EXPECT_EQ(records, world.store->usage()->records);
    EXPECT_EQ(stretches, records);
    EXPECT_EQ(damages, 1U);
    EXPECT_EQ(sessions, (std::set<std::string>{"a"}));
    EXPECT_EQ(world.wrong_session("b", b.tokens), "");
    ASSERT_OK(world.commit("a", a, 10, 3).status());
    EXPECT_EQ(world.wrong_session("a", a.tokens), "");
    EXPECT_TRUE(world.store->verify(0, 1U << 30)->damages.empty());
}

}  // namespace
}  // namespace stet::store_test
