// The same invariant when it is SQLite's I/O that fails: a store that was told "no" by its
// catalogue is where it was.

#include <vector>

#include "support/faulty_vfs.h"
#include "unit/store/store_history.h"

namespace stet::store_test {
namespace {

using test::FaultyVfs;
using Kind = Operation::Kind;

const std::vector<Operation> kBefore = {
    {Kind::create, 0, 0, 0}, {Kind::create, 0, 1, 0}, {Kind::commit, 0, 5, 0},
    {Kind::commit, 0, 2, 1}, {Kind::commit, 1, 5, 0},
};
const std::vector<std::vector<Operation>> kWorkloads = {
    {{Kind::commit, 0, 1, 2}, {Kind::commit, 1, 2, 1}},
    {{Kind::fork, 0, 3, 2}, {Kind::rename, 1, 5, 0}, {Kind::rollback, 0, 0, 1}},
    {{Kind::create, 0, 7, 0}, {Kind::remove, 0, 0, 0}, {Kind::collect, 0, 0, 0}},
    {{Kind::pin, 0, 0, 0}, {Kind::verify, 0, 0, 0}, {Kind::pin, 0, 0, 0}, {Kind::pin, 1, 0, 0}},
    {{Kind::both, 0, 4, 2}, {Kind::carry, 0, 8, 0}},
    {{Kind::reopen, 0, 0, 0}, {Kind::commit, 0, 4, 2}},
    {{Kind::commit, 0, 4, 2}, {Kind::reopen, 0, 0, 0}, {Kind::commit, 1, 3, 2}},
};

// Closing a store while everything fails is as good as dying: then a failed COMMIT may come back,
// which is the next test's business.
bool may_stick(const std::vector<Operation>& operations) {
    return std::none_of(operations.begin() + 1, operations.end(),
                        [](const Operation& one) { return one.kind == Kind::reopen; });
}

struct Trial {
    Trial() : world(make_schema(15, 70, 4)), history(world) {
        world.options.segment_bytes = 30000;
        EXPECT_TRUE(world.open().is_ok());
        for (const Operation& operation : kBefore) EXPECT_TRUE(history.apply(operation).is_ok());
    }
    FaultyVfs vfs;  // first: it outlives the store
    World world;
    History history;
};

bool is_code_of_fault(Code code, bool as_full) {
    return code == Code::io || (as_full && code == Code::resource_exhausted);
}

TEST(CatalogueFault, EveryCallOfSqliteFails) {
    for (const std::vector<Operation>& operations : kWorkloads) {
        for (const bool as_full : {false, true}) {
            for (const bool sticky : {false, true}) {
                bool is_hit = !sticky || may_stick(operations);
                for (std::uint64_t index = 0; is_hit; ++index) {
                    const std::string when = fmt::format(
                        "workload {}, SQLite's call {} fails{}{}", &operations - kWorkloads.data(),
                        index, as_full ? " as full" : "", sticky ? ", and all after it" : "");
                    Trial trial;
                    trial.vfs.fail_call(index, as_full, sticky);
                    for (const Operation& operation : operations) {
                        if (trial.world.store == nullptr && !trial.world.open()) continue;
                        const Status done = trial.history.apply(operation);
                        if (done) continue;
                        EXPECT_TRUE(is_code_of_fault(done.code(), as_full))
                            << when << ": " << done.to_string();
                    }
                    is_hit = trial.vfs.fault_count() > 0;
                    trial.vfs.clear();
                    if (trial.world.store != nullptr) {
                        EXPECT_EQ(trial.history.difference(), "") << when << ", still open";
                    }
                    ASSERT_TRUE(trial.world.open().is_ok()) << when;
                    EXPECT_EQ(trial.history.difference(), "") << when;
                    for (std::uint64_t i = 0; i < trial.history.session_count(); ++i) {
                        EXPECT_TRUE(trial.history.apply({Kind::commit, i, 2, i}).is_ok()) << when;
                    }
                    EXPECT_EQ(trial.history.difference(), "") << when << ", after further turns";
                    if (HasFailure()) return;
                }
            }
        }
    }
}

// A COMMIT that failed can come back whole when the process dies before the next one. Then the
// records that it names must be there.
TEST(CatalogueFault, ACommitThatComesBackIsWhole) {
    bool is_hit = true;
    std::size_t came_back = 0;
    for (std::uint64_t index = 0; is_hit; ++index) {
        Trial trial;
        ASSERT_TRUE(trial.world.create("s").is_ok());
        Sequence value = Sequence::empty(trial.world.schema);
        ASSERT_TRUE(trial.world.commit("s", value, 90, 1).is_ok());
        const Sequence next = extend(trial.world.pool, value, make_tokens(75, 2));
        trial.vfs.fail_call(index, false, true);
        const auto turn = trial.world.store->commit_turn("s", trial.world.schema, next, {});
        is_hit = trial.vfs.fault_count() > 0;
        trial.world.store.reset();  // closing fails as well: as good as dying
        trial.vfs.clear();
        ASSERT_TRUE(trial.world.open().is_ok()) << index;
        const auto info = trial.world.store->find("s");
        ASSERT_TRUE(info.is_ok()) << index;
        const bool is_there = info->turns == 2;
        EXPECT_TRUE(is_there || !turn) << index;
        if (!turn && is_there) ++came_back;
        EXPECT_EQ(trial.world.wrong_session("s", is_there ? next.tokens : value.tokens), "")
            << index;
        EXPECT_EQ(trial.history.session_count() + 1, trial.world.store->list()->size());
        if (HasFailure()) return;
    }
    EXPECT_GT(came_back, 0U) << "else this proves nothing";
}

// The garbage collection removes files; before that it must have made sure that no COMMIT which
// failed can come back and name them.
TEST(CatalogueFault, GarbageCollectionLaysGhostsFirst) {
    bool is_hit = true;
    for (std::uint64_t index = 0; is_hit; ++index) {
        Trial trial;
        trial.world.options.segment_bytes = 1;  // a segment a commit
        ASSERT_TRUE(trial.world.open().is_ok());
        ASSERT_TRUE(trial.world.create("s").is_ok());
        Sequence value = Sequence::empty(trial.world.schema);
        ASSERT_TRUE(trial.world.commit("s", value, 90, 1).is_ok());
        const Sequence next = extend(trial.world.pool, value, make_tokens(75, 2));
        trial.vfs.fail_call(index, false, false);
        const auto turn = trial.world.store->commit_turn("s", trial.world.schema, next, {});
        is_hit = trial.vfs.fault_count() > 0;
        trial.vfs.clear();
        ASSERT_TRUE(trial.world.store->collect_garbage().is_ok()) << index;
        trial.vfs.fail_call(0, false, true);
        trial.world.store.reset();
        trial.vfs.clear();
        ASSERT_TRUE(trial.world.open().is_ok()) << index;
        EXPECT_EQ(trial.world.wrong_session("s", turn ? next.tokens : value.tokens), "") << index;
        if (HasFailure()) return;
    }
}

// With the one of the segment (Segments.ACommitSyncsOnce) that makes two.
TEST(CatalogueFault, ACommitSyncsTheCatalogueOnce) {
    Trial trial;
    ASSERT_TRUE(trial.world.create("s").is_ok());
    Sequence value = Sequence::empty(trial.world.schema);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const std::uint64_t before = trial.vfs.sync_count();
        ASSERT_TRUE(trial.world.commit("s", value, 64, seed).is_ok());
        EXPECT_EQ(trial.vfs.sync_count(), before + 1);
    }
}

TEST(CatalogueFault, ABatchSyncsAsOneCommit) {
    Trial trial;
    for (std::uint64_t i = 0; i < 5; ++i) {
        const std::uint64_t before = trial.vfs.sync_count();
        ASSERT_TRUE(trial.history.apply({Kind::both, i, i, i}).is_ok());
        EXPECT_EQ(trial.vfs.sync_count(), before + 1);
    }
    EXPECT_EQ(trial.history.difference(), "");
}

}  // namespace
}  // namespace stet::store_test
