// Invariant I under failing calls and power failures: every acknowledged turn restores bit by bit,
// every other is absent or whole, what was alive stays as it was, and the store goes on.

#include <vector>

#include "support/fault_env.h"
#include "unit/store/store_history.h"

namespace stet::store_test {
namespace {

using test::FaultEnv;
using test::kAnyOp;
using test::kSync;
using test::kWrite;
using Kind = Operation::Kind;

// Before the faults: turns to lose, shared prefixes, garbage.
const std::vector<Operation> kBefore = {
    {Kind::create, 0, 0, 0}, {Kind::create, 0, 1, 0},   {Kind::commit, 0, 5, 0},
    {Kind::commit, 0, 2, 1}, {Kind::commit, 1, 5, 0},   {Kind::fork, 0, 2, 1},
    {Kind::commit, 2, 6, 2}, {Kind::rollback, 2, 0, 1},
};

struct Workload {
    const char* name;
    std::vector<Operation> operations;
    bool is_sealed = false;
};
const std::vector<Workload> kWorkloads = {
    {"commits", {{Kind::commit, 0, 1, 2}, {Kind::commit, 1, 2, 1}, {Kind::commit, 0, 6, 0}}},
    {"collect", {{Kind::remove, 0, 0, 0}, {Kind::collect, 0, 0, 0}, {Kind::commit, 0, 6, 2}}},
    {"reopen",
     {{Kind::reopen, 0, 0, 0},
      {Kind::commit, 0, 4, 2},
      {Kind::reopen, 0, 0, 0},
      {Kind::commit, 1, 3, 2}}},
    {"together", {{Kind::both, 0, 4, 2}, {Kind::carry, 0, 8, 0}, {Kind::both, 1, 3, 1}}},
    {"verify", {{Kind::verify, 0, 0, 0}, {Kind::commit, 0, 4, 1}}},
    {"sealed", {{Kind::commit, 0, 3, 2}, {Kind::collect, 0, 0, 0}, {Kind::reopen, 0, 0, 0}}, true},
};
// Most of the limit is taken: the next large commit has to evict.
constexpr std::uint64_t kFullLimit = 2U << 20;
std::vector<Operation> filling() {
    std::vector<Operation> operations;
    for (std::uint64_t i = 0; i < 6; ++i) {
        operations.push_back({Kind::create, 0, 3 + i, 0});
        for (std::uint64_t j = 0; j < 2; ++j) {
            operations.push_back({Kind::commit_large, 3 + i, 0, 81 + 2 * i + j});
        }
    }
    return operations;
}
const std::vector<Operation> kFilling = filling();
const Workload kEviction = {"evict",
                            {{Kind::commit_large, 1, 0, 91},
                             {Kind::pin, 1, 0, 0},
                             {Kind::commit_large, 2, 0, 92},
                             {Kind::collect, 0, 0, 0}}};

// A run of one workload in a world of its own.
class Trial {
  public:
    explicit Trial(bool is_sealed = false) : Trial({}, 0, is_sealed) {}
    // With more operations before the faults, under a limit.
    Trial(const std::vector<Operation>& more, std::uint64_t limit_bytes, bool is_sealed = false)
        : world_(make_schema(15, 70, 4), env_), history_(world_) {
        world_.options.segment_bytes = 30000;
        world_.options.disk_limit_bytes = limit_bytes;
        if (is_sealed) world_.options.key = key_of('a');
        EXPECT_TRUE(world_.open().is_ok());
        for (const auto& operations : {kBefore, more}) {
            for (const Operation& operation : operations) {
                const Status done = history_.apply(operation);
                EXPECT_TRUE(done.is_ok()) << done.to_string();
            }
        }
    }
    std::uint64_t segments() const { return segment_bytes(world_.directory()); }
    FaultEnv& env() { return env_; }
    History& history() { return history_; }

    // Every failure is one of `code`; how many there were.
    std::size_t perform(const Workload& workload, Code code) {
        std::size_t failures = 0;
        for (const Operation& operation : workload.operations) {
            if (world_.store == nullptr && !open_again()) {
                ++failures;
                continue;
            }
            const Status done = history_.apply(operation);
            if (done) continue;
            ++failures;
            EXPECT_EQ(done.code(), code) << done.to_string();
        }
        return failures;
    }
    bool open_again() { return world_.open().is_ok(); }
    void close() { world_.store.reset(); }
    bool is_open() const { return world_.store != nullptr; }

    // The store goes on: each session takes a further turn.
    void expect_whole(const std::string& when) {
        EXPECT_EQ(history_.difference(), "") << when;
        for (std::uint64_t i = 0; i < history_.session_count(); ++i) {
            const Status done = history_.apply({Kind::commit, i, 2, i});
            EXPECT_TRUE(done.is_ok()) << when << ": " << done.to_string();
        }
        EXPECT_EQ(history_.difference(), "") << when << ", after further turns";
    }

