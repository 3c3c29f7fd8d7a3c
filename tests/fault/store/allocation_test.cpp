// Every allocation of an operation on the store fails once, ours and SQLite's: the process lives,
// the cause is named, nothing that was acknowledged is lost and nothing else is there; and the
// store goes on.
#include <sqlite3.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "base/try.h"
#include "store/session_file.h"
#include "unit/store/store_world.h"

namespace {

// Allocations until one fails; below 0: none does. Counted on one thread only.
thread_local std::int64_t allocations_left = -1;
thread_local bool has_failed = false;

bool is_to_fail() {
    if (allocations_left < 0 || allocations_left-- != 0) return false;
    has_failed = true;
    return true;
}

sqlite3_mem_methods sqlite_methods;

// SQLite must not have been used before.
const bool is_sqlite_wrapped = [] {
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_methods);
    sqlite3_mem_methods wrapped = sqlite_methods;
    wrapped.xMalloc = [](int size) -> void* {
        return is_to_fail() ? nullptr : sqlite_methods.xMalloc(size);
    };
    wrapped.xRealloc = [](void* old, int size) -> void* {
        return is_to_fail() ? nullptr : sqlite_methods.xRealloc(old, size);
    };
    return sqlite3_config(SQLITE_CONFIG_MALLOC, &wrapped) == SQLITE_OK;
}();

void* allocate(std::size_t size, std::size_t alignment) {
    if (is_to_fail()) throw std::bad_alloc();
    const std::size_t padded = (size + alignment - 1) / alignment * alignment;
    void* memory = alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, padded);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

