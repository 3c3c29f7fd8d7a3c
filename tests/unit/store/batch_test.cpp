// commit_turns: several turns in one go.
#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

using store::Commit;
using store::NewSession;

#define ASSERT_OK(expr)                                            \
    do {                                                           \
        const ::stet::Status ok_status_ = (expr);                  \
        ASSERT_TRUE(ok_status_.is_ok()) << ok_status_.to_string(); \
    } while (false)

struct Turns {
    World& world;
    std::vector<Sequence> values;
    std::vector<Commit> commits;

    explicit Turns(World& w) : world(w) { values.reserve(64); }
    void add(std::string session, const Sequence& value, std::size_t count, std::uint64_t seed,
             bool is_new = false) {
        values.push_back(extend(world.pool, value, make_tokens(count, seed)));
        Commit commit{std::move(session), &values.back(), World::new_turn(seed), std::nullopt};
        if (is_new) commit.created = NewSession{world.fingerprint, "tiny", "/models/tiny.gguf"};
        commits.push_back(std::move(commit));
    }
    std::vector<Result<store::Turn>> commit() {
        return world.store->commit_turns(world.schema, commits);
    }
};

TEST(StoreBatch, EverySessionHasItsTurn) {
    for (unsigned lifetimes = 0; lifetimes < 16; ++lifetimes) {
        World world(make_schema(lifetimes));
        ASSERT_OK(world.open());
        ASSERT_OK(world.create("old"));
        Sequence old = Sequence::empty(world.schema);
        ASSERT_OK(world.commit("old", old, 90, 1).status());
        Turns turns(world);
        turns.add("old", old, 70, 2);
        turns.add("new", Sequence::empty(world.schema), 130, 3, true);
        turns.add("new", turns.values.back(), 5, 4);
        turns.add("twin", Sequence::empty(world.schema), 130, 3, true);
        const auto answers = turns.commit();
        ASSERT_EQ(answers.size(), 4U);
        for (const auto& answer : answers) ASSERT_OK(answer.status());
        EXPECT_EQ(answers[0]->number, 2U);
        EXPECT_EQ(answers[1]->number, 1U);
        EXPECT_EQ(answers[2]->number, 2U);
        EXPECT_EQ(answers[2]->parent, answers[1]->id);
        EXPECT_EQ(answers[2]->token_begin, 130U);
        ASSERT_OK(world.open());
        EXPECT_EQ(world.wrong_session("old", turns.values[0].tokens), "");
        EXPECT_EQ(world.wrong_session("new", turns.values[2].tokens), "");
        EXPECT_EQ(world.wrong_session("new", turns.values[1].tokens, answers[1]->id), "");
        EXPECT_EQ(world.wrong_session("twin", turns.values[3].tokens), "");
        const auto again = world.store->turns("new");
        ASSERT_OK(again.status());
        EXPECT_EQ(again->at(1).content, World::new_turn(4).content);
    }
}

TEST(StoreBatch, WhatTurnsShareIsWrittenOnce) {
    World one(make_schema(1));
    ASSERT_OK(one.open());
    Turns single(one);
    single.add("a", Sequence::empty(one.schema), 640, 1, true);
    ASSERT_OK(single.commit().front().status());
    World world(make_schema(1));
    ASSERT_OK(world.open());
    Turns turns(world);
    for (const std::string name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
        turns.add(name, Sequence::empty(world.schema), 640, 1, true);
    }
    for (const auto& answer : turns.commit()) ASSERT_OK(answer.status());
    EXPECT_EQ(segment_bytes(world.directory()), segment_bytes(one.directory()));
    for (const std::string name : {"a", "h"}) {
        EXPECT_EQ(world.wrong_session(name, turns.values[0].tokens), "");
    }
}

// One that is wrong in itself does not stop the others; turns of one session stand or fall
// together.
TEST(StoreBatch, FailuresAreOfTheirSessionAlone) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("good"));
    ASSERT_OK(world.create("taken"));
    const Sequence empty = Sequence::empty(world.schema);
    Turns turns(world);
    turns.add("good", empty, 10, 1);
    turns.add("missing", empty, 10, 2);
    turns.add("taken", empty, 10, 3, true);
    turns.add("half", empty, 10, 4, true);
    turns.add("half", empty, 20, 5);  // does not go on with its first turn
    turns.add("good", turns.values[0], 10, 6);
    const auto answers = turns.commit();
    ASSERT_EQ(answers.size(), 6U);
    ASSERT_OK(answers[0].status());
    EXPECT_EQ(answers[1].status().code(), Code::not_found);
    EXPECT_EQ(answers[2].status().code(), Code::already_exists);
    EXPECT_EQ(answers[3].status().code(), Code::conflict);
    EXPECT_EQ(answers[4].status().code(), Code::conflict);
    ASSERT_OK(answers[5].status());
    EXPECT_EQ(world.store->find("half").status().code(), Code::not_found);
    EXPECT_EQ(world.store->find("taken")->turns, 0U);
    EXPECT_EQ(world.wrong_session("good", turns.values[5].tokens), "");
    // What is refused leaves nothing behind that a later commit stumbles over.
    Turns later(world);
    later.add("half", empty, 20, 5, true);
    ASSERT_OK(later.commit().front().status());
    EXPECT_EQ(world.wrong_session("half", later.values[0].tokens), "");
}

