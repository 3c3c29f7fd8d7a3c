// The power failure itself: other tests are only as good as it is mean.
#include "support/fault_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/temp_directory.h"

namespace stet::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

class FaultEnvTest : public testing::Test {
  protected:
    TempDirectory directory_;
    FaultEnv env_;

    std::unique_ptr<File> open(const char* name, OpenMode mode = OpenMode::create) {
        auto file = env_.open(directory_ / name, mode);
        EXPECT_TRUE(file.is_ok()) << file.status().to_string();
        return std::move(file).value();
    }
    void sync_directory() { ASSERT_TRUE(env_.sync_directory(directory_.path()).is_ok()); }
    std::string content(const char* name) {
        const auto data = read_file(Env::posix(), directory_ / name, 1 << 20);
        if (!data.is_ok()) return std::string(code_name(data.status().code()));
        return {reinterpret_cast<const char*>(data->data()), data->size()};
    }
    std::vector<std::string> names() { return *Env::posix().list(directory_.path()); }
};

TEST_F(FaultEnvTest, UnsyncedDataIsLost) {
    auto file = open("a");
    sync_directory();
    ASSERT_TRUE(file->write_at(0, bytes_of("kept")).is_ok());
    ASSERT_TRUE(file->sync().is_ok());
    ASSERT_TRUE(file->write_at(2, bytes_of("lost")).is_ok());
    EXPECT_EQ(content("a"), "kelost");
    EXPECT_TRUE(env_.has_unsynced());
    env_.crash();
    EXPECT_EQ(content("a"), "kept");
    EXPECT_FALSE(env_.has_unsynced());
}

TEST_F(FaultEnvTest, AnUnsyncedTruncationIsUndone) {
    auto file = open("a");
    sync_directory();
    ASSERT_TRUE(file->write_at(0, bytes_of("whole")).is_ok());
    ASSERT_TRUE(file->sync().is_ok());
    ASSERT_TRUE(file->truncate(1).is_ok());
    env_.crash();
    EXPECT_EQ(content("a"), "whole");
}

TEST_F(FaultEnvTest, AnUnsyncedEntryIsLostThoughTheDataWereSynced) {
    auto file = open("a");
    ASSERT_TRUE(file->write_at(0, bytes_of("data")).is_ok());
    ASSERT_TRUE(file->sync().is_ok());
    env_.crash();
    EXPECT_THAT(names(), IsEmpty());
}

TEST_F(FaultEnvTest, UnsyncedRenamesAndRemovalsAreUndone) {
    for (const char* name : {"a", "b", "c"}) {
        auto file = open(name);
        ASSERT_TRUE(file->write_at(0, bytes_of(name)).is_ok());
        ASSERT_TRUE(file->sync().is_ok());
    }
    sync_directory();
    ASSERT_TRUE(env_.rename(directory_ / "a", directory_ / "b").is_ok());
    ASSERT_TRUE(env_.remove(directory_ / "c").is_ok());
    EXPECT_THAT(names(), ElementsAre("b"));
    env_.crash();
    EXPECT_THAT(names(), ElementsAre("a", "b", "c"));
    EXPECT_EQ(content("b"), "b");

    ASSERT_TRUE(env_.rename(directory_ / "a", directory_ / "b").is_ok());
    ASSERT_TRUE(env_.remove(directory_ / "c").is_ok());
    sync_directory();
    env_.crash();
    EXPECT_THAT(names(), ElementsAre("b"));
    EXPECT_EQ(content("b"), "a");
}

TEST_F(FaultEnvTest, FilesOfOthersStay) {
    {
        auto other = Env::posix().open(directory_ / "catalogue", OpenMode::create);
        ASSERT_TRUE((*other)->write_at(0, bytes_of("theirs")).is_ok());
    }
    open("mine");
    env_.crash();
    EXPECT_THAT(names(), ElementsAre("catalogue"));
    // Until they are changed through this Env: then what was there counts as durable.
    ASSERT_TRUE(open("catalogue", OpenMode::read_write)->write_at(0, bytes_of("OURS")).is_ok());
    env_.crash();
    EXPECT_EQ(content("catalogue"), "theirs");
}

TEST_F(FaultEnvTest, ASeedTearsWritesAtSectors) {
    std::set<std::string> outcomes;
    for (std::uint64_t seed = 1; seed <= 64; ++seed) {
        {
            auto file = open("a");
            ASSERT_TRUE(file->truncate(0).is_ok());
            ASSERT_TRUE(file->write_at(0, bytes_of(std::string(1024, '.'))).is_ok());
            ASSERT_TRUE(file->sync().is_ok());
            sync_directory();
            ASSERT_TRUE(file->write_at(256, bytes_of(std::string(512, 'x'))).is_ok());
        }
        env_.crash(seed);
        const std::string found = content("a");
        ASSERT_EQ(found.size(), 1024u);
        std::string kinds;  // one letter a half sector
        for (std::size_t at = 0; at < 1024; at += 256) {
            ASSERT_EQ(found.substr(at, 256), std::string(256, found[at]));
            kinds += found[at];
        }
        outcomes.insert(kinds);
    }
    EXPECT_THAT(outcomes, ElementsAre("....", "..x.", ".x..", ".xx."));
}

