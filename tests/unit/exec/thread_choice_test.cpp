#include "exec/thread_choice.h"

#include <gtest/gtest.h>

namespace stet::exec {
namespace {

// Runs a machine on which a step takes `all` seconds with all threads and `one` with one; answers
// the part of the time that the faster way would have taken.
double efficiency(ThreadChoice& choice, int threads, int runs, double all, double one) {
    double spent = 0.0;
    for (int i = 0; i < runs; ++i) {
        const double seconds = choice.next() == threads ? all : one;
        choice.done(seconds);
        spent += seconds;
    }
    return runs * std::min(all, one) / spent;
}

TEST(ThreadChoiceTest, OneThreadIsAlwaysOne) {
    ThreadChoice choice(1);
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(choice.next(), 1);
        choice.done(1.0);
    }
}

TEST(ThreadChoiceTest, AQuietMachineUsesAllThreads) {
    ThreadChoice choice(2);
    EXPECT_GT(efficiency(choice, 2, 1000, 1.0, 1.9), 0.98);
}

TEST(ThreadChoiceTest, ABusyMachineUsesOneThread) {
    ThreadChoice choice(2);
    EXPECT_GT(efficiency(choice, 2, 1000, 20.0, 1.0), 0.85);
}

TEST(ThreadChoiceTest, FollowsAMachineThatBecomesBusyAndQuietAgain) {
    ThreadChoice choice(4);
    EXPECT_GT(efficiency(choice, 4, 500, 1.0, 3.5), 0.95);
    EXPECT_GT(efficiency(choice, 4, 500, 50.0, 4.0), 0.8);
    EXPECT_GT(efficiency(choice, 4, 2000, 1.0, 3.5), 0.6);
    EXPECT_EQ(choice.next(), 4);
}

TEST(ThreadChoiceTest, OneSlowRunChangesNothingForLong) {
    ThreadChoice choice(2);
    efficiency(choice, 2, 100, 1.0, 1.9);
    choice.next();
    choice.done(10.0);
    EXPECT_GT(efficiency(choice, 2, 100, 1.0, 1.9), 0.95);
}

}  // namespace
}  // namespace stet::exec