TEST(StoreBatch, WhereNotAllFitSomeDo) {
    World world(make_schema(1));
    world.options.disk_limit_bytes = 4 << 20;
    ASSERT_OK(world.open());
    Turns turns(world);
    turns.add("small", Sequence::empty(world.schema), 100, 1, true);
    turns.add("large", Sequence::empty(world.schema), 120'000, 2, true);
    const auto answers = turns.commit();
    ASSERT_OK(answers[0].status());
    EXPECT_EQ(answers[1].status().code(), Code::resource_exhausted);
    EXPECT_EQ(world.store->find("large").status().code(), Code::not_found);
    EXPECT_EQ(world.wrong_session("small", turns.values[0].tokens), "");
}

TEST(StoreBatch, NothingIsNothing) {
    World world;
    ASSERT_OK(world.open());
    EXPECT_TRUE(world.store->commit_turns(world.schema, {}).empty());
}

TEST(StoreUse, ALoadCountsAndIsRemembered) {
    World world;
    ASSERT_OK(world.open());
    Sequence value = Sequence::empty(world.schema);
    for (const std::string name : {"a", "b", "c"}) {
        ASSERT_OK(world.create(name));
        value = Sequence::empty(world.schema);
        ASSERT_OK(world.commit(name, value, 10, 1).status());
    }
    const auto first = [&] { return world.store->list()->front().name; };
    EXPECT_EQ(first(), "c");
    EXPECT_EQ(world.wrong_session("a", value.tokens), "");
    EXPECT_EQ(first(), "a");
    ASSERT_OK(world.open());  // closing it writes that down
    EXPECT_EQ(first(), "a");
    EXPECT_EQ(world.wrong_session("b", value.tokens), "");
    value = Sequence::empty(world.schema);
    ASSERT_OK(world.create("d"));
    ASSERT_OK(world.commit("d", value, 10, 2).status());  // so does a commit
    const auto reader = [&] {
        store::StoreOptions options = world.options;
        options.read_only = true;
        return std::move(*store::Store::open(Env::posix(), world.directory(), options));
    }();
    EXPECT_EQ(reader->list()->at(1).name, "b");
}

TEST(StoreUsage, OwnAndSharedAreToldApart) {
    World world(make_schema(1));
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("a"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("a", value, 640, 1).status());
    const auto usage = [&](const std::string& name) {
        return (*world.store->session_usage())[name];
    };
    const std::uint64_t whole = usage("a").own_bytes;
    EXPECT_GE(whole, 640 * world.schema.bytes_per_token());
    EXPECT_EQ(usage("a").shared_bytes, 0U);
    EXPECT_EQ(*world.store->shared_turns("a"), 0U);
    ASSERT_OK(world.store->fork("a", "b").status());
    EXPECT_EQ(usage("a").own_bytes, 0U);
    EXPECT_EQ(usage("a").shared_bytes, whole);
    Sequence other = value;
    ASSERT_OK(world.commit("b", other, 64, 2).status());
    EXPECT_EQ(usage("b").shared_bytes, whole);
    EXPECT_GT(usage("b").own_bytes, 0U);
    EXPECT_LT(usage("b").own_bytes, whole / 2);
    EXPECT_EQ(*world.store->shared_turns("b"), 1U);
    EXPECT_EQ(*world.store->shared_turns("a"), 1U);
    // The same tokens from another beginning of a session are the same records.
    ASSERT_OK(world.create("c"));
    Sequence again = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("c", again, 640, 1).status());
    EXPECT_EQ(usage("c").own_bytes, 0U);
    EXPECT_EQ(*world.store->shared_turns("c"), 0U);
    ASSERT_OK(world.store->remove("a"));
    ASSERT_OK(world.store->remove("c"));
    EXPECT_EQ(usage("b").shared_bytes, 0U);
}

TEST(StoreGarbage, ASparseSegmentThatIsBeingWrittenGoesToo) {
    World world(make_schema(1));
    ASSERT_OK(world.open());
    Sequence kept = Sequence::empty(world.schema);
    ASSERT_OK(world.create("kept"));
    ASSERT_OK(world.commit("kept", kept, 64, 1).status());
    ASSERT_OK(world.create("gone"));
    Sequence gone = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("gone", gone, 6400, 2).status());
    ASSERT_OK(world.store->remove("gone"));
    ASSERT_OK(world.store->collect_garbage().status());
    EXPECT_LT(segment_bytes(world.directory()), 2 * 64 * world.schema.bytes_per_token() + 4096);
    EXPECT_EQ(world.wrong_session("kept", kept.tokens), "");
    ASSERT_OK(world.commit("kept", kept, 64, 3).status());
    EXPECT_EQ(world.wrong_session("kept", kept.tokens), "");
}

}  // namespace
}  // namespace stet::store_test
