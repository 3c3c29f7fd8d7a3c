// A real file system of 64 MiB, filled and filled again: no acknowledged save is lost, what is
// refused says so, and the store goes on when there is space.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

constexpr int kNotAllowed = 77;

void write_text(const char* path, const std::string& text) {
    const int file = open(path, O_WRONLY);
    if (file < 0) return;
    [[maybe_unused]] const ssize_t written = write(file, text.data(), text.size());
    close(file);
}

// A mount that only this process sees: as root, or in a name space of its own.
bool mount_small_disk(const std::filesystem::path& at) {
    const uid_t user = getuid();
    const gid_t group = getgid();
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
        write_text("/proc/self/setgroups", "deny");
        write_text("/proc/self/uid_map", fmt::format("0 {} 1", user));
        write_text("/proc/self/gid_map", fmt::format("0 {} 1", group));
    }
    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    return mount("stet-test", at.c_str(), "tmpfs", 0, "size=64m,mode=0700") == 0;
}

struct Kept {
    std::string name;
    std::vector<Token> tokens;
};

// Commits sessions until the disk is full; those that were acknowledged.
std::vector<Kept> fill(World& world, std::uint64_t round) {
    constexpr std::uint64_t kTries = 2000;
    std::vector<Kept> kept;
    for (std::uint64_t i = 0; i < kTries; ++i) {
        const std::string name = fmt::format("r{}-{}", round, i);
        Sequence value = Sequence::empty(world.schema);
        const Status created = world.create(name);
        const Status done =
            created ? world.commit(name, value, 4000, round * 10000 + i).status() : created;
        if (!done) {
            EXPECT_EQ(done.code(), Code::resource_exhausted) << done.to_string();
            return kept;
        }
        kept.push_back({name, value.tokens});
    }
    ADD_FAILURE() << "the disk never was full";
    return kept;
}

void expect_all(World& world, const std::vector<Kept>& kept) {
    for (const Kept& one : kept) EXPECT_EQ(world.wrong_session(one.name, one.tokens), "");
}

void live_on_a_small_disk(World& world) {
    ASSERT_TRUE(world.open().is_ok());
    std::vector<Kept> kept;
    for (std::uint64_t round = 0; round < 4; ++round) {
        for (Kept& one : fill(world, round)) kept.push_back(std::move(one));
        ASSERT_GT(kept.size(), 20U);
        expect_all(world, kept);
        // It serves while it is full: names move, states are read.
        EXPECT_TRUE(world.store->find(kept.front().name).is_ok());
        if (round % 2 == 1) {
            const Status opened = world.open();
            ASSERT_TRUE(opened.is_ok()) << opened.to_string();
            expect_all(world, kept);
        }
        // Space returns.
        for (std::size_t i = 0; i < 10; ++i) {
            const Status removed = world.store->remove(kept.back().name);
            ASSERT_TRUE(removed.is_ok()) << removed.to_string();
            kept.pop_back();
        }
        const auto reclaimed = world.store->collect_garbage();
        ASSERT_TRUE(reclaimed.is_ok()) << reclaimed.status().to_string();
        expect_all(world, kept);
    }
}

TEST(StoreSmallDisk, IsFilledAndFilledAgain) {
    World world(make_schema(1));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (!mount_small_disk(world.directory())) _exit(kNotAllowed);
        live_on_a_small_disk(world);
        world.store.reset();
        std::fflush(nullptr);
        _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNotAllowed) {
        GTEST_SKIP() << "this system lets nobody mount a file system of his own";
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace stet::store_test