// NOLINTBEGIN: the program's own.
void* operator new(std::size_t size) {
    return allocate(size == 0 ? 1 : size, 0);
}
void* operator new[](std::size_t size) {
    return allocate(size == 0 ? 1 : size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
// NOLINTEND

namespace stet::store_test {
namespace {

// Runs `work` again and again, each time with a later allocation failing, until none is hit. After
// each failure `check` looks at what there is; it gets whether the work succeeded all the same, and
// then undoes it. Answers the number of failures.
std::uint64_t fail_each(const std::function<Status()>& work,
                        const std::function<void(bool)>& check) {
    for (std::int64_t index = 0;; ++index) {
        has_failed = false;
        allocations_left = index;
        const Status done = work();
        allocations_left = -1;
        if (!has_failed) {
            EXPECT_TRUE(done.is_ok()) << done.to_string();
            return static_cast<std::uint64_t>(index);
        }
        if (!done) {
            EXPECT_EQ(done.code(), Code::resource_exhausted)
                << "allocation " << index << ": " << done.to_string();
        }
        check(done.is_ok());
        if (testing::Test::HasFailure()) return static_cast<std::uint64_t>(index);
    }
}

class StoreAllocations : public testing::Test {
  protected:
    StoreAllocations() : world(make_schema(15, 70, 4)) {
        EXPECT_TRUE(is_sqlite_wrapped);
        world.options.segment_bytes = 30000;
        EXPECT_TRUE(world.open().is_ok());
        EXPECT_TRUE(world.create("s").is_ok());
        value = Sequence::empty(world.schema);
        EXPECT_TRUE(world.commit("s", value, 150, 1).is_ok());
        EXPECT_TRUE(world.commit("s", value, 70, 2).is_ok());
    }
    void expect_unchanged() { EXPECT_EQ(world.wrong_session("s", value.tokens), ""); }

    World world;
    Sequence value;
};

TEST_F(StoreAllocations, OfACommit) {
    const Sequence next = extend(world.pool, value, make_tokens(90, 3));
    const store::TurnId head = world.store->find("s")->head;
    const store::NewTurn turn = World::new_turn(3);
    const std::uint64_t hits =
        fail_each([&] { return world.store->commit_turn("s", world.schema, next, turn).status(); },
                  [&](bool is_done) {
                      EXPECT_EQ(world.store->find("s")->turns, is_done ? 3U : 2U);
                      if (is_done) {
                          EXPECT_EQ(world.wrong_session("s", next.tokens), "");
                          ASSERT_TRUE(world.store->rollback("s", head).is_ok());
                      }
                      expect_unchanged();
                  });
    EXPECT_GT(hits, 100U);
    EXPECT_EQ(world.wrong_session("s", next.tokens), "");
    ASSERT_TRUE(world.open().is_ok());
    EXPECT_EQ(world.wrong_session("s", next.tokens), "");
}

TEST_F(StoreAllocations, OfALoad) {
    const std::uint64_t hits =
        fail_each([&] { return world.store->load("s", world.fingerprint, world.pool).status(); },
                  [&](bool) { expect_unchanged(); });
    EXPECT_GT(hits, 50U);
    expect_unchanged();
}

TEST_F(StoreAllocations, OfNames) {
    fail_each([&] { return world.store->fork("s", "f").status(); },
              [&](bool is_done) {
                  expect_unchanged();
                  EXPECT_EQ(world.store->find("f").is_ok(), is_done);
                  if (is_done) {
                      ASSERT_TRUE(world.store->remove("f").is_ok());
                  }
              });
    EXPECT_EQ(world.wrong_session("f", value.tokens), "");
    fail_each([&] { return world.store->remove("f"); },
              [&](bool is_done) {
                  expect_unchanged();
                  if (is_done) {
                      ASSERT_TRUE(world.store->fork("s", "f").is_ok());
                  }
                  EXPECT_EQ(world.wrong_session("f", value.tokens), "");
              });
    EXPECT_EQ(world.store->find("f").status().code(), Code::not_found);
}

TEST_F(StoreAllocations, OfACollection) {
    const auto make_garbage = [&] {
        ASSERT_TRUE(world.create("gone").is_ok());
        Sequence gone = Sequence::empty(world.schema);
        ASSERT_TRUE(world.commit("gone", gone, 900, 7).is_ok());
        ASSERT_TRUE(world.store->remove("gone").is_ok());
    };
    make_garbage();
    fail_each([&] { return world.store->collect_garbage().status(); },
              [&](bool is_done) {
                  if (is_done) make_garbage();
                  expect_unchanged();
              });
    expect_unchanged();
}

TEST_F(StoreAllocations, OfOpening) {
    fail_each([&] { return world.open(); }, [](bool) {});
    expect_unchanged();
}

// The functions over a store are called by who catches what is thrown.
template <typename Work>
Status caught(Work work) {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        return Status(Code::resource_exhausted, "no memory");
    }
}

TEST_F(StoreAllocations, OfExportAndImport) {
    std::vector<std::byte> bytes;
    const auto exported = [&]() -> Status {
        STET_ASSIGN(const auto file, store::collect_session(*world.store, "s"));
        bytes.clear();
        state::CallbackSink sink([&](std::span<const std::byte> data) {
            bytes.insert(bytes.end(), data.begin(), data.end());
            return Status();
        });
        return store::write_session(file, true, sink);
    };
    fail_each([&] { return caught(exported); }, [&](bool) { expect_unchanged(); });
    const auto imported = [&]() -> Status {
        state::SpanSource source(bytes);
        STET_ASSIGN(const auto file, store::read_session(source, 1U << 30));
        return store::import_session(*world.store, file, "t").status();
    };
    fail_each([&] { return caught(imported); },
              [&](bool) {
                  expect_unchanged();
                  // Absent, or whole when it failed only afterwards.
                  if (!world.store->find("t")) return;
                  EXPECT_EQ(world.wrong_session("t", value.tokens), "");
                  ASSERT_TRUE(world.store->remove("t").is_ok());
              });
    EXPECT_EQ(world.wrong_session("t", value.tokens), "");
}

}  // namespace
}  // namespace stet::store_test
