// Power loss under everything that the store writes, the catalogue's files included: sequences of
// operations, the power cut at a change, and of what was not synced any part survives, in torn
// sectors of 512 bytes. Whatever was acknowledged is there bit by bit; the operation under way is
// absent or whole.
//
// By default a sample of the cuts of every sequence; STET_TEST_POWER=all takes every one.

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "support/env_vfs.h"
#include "support/fault_env.h"
#include "unit/store/store_history.h"

namespace stet::store_test {
namespace {

using test::EnvVfs;
using test::FaultEnv;
using Kind = Operation::Kind;

const std::vector<Operation> kBefore = {
    {Kind::create, 0, 0, 0}, {Kind::create, 0, 1, 0}, {Kind::commit, 0, 5, 0},
    {Kind::commit, 0, 2, 1}, {Kind::commit, 1, 5, 0}, {Kind::fork, 0, 2, 1},
};
const std::vector<std::pair<const char*, Operation>> kAlphabet = {
    {"commit", {Kind::commit, 0, 4, 2}},   {"commit another", {Kind::commit, 1, 6, 1}},
    {"fork", {Kind::fork, 0, 7, 1}},       {"remove", {Kind::remove, 0, 0, 0}},
    {"collect", {Kind::collect, 0, 0, 0}}, {"roll back", {Kind::rollback, 0, 0, 1}},
    {"pin", {Kind::pin, 1, 0, 0}},         {"together", {Kind::both, 0, 5, 2}},
    {"import", {Kind::carry, 1, 8, 0}},
};

bool wants_all() {
    const char* wanted = std::getenv("STET_TEST_POWER");
    return wanted != nullptr && std::string_view(wanted) == "all";
}

struct Trial {
    Trial() : vfs(env), world(make_schema(15, 70, 4), env), history(world) {
        world.options.segment_bytes = 30000;
        EXPECT_TRUE(world.open().is_ok());
        for (const Operation& operation : kBefore) {
            const Status done = history.apply(operation);
            EXPECT_TRUE(done.is_ok()) << done.to_string();
        }
    }
    // Whether the power went.
    bool perform(const std::vector<Operation>& operations, std::uint64_t cut_at) {
        env.cut_power_at(cut_at);
        for (const Operation& operation : operations) {
            const Status done = history.apply(operation);
            if (done) continue;
            pending = operation;
            break;
        }
        const bool has_gone = env.has_cut_power();
        world.store.reset();
        env.crash(cut_at * 31 + operations.size());
        return has_gone;
    }
    void expect_whole(const std::string& when) {
        const Status opened = world.open();
        ASSERT_TRUE(opened.is_ok()) << when << ": " << opened.to_string();
        std::string difference = history.difference();
        // An operation that was not acknowledged may have happened, then it happened whole.
        if (!difference.empty() && pending) {
            const Status adopted = history.adopt(*pending);
            if (adopted) difference = history.difference();
        }
        ASSERT_EQ(difference, "") << when;
        for (std::uint64_t i = 0; i < history.session_count(); ++i) {
            const Status done = history.apply({Kind::commit, i, 2, i});
            EXPECT_TRUE(done.is_ok()) << when << ": " << done.to_string();
        }
        EXPECT_EQ(history.difference(), "") << when << ", after further turns";
        EXPECT_TRUE(world.store->collect_garbage().is_ok()) << when;
        EXPECT_EQ(history.difference(), "") << when << ", after a collection";
        world.store.reset();
    }

    FaultEnv env;
    EnvVfs vfs;
    World world;
    History history;
    std::optional<Operation> pending;
};

// Every sequence of up to three operations.
std::vector<std::vector<std::size_t>> sequences() {
    std::vector<std::vector<std::size_t>> all;
    for (std::size_t a = 0; a < kAlphabet.size(); ++a) {
        all.push_back({a});
        for (std::size_t b = 0; b < kAlphabet.size(); ++b) {
            all.push_back({a, b});
            for (std::size_t c = 0; c < kAlphabet.size(); ++c) all.push_back({a, b, c});
        }
    }
    return all;
}

std::string describe(const std::vector<std::size_t>& sequence, std::uint64_t cut) {
    std::string text;
    for (const std::size_t one : sequence) text += std::string(kAlphabet[one].first) + ", ";
    return fmt::format("{}power cut at change {}", text, cut);
}

TEST(StorePower, AnySequenceOfThreeOperations) {
    std::size_t trials = 0;
    std::size_t sampled = 0;
    for (const std::vector<std::size_t>& sequence : sequences()) {
        std::vector<Operation> operations;
        for (const std::size_t one : sequence) operations.push_back(kAlphabet[one].second);
        ++sampled;
        // The first operations of longer sequences are cut in shorter ones already.
        const std::uint64_t step = wants_all() ? 1 : 41 * sequence.size();
        std::uint64_t cut = wants_all() ? 0 : mix(sampled, 7) % step;
        for (bool has_gone = true; has_gone; cut += step) {
            Trial trial;
            has_gone = trial.perform(operations, cut);
            trial.expect_whole(describe(sequence, cut));
            ++trials;
            if (testing::Test::HasFailure()) return;
        }
    }
    EXPECT_GT(trials, sequences().size());
    RecordProperty("trials", static_cast<int>(trials));
}

}  // namespace
}  // namespace stet::store_test