  private:
    FaultEnv env_;
    World world_;
    History history_;
};

class StoreFault : public testing::TestWithParam<Workload> {};
INSTANTIATE_TEST_SUITE_P(Workloads, StoreFault, testing::ValuesIn(kWorkloads),
                         [](const auto& one) { return one.param.name; });

// The index-th call of any kind fails, once or from then on.
TEST_P(StoreFault, EveryCallFailsWithEveryCode) {
    for (const Code code : {Code::io, Code::resource_exhausted, Code::unavailable}) {
        for (const bool sticky : {false, true}) {
            std::uint64_t index = 0;
            for (bool is_hit = true; is_hit; ++index) {
                const std::string when =
                    fmt::format("call {} fails with {}{}", index, code_name(code),
                                sticky ? ", and all after it" : "");
                Trial run(GetParam().is_sealed);
                run.env().fail_call({kAnyOp, index, code, sticky});
                run.perform(GetParam(), code);
                is_hit = run.env().fault_count() > 0;
                run.env().clear_faults();
                if (run.is_open()) {
                    EXPECT_EQ(run.history().difference(), "") << when << ", still open";
                }
                ASSERT_TRUE(run.open_again()) << when;
                run.expect_whole(when);
                if (HasFailure()) return;
            }
            EXPECT_GT(index, 3U);
        }
    }
}

// The power goes at the index-th change; what was not synced is lost, in part or whole.
TEST_P(StoreFault, PowerFailsAtEveryChange) {
    bool is_hit = true;
    for (std::uint64_t index = 0; is_hit; ++index) {
        for (std::uint64_t seed = 0; seed < 8; ++seed) {
            const std::string when = fmt::format("power cut at change {}, seed {}", index, seed);
            Trial run(GetParam().is_sealed);
            run.env().cut_power_at(index);
            run.perform(GetParam(), Code::io);
            is_hit = run.env().has_cut_power();
            run.close();
            if (seed == 0) {
                run.env().crash();
            } else {
                run.env().crash(seed);
            }
            ASSERT_TRUE(run.open_again()) << when;
            run.expect_whole(when);
            if (HasFailure()) return;
        }
    }
}

// Making room is many transactions; any of them may fail.
TEST(StoreFaults, EvictionThatFails) {
    std::size_t failures = 0;
    for (const Code code : {Code::io, Code::resource_exhausted}) {
        for (const bool sticky : {false, true}) {
            bool is_hit = true;
            for (std::uint64_t index = 0; is_hit; index += 1 + index / 2) {
                const std::string when = fmt::format("call {} fails with {}{}", index,
                                                     code_name(code), sticky ? ", for good" : "");
                Trial run(kFilling, kFullLimit);
                run.env().fail_call({kAnyOp, index, code, sticky});
                failures += run.perform(kEviction, code);
                is_hit = run.env().fault_count() > 0;
                run.env().clear_faults();
                EXPECT_EQ(run.history().difference(), "") << when << ", still open";
                ASSERT_TRUE(run.open_again()) << when;
                run.expect_whole(when);
                if (HasFailure()) return;
            }
        }
    }
    EXPECT_GT(failures, 0U);
    Trial undisturbed(kFilling, kFullLimit);
    EXPECT_EQ(undisturbed.perform(kEviction, Code::io), 0U);
    EXPECT_GT(undisturbed.history().evicted_count(), 0U) << "else this proves nothing";
}

TEST(StoreFaults, PowerFailsWhileEvicting) {
    bool is_hit = true;
    for (std::uint64_t index = 0; is_hit; ++index) {
        Trial run(kFilling, kFullLimit);
        run.env().cut_power_at(index);
        run.perform(kEviction, Code::io);
        is_hit = run.env().has_cut_power();
        run.close();
        run.env().crash(index);
        const std::string when = fmt::format("power cut at change {}", index);
        ASSERT_TRUE(run.open_again()) << when;
        run.expect_whole(when);
        if (HasFailure()) return;
    }
}

// A sync that failed is no sync, whatever the next one says: nothing of it is relied upon.
TEST(StoreFaults, AFailedSyncIsNeverRetriedAsSuccess) {
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
        Trial run;
        run.env().fail_call({kSync, 0, Code::io, false});
        const Workload two{"two", {{Kind::commit, 0, 5, 2}, {Kind::commit, 0, 5, 2}}};
        EXPECT_EQ(run.perform(two, Code::io), 1U);
        EXPECT_EQ(run.env().fault_count(), 1U);
        run.close();
        run.env().crash(seed);
        ASSERT_TRUE(run.open_again());
        run.expect_whole(fmt::format("seed {}", seed));
    }
}

// A full disk takes no acknowledged turn and gets its space back: the store must not fill it
// further with what failed.
TEST(StoreFaults, AFullDiskIsSurvivedWithoutLitter) {
    FaultEnv env;
    World world(make_schema(15), env);
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.create("s").is_ok());
    Sequence value = Sequence::empty(world.schema);
    ASSERT_TRUE(world.commit("s", value, 100, 1).is_ok());
    const std::uint64_t before = segment_bytes(world.directory());
    env.fail_call({kWrite, 0, Code::resource_exhausted, true});
    for (std::uint64_t i = 0; i < 20; ++i) {
        const auto refused = world.commit("s", value, 500, 2 + i);
        EXPECT_EQ(refused.status().code(), Code::resource_exhausted);
        EXPECT_NE(refused.status().to_string().find("injected fault"), std::string::npos);
    }
    EXPECT_EQ(segment_bytes(world.directory()), before);
    env.clear_faults();
    EXPECT_TRUE(world.commit("s", value, 500, 40).is_ok());
    EXPECT_EQ(world.wrong_session("s", value.tokens), "");
    EXPECT_EQ(segment_files(world.directory()).size(), 1U);
}

}  // namespace
}  // namespace stet::store_test
