#include "base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <limits>

#include "support/temp_directory.h"

namespace stet {
namespace {

using test::TempDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

mode_t mode_of(const Env::Path& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 ? st.st_mode & 0777 : 0;
}

class PosixEnvTest : public testing::Test {
  protected:
    Env& env_ = Env::posix();
    TempDirectory directory_;

    void write(const Env::Path& path, std::string_view text) {
        auto file = env_.open(path, OpenMode::create);
        ASSERT_TRUE(file.is_ok()) << file.status().to_string();
        ASSERT_TRUE((*file)->truncate(0).is_ok());
        ASSERT_TRUE((*file)->write_at(0, bytes_of(text)).is_ok());
        ASSERT_TRUE((*file)->sync().is_ok());
        ASSERT_TRUE((*file)->close().is_ok());
    }
    std::string read(const Env::Path& path) {
        const auto data = read_file(env_, path, 1 << 20);
        return data.is_ok() ? text_of(*data) : data.status().to_string();
    }
};

TEST_F(PosixEnvTest, WritesAndReadsAtOffsets) {
    auto file = std::move(env_.open(directory_ / "a", OpenMode::create_new)).value();
    ASSERT_TRUE(file->write_at(4, bytes_of("tail")).is_ok());
    ASSERT_TRUE(file->write_at(0, bytes_of("head")).is_ok());
    EXPECT_EQ(*file->size(), 8u);
    std::array<std::byte, 4> data;
    ASSERT_TRUE(file->read_at(2, data).is_ok());
    EXPECT_EQ(text_of(data), "adta");
    ASSERT_TRUE(file->truncate(5).is_ok());
    EXPECT_EQ(*file->size(), 5u);
    EXPECT_TRUE(file->sync().is_ok());
    EXPECT_TRUE(file->close().is_ok());
    EXPECT_EQ(read(directory_ / "a"), "headt");
}

TEST_F(PosixEnvTest, AShortReadIsCorruptionAndSaysHowShort) {
    write(directory_ / "a", "12345");
    const auto file = std::move(env_.open(directory_ / "a", OpenMode::read)).value();
    std::array<std::byte, 8> data;
    const Status status = file->read_at(2, data);
    EXPECT_EQ(status.code(), Code::corruption);
    EXPECT_THAT(status.to_string(), HasSubstr("cut short: expected 8 bytes at byte 2, found 3"));
    EXPECT_EQ(file->read_at(std::numeric_limits<std::uint64_t>::max() - 2, data).code(),
              Code::corruption);
    EXPECT_TRUE(file->read_at(9, {}).is_ok());
}

TEST_F(PosixEnvTest, RefusesOffsetsBeyondAnyFile) {
    auto file = std::move(env_.open(directory_ / "a", OpenMode::create)).value();
    constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
    EXPECT_EQ(file->write_at(kMax, bytes_of("x")).code(), Code::invalid_argument);
    EXPECT_EQ(file->write_at(kMax / 2, bytes_of("x")).code(), Code::invalid_argument);
    EXPECT_EQ(file->truncate(kMax).code(), Code::invalid_argument);
    EXPECT_EQ(*file->size(), 0u);
}

TEST_F(PosixEnvTest, OpenModes) {
    const Env::Path path = directory_ / "a";
    EXPECT_EQ(env_.open(path, OpenMode::read).status().code(), Code::not_found);
    EXPECT_EQ(env_.open(path, OpenMode::read_write).status().code(), Code::not_found);
    write(path, "kept");
    EXPECT_EQ(env_.open(path, OpenMode::create_new).status().code(), Code::already_exists);
    EXPECT_TRUE(env_.open(path, OpenMode::create).is_ok());
    EXPECT_EQ(read(path), "kept");
    auto read_only = std::move(env_.open(path, OpenMode::read)).value();
    EXPECT_EQ(read_only->write_at(0, bytes_of("x")).code(), Code::io);
}

TEST_F(PosixEnvTest, KeepsOthersOut) {
    write(directory_ / "a", "");
    EXPECT_EQ(mode_of(directory_ / "a"), 0600u);
    ASSERT_TRUE(env_.make_directory(directory_ / "d" / "e").is_ok());
    EXPECT_EQ(mode_of(directory_ / "d"), 0700u);
    EXPECT_EQ(mode_of(directory_ / "d" / "e"), 0700u);
}

TEST_F(PosixEnvTest, RefusesWhatIsNotARegularFile) {
    EXPECT_EQ(env_.open(directory_.path(), OpenMode::read).status().code(), Code::invalid_argument);
    EXPECT_EQ(env_.map(directory_.path()).status().code(), Code::invalid_argument);
    ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
    // Would wait for a writer for ever if it were opened as a file is.
    EXPECT_EQ(env_.map(directory_ / "pipe").status().code(), Code::invalid_argument);
    EXPECT_EQ(env_.open(directory_ / "pipe", OpenMode::read).status().code(),
              Code::invalid_argument);
}

TEST_F(PosixEnvTest, DoesNotMakeFilesThroughLinks) {
    std::filesystem::create_symlink(directory_ / "elsewhere", directory_ / "link");
    EXPECT_FALSE(env_.open(directory_ / "link", OpenMode::create).is_ok());
    EXPECT_FALSE(env_.open(directory_ / "link", OpenMode::create_new).is_ok());
    EXPECT_FALSE(env_.lock(directory_ / "link").is_ok());
    EXPECT_FALSE(std::filesystem::exists(directory_ / "elsewhere"));
}

TEST_F(PosixEnvTest, MapsFilesEmptyOnesToo) {
    write(directory_ / "a", "content");
    write(directory_ / "empty", "");
    EXPECT_EQ(text_of((*env_.map(directory_ / "a"))->bytes()), "content");
    EXPECT_EQ((*env_.map(directory_ / "empty"))->bytes().size(), 0u);
    EXPECT_EQ(env_.map(directory_ / "none").status().code(), Code::not_found);
}

TEST_F(PosixEnvTest, AMappingOutlivesTheName) {
    write(directory_ / "a", "content");
    const auto mapping = std::move(env_.map(directory_ / "a")).value();
    ASSERT_TRUE(env_.remove(directory_ / "a").is_ok());
    EXPECT_EQ(text_of(mapping->bytes()), "content");
}

TEST_F(PosixEnvTest, InfoTellsFilesApart) {
    write(directory_ / "a", "12345");
    const FileInfo info = *env_.info(directory_ / "a");
    EXPECT_EQ(info.size_bytes, 5u);
    EXPECT_FALSE(info.is_directory);
    EXPECT_GT(info.modified_ns, 0);
    write(directory_ / "b", "12345");
    EXPECT_NE(env_.info(directory_ / "b")->inode, info.inode);
    EXPECT_TRUE(env_.info(directory_.path())->is_directory);
    EXPECT_EQ(env_.info(directory_ / "none").status().code(), Code::not_found);
    EXPECT_EQ(env_.info(directory_ / "a" / "below").status().code(), Code::not_found);
}

TEST_F(PosixEnvTest, ListsSortedWithoutDots) {
    for (const char* name : {"b", "c", "a"}) write(directory_ / name, "");
    EXPECT_THAT(*env_.list(directory_.path()), ElementsAre("a", "b", "c"));
    EXPECT_EQ(env_.list(directory_ / "none").status().code(), Code::not_found);
}

TEST_F(PosixEnvTest, MakesDirectoriesWithParents) {
    EXPECT_TRUE(env_.make_directory(directory_ / "x/y/z/").is_ok());
    EXPECT_TRUE(env_.make_directory(directory_ / "x/y/z").is_ok());
    EXPECT_TRUE(env_.info(directory_ / "x/y/z")->is_directory);
    write(directory_ / "file", "");
    EXPECT_EQ(env_.make_directory(directory_ / "file").code(), Code::already_exists);
    EXPECT_FALSE(env_.make_directory(directory_ / "file" / "below").is_ok());
}

TEST_F(PosixEnvTest, RenamesAndRemoves) {
    write(directory_ / "a", "new");
    write(directory_ / "b", "old");
    ASSERT_TRUE(env_.rename(directory_ / "a", directory_ / "b").is_ok());
    EXPECT_EQ(read(directory_ / "b"), "new");
    EXPECT_EQ(env_.rename(directory_ / "a", directory_ / "b").code(), Code::not_found);
    ASSERT_TRUE(env_.make_directory(directory_ / "d/e").is_ok());
    EXPECT_EQ(env_.remove(directory_ / "d").code(), Code::conflict);
    EXPECT_TRUE(env_.remove(directory_ / "d/e").is_ok());
    EXPECT_TRUE(env_.remove(directory_ / "d").is_ok());
    EXPECT_TRUE(env_.remove(directory_ / "b").is_ok());
    EXPECT_EQ(env_.remove(directory_ / "b").code(), Code::not_found);
}

TEST_F(PosixEnvTest, SyncsDirectories) {
    EXPECT_TRUE(env_.sync_directory(directory_.path()).is_ok());
    EXPECT_TRUE(env_.sync_directory("").is_ok());
    EXPECT_EQ(env_.sync_directory(directory_ / "none").code(), Code::not_found);
}

// The limit on a process's files stands for the full disk: the same path, another errno.
TEST_F(PosixEnvTest, NoRoomIsResourceExhausted) {
    const pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit = {4096, 4096};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
        auto file = env_.open(directory_ / "a", OpenMode::create);
        // The first write is cut off at the limit, so this also goes through the retry.
        const Status status = (*file)->write_at(0, bytes_of(std::string(8192, 'x')));
        const bool told = status.code() == Code::resource_exhausted && *(*file)->size() == 4096;
        ::_exit(told ? 0 : 1);
    }
    int result = 0;
    ASSERT_EQ(::waitpid(child, &result, 0), child);
    EXPECT_EQ(result, 0);
}

TEST_F(PosixEnvTest, OneHolderALock) {
    const Env::Path path = directory_ / "lock";
    auto held = env_.lock(path);
    ASSERT_TRUE(held.is_ok());
    const Status refused = env_.lock(path).status();
    EXPECT_EQ(refused.code(), Code::conflict);
    EXPECT_THAT(refused.to_string(), HasSubstr(std::to_string(::getpid())));
    std::move(held).value().reset();
    EXPECT_TRUE(env_.lock(path).is_ok());
}

TEST_F(PosixEnvTest, ADeadProcessHoldsNoLock) {
    const Env::Path path = directory_ / "lock";
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto held = env_.lock(path);
        const char answer = held.is_ok() ? 'y' : 'n';
        if (::write(ready[1], &answer, 1) != 1) ::_exit(1);
        ::pause();
    }
    char answer = 'n';
    ASSERT_EQ(::read(ready[0], &answer, 1), 1);
    ASSERT_EQ(answer, 'y');
    EXPECT_EQ(env_.lock(path).status().code(), Code::conflict);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(env_.lock(path).is_ok());
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_F(PosixEnvTest, FreeBytesAndClocks) {
    EXPECT_GT(*env_.free_bytes(directory_.path()), 0u);
    EXPECT_EQ(env_.free_bytes(directory_ / "none").status().code(), Code::not_found);
    const auto before = env_.steady_now();
    EXPECT_LE(before, env_.steady_now());
}

TEST_F(PosixEnvTest, ReadFileHasALimit) {
    write(directory_ / "a", "12345");
    EXPECT_EQ(text_of(*read_file(env_, directory_ / "a", 5)), "12345");
    EXPECT_EQ(read_file(env_, directory_ / "a", 4).status().code(), Code::invalid_argument);
    EXPECT_EQ(read_file(env_, directory_ / "none", 4).status().code(), Code::not_found);
}

}  // namespace
}  // namespace stet
