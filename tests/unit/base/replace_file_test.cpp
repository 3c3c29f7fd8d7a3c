// replace_file's promise, "afterwards either the old or the new content", against every fault and
// power failure that can meet it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/env.h"
#include "support/fault_env.h"
#include "support/temp_directory.h"

namespace stet {
namespace {

using namespace test;

constexpr std::uint64_t kSeeds = 40;

std::string old_content() {
    return std::string(3000, 'o');
}
std::string new_content() {
    return std::string(5000, 'n');
}

class ReplaceFileTest : public testing::Test {
  protected:
    TempDirectory directory_;
    Env::Path path_ = directory_ / "target";

    Status replace(Env& env, const std::string& text) {
        return replace_file(env, path_, std::as_bytes(std::span(text)));
    }
    // Without the syncs of the real thing: these tests do it a thousand times.
    void put_old() {
        auto file = Env::posix().open(path_, OpenMode::create);
        ASSERT_TRUE(file.is_ok());
        ASSERT_TRUE((*file)->truncate(0).is_ok());
        const std::string text = old_content();
        ASSERT_TRUE((*file)->write_at(0, std::as_bytes(std::span(text))).is_ok());
    }
    std::string content() {
        const auto data = read_file(Env::posix(), path_, 1 << 20);
        if (!data.is_ok()) return data.status().to_string();
        return {reinterpret_cast<const char*>(data->data()), data->size()};
    }
    std::size_t file_count() { return Env::posix().list(directory_.path())->size(); }
};

TEST_F(ReplaceFileTest, MakesAndReplaces) {
    ASSERT_TRUE(replace(Env::posix(), old_content()).is_ok());
    EXPECT_EQ(content(), old_content());
    ASSERT_TRUE(replace(Env::posix(), new_content()).is_ok());
    EXPECT_EQ(content(), new_content());
    EXPECT_EQ(file_count(), 1u);
}

TEST_F(ReplaceFileTest, ReplacesALinkNotWhatItPointsTo) {
    ASSERT_TRUE(replace(Env::posix(), old_content()).is_ok());
    std::filesystem::rename(path_, directory_ / "other");
    std::filesystem::create_symlink(directory_ / "other", path_);
    ASSERT_TRUE(replace(Env::posix(), new_content()).is_ok());
    EXPECT_FALSE(std::filesystem::is_symlink(path_));
    EXPECT_EQ(std::filesystem::file_size(directory_ / "other"), old_content().size());
}

TEST_F(ReplaceFileTest, WithoutTheDirectorySaysSo) {
    const Status status =
        replace_file(Env::posix(), directory_ / "none" / "a", std::span<const std::byte>());
    EXPECT_EQ(status.code(), Code::not_found);
}

TEST_F(ReplaceFileTest, TriesAnotherNameWhenItsOwnIsTaken) {
    FaultEnv env;
    env.fail_call({.ops = kOpen, .index = 0, .code = Code::already_exists});
    EXPECT_TRUE(replace(env, new_content()).is_ok());
    env.fail_call({.ops = kOpen, .index = 0, .code = Code::already_exists, .sticky = true});
    EXPECT_EQ(replace(env, old_content()).code(), Code::already_exists);
    EXPECT_EQ(content(), new_content());
}

TEST_F(ReplaceFileTest, EveryFailingCallLeavesOldOrNewAndNoTemporary) {
    for (const bool is_sticky : {false, true}) {
        for (std::uint64_t k = 0;; ++k) {
            put_old();
            FaultEnv env;
            env.fail_call({.ops = kChanges & ~kRemove,
                           .index = k,
                           .code = Code::resource_exhausted,
                           .sticky = is_sticky});
            const Status status = replace(env, new_content());
            if (env.fault_count() == 0) {
                EXPECT_GE(k, 6u);  // open, write, sync, close, rename, sync of the directory
                EXPECT_TRUE(status.is_ok());
                break;
            }
            SCOPED_TRACE(fmt::format("call {}: {}", k, status.to_string()));
            EXPECT_EQ(status.code(), Code::resource_exhausted);
            EXPECT_EQ(file_count(), 1u);
            // Only the sync of the directory comes after the rename.
            const bool is_renamed = env.calls(kSyncDirectory) != 0;
            EXPECT_EQ(content(), is_renamed ? new_content() : old_content());
        }
    }
}

TEST_F(ReplaceFileTest, EveryPowerFailureLeavesOldOrNew) {
    std::size_t old_count = 0;
    std::size_t new_count = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        for (std::uint64_t k = 0;; ++k) {
            put_old();
            FaultEnv env(Env::posix(), seed);
            env.cut_power_at(k);
            const Status status = replace(env, new_content());
            const bool is_complete = !env.has_cut_power();
            seed == 0 ? env.crash() : env.crash(seed);
            EXPECT_EQ(status.is_ok(), is_complete);
            if (is_complete) {
                EXPECT_EQ(content(), new_content()) << "acknowledged, then lost";
                break;
            }
            (content() == new_content() ? new_count : old_count) += 1;
            ASSERT_TRUE(content() == new_content() || content() == old_content())
                << "seed " << seed << ", call " << k;
        }
    }
    EXPECT_GT(old_count, 0u);
    EXPECT_GT(new_count, 0u);  // the rename can survive before its directory's sync
}

}  // namespace
}  // namespace stet
