// A process that commits is killed at a random moment. Whatever it reported is there, bit by bit;
// what it was doing is absent or whole.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

constexpr std::uint64_t kSessions = 3;

// Sizes and tokens of a session's turns are a function of its name and their number, so that parent
// and child agree about them without a word.
std::size_t turn_size(std::uint64_t session, std::uint64_t number) {
    return 1 + mix(session, number) % 150;
}
std::uint64_t turn_seed(std::uint64_t session, std::uint64_t number) {
    return number < 4 ? number : mix(session, number);  // equal prefixes at first
}
std::string session_name(std::uint64_t session) {
    return fmt::format("s{}", session);
}

std::vector<Token> expected_tokens(std::uint64_t session, std::uint64_t turns) {
    std::vector<Token> tokens;
    for (std::uint64_t number = 0; number < turns; ++number) {
        const auto more = make_tokens(turn_size(session, number), turn_seed(session, number));
        tokens.insert(tokens.end(), more.begin(), more.end());
    }
    return tokens;
}

struct Report {
    std::uint64_t session;
    std::uint64_t turns;  // acknowledged
};

// The child: goes on from what is there, until killed. Never returns.
[[noreturn]] void commit_for_ever(World& world, int report) {
    if (!world.open()) _exit(2);
    std::vector<Sequence> values;
    std::vector<std::uint64_t> turns;
    for (std::uint64_t s = 0; s < kSessions; ++s) {
        if (!world.store->find(session_name(s)) && !world.create(session_name(s))) _exit(3);
        auto loaded = world.store->load(session_name(s), world.fingerprint, world.pool);
        if (!loaded) _exit(4);
        values.push_back(std::move(loaded->sequence));
        turns.push_back(loaded->turn.number);
    }
    for (std::uint64_t round = 0;; ++round) {
        const std::uint64_t s = round % kSessions;
        const auto turn = world.commit(session_name(s), values[s], turn_size(s, turns[s]),
                                       turn_seed(s, turns[s]));
        if (!turn) _exit(5);
        const Report done{s, ++turns[s]};
        if (write(report, &done, sizeof(done)) != static_cast<ssize_t>(sizeof(done))) _exit(6);
        if (round % 16 == 15 && !world.store->collect_garbage()) _exit(7);
    }
}

std::size_t rounds() {
    const char* wanted = std::getenv("STET_TEST_KILLS");
    return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 100;
}

TEST(StoreKill, WhatWasAcknowledgedIsThere) {
    World world(make_schema(15, 70, 4));
    world.options.segment_bytes = 200000;
    std::map<std::uint64_t, std::uint64_t> acknowledged;
    std::uint64_t commits = 0;
    for (std::size_t round = 0; round < rounds(); ++round) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            close(ends[0]);
            commit_for_ever(world, ends[1]);
        }
        close(ends[1]);
        // Some die while they open the store, the others after a few commits, somewhere in the
        // next.
        Report done{};
        const auto take_report = [&] {
            if (read(ends[0], &done, sizeof(done)) != sizeof(done)) return false;
            acknowledged[done.session] = done.turns;
            ++commits;
            return true;
        };
        const std::uint64_t awaited = round % 5 == 4 ? 0 : 1 + mix(98, round) % 7;
        for (std::uint64_t i = 0; i < awaited; ++i) ASSERT_TRUE(take_report());
        usleep(static_cast<useconds_t>(mix(99, round) % 3000));
        ASSERT_EQ(kill(child, SIGKILL), 0);
        int how = 0;
        ASSERT_EQ(waitpid(child, &how, 0), child);
        ASSERT_TRUE(WIFSIGNALED(how)) << "the child gave up: " << WEXITSTATUS(how);
        while (take_report()) {
        }
        close(ends[0]);

        ASSERT_TRUE(world.open().is_ok());
        for (std::uint64_t s = 0; s < kSessions; ++s) {
            const auto info = world.store->find(session_name(s));
            if (!info) {
                EXPECT_EQ(acknowledged[s], 0U);
                continue;
            }
            EXPECT_GE(info->turns, acknowledged[s]);
            EXPECT_LE(info->turns, acknowledged[s] + 1) << "one at most was under way";
            EXPECT_EQ(world.wrong_session(session_name(s), expected_tokens(s, info->turns)), "");
            acknowledged[s] = info->turns;
        }
        ASSERT_FALSE(HasFailure()) << "round " << round;
        world.store.reset();
    }
    EXPECT_GE(commits, rounds() / 2);
}

}  // namespace
}  // namespace stet::store_test