TEST_F(FaultEnvTest, ASeedKeepsAnySubsetOfEntries) {
    std::set<std::vector<std::string>> outcomes;
    for (std::uint64_t seed = 1; seed <= 64; ++seed) {
        open("a");
        open("b");
        env_.crash(seed);
        outcomes.insert(names());
        for (const std::string& name : names()) {
            ASSERT_TRUE(env_.remove(directory_ / name).is_ok());
        }
        sync_directory();
    }
    EXPECT_EQ(outcomes.size(), 4u);
}

TEST_F(FaultEnvTest, TheSameSeedGivesTheSameOutcome) {
    std::set<std::string> outcomes;
    for (int round = 0; round < 3; ++round) {
        auto file = open("a");
        ASSERT_TRUE(file->truncate(0).is_ok());
        ASSERT_TRUE(file->sync().is_ok());
        sync_directory();
        ASSERT_TRUE(file->write_at(0, bytes_of(std::string(20'000, 'x'))).is_ok());
        env_.crash(7);
        outcomes.insert(content("a"));
    }
    EXPECT_EQ(outcomes.size(), 1u);
}

TEST_F(FaultEnvTest, AfterAFailedSyncALaterOneDoesNotSaveTheData) {
    auto file = open("a");
    sync_directory();
    const std::string data(64 * 512, 'x');
    ASSERT_TRUE(file->write_at(0, bytes_of(data)).is_ok());
    env_.fail_call({.ops = kSync, .index = 0, .code = Code::io});
    EXPECT_EQ(file->sync().code(), Code::io);
    EXPECT_TRUE(file->sync().is_ok());
    env_.crash();
    EXPECT_NE(content("a"), data);
}

TEST_F(FaultEnvTest, FailsTheChosenCallOnceOrFromThenOn) {
    auto file = open("a");
    env_.fail_call({.ops = kWrite, .index = 1, .code = Code::resource_exhausted});
    const auto write = [&] { return file->write_at(0, bytes_of("x")).code(); };
    EXPECT_EQ(write(), Code::ok);
    EXPECT_EQ(write(), Code::resource_exhausted);
    EXPECT_EQ(write(), Code::ok);
    EXPECT_EQ(env_.fault_count(), 1u);
    env_.fail_call({.ops = kAnyOp, .index = 2, .code = Code::io, .sticky = true});
    EXPECT_EQ(write(), Code::ok);
    EXPECT_TRUE(env_.info(directory_ / "a").is_ok());
    EXPECT_EQ(write(), Code::io);
    EXPECT_FALSE(env_.map(directory_ / "a").is_ok());
    env_.clear_faults();
    EXPECT_EQ(write(), Code::ok);
}

TEST_F(FaultEnvTest, CountsCalls) {
    auto file = open("a");
    ASSERT_TRUE(file->write_at(0, bytes_of("x")).is_ok());
    ASSERT_TRUE(file->sync().is_ok());
    EXPECT_EQ(env_.calls(kWrite), 1u);
    EXPECT_EQ(env_.calls(kChanges), 3u);
    EXPECT_EQ(env_.calls(kOpenExisting), 0u);
    env_.reset_calls();
    EXPECT_EQ(env_.calls(kAnyOp), 0u);
}

TEST_F(FaultEnvTest, WithoutPowerNothingWorksUntilTheCrash) {
    auto file = open("a");
    sync_directory();
    env_.cut_power_at(1);
    ASSERT_TRUE(file->write_at(0, bytes_of("one")).is_ok());
    EXPECT_EQ(file->sync().code(), Code::io);
    EXPECT_TRUE(env_.has_cut_power());
    EXPECT_EQ(file->write_at(0, bytes_of("two")).code(), Code::io);
    EXPECT_EQ(env_.remove(directory_ / "a").code(), Code::io);
    EXPECT_EQ(env_.info(directory_ / "a").status().code(), Code::io);
    env_.crash();
    EXPECT_FALSE(env_.has_cut_power());
    EXPECT_EQ(content("a"), "");
    // The old handle is of a machine that is no more.
    EXPECT_EQ(file->write_at(0, bytes_of("two")).code(), Code::io);
    EXPECT_EQ(content("a"), "");
    EXPECT_TRUE(open("a")->write_at(0, bytes_of("new")).is_ok());
}

TEST_F(FaultEnvTest, TheWorldCanBeSet) {
    const auto wall = env_.now();
    const auto steady = env_.steady_now();
    env_.advance(std::chrono::hours(5));
    EXPECT_GE(env_.now() - wall, std::chrono::hours(5));
    EXPECT_GE(env_.steady_now() - steady, std::chrono::hours(5));
    env_.set_free_bytes(17);
    EXPECT_EQ(*env_.free_bytes(directory_.path()), 17u);
    env_.set_free_bytes(std::nullopt);
    EXPECT_GT(*env_.free_bytes(directory_.path()), 17u);
}

}  // namespace
}  // namespace stet::test
