#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

using store::kNoTurn;
using store::TurnId;

#define ASSERT_OK(expr)                                            \
    do {                                                           \
        const ::stet::Status ok_status_ = (expr);                  \
        ASSERT_TRUE(ok_status_.is_ok()) << ok_status_.to_string(); \
    } while (false)

TEST(Store, EveryLifetimeComesBackBitIdentical) {
    for (unsigned lifetimes = 0; lifetimes < 16; ++lifetimes) {
        for (const std::uint32_t window : {7U, 64U, 100U}) {
            SCOPED_TRACE(fmt::format("lifetimes {}, window {}", lifetimes, window));
            World world(make_schema(lifetimes, window, window));
            world.pool.set_poison(std::byte{0xa5});
            ASSERT_OK(world.open());
            ASSERT_OK(world.create("s"));
            Sequence value = Sequence::empty(world.schema);
            std::vector<std::pair<TurnId, std::size_t>> turns;
            std::uint64_t seed = 0;
            for (const std::size_t count : {1U, 62U, 1U, 1U, 64U, 65U, 300U, 3U}) {
                const auto turn = world.commit("s", value, count, ++seed);
                ASSERT_OK(turn.status());
                turns.emplace_back(turn->id, value.position());
            }
            EXPECT_EQ(world.wrong_session("s", value.tokens), "");
            for (const auto& [id, position] : turns) {
                const std::vector<Token> tokens(
                    value.tokens.begin(),
                    value.tokens.begin() + static_cast<std::ptrdiff_t>(position));
                EXPECT_EQ(world.wrong_session("s", tokens, id), "") << "turn " << id;
            }
            EXPECT_EQ(world.wrong_session("s", {}, kNoTurn), "");
        }
    }
}

TEST(Store, TurnsKeepWhatTheyWereGiven) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s", value, 10, 3).status());
    ASSERT_OK(world.commit("s", value, 70, 12).status());
    ASSERT_OK(world.open());
    const auto turns = world.store->turns("s");
    ASSERT_OK(turns.status());
    ASSERT_EQ(turns->size(), 2U);
    EXPECT_EQ((*turns)[0].parent, kNoTurn);
    EXPECT_EQ((*turns)[0].number, 1U);
    EXPECT_EQ((*turns)[0].token_end, 10U);
    EXPECT_EQ((*turns)[1].parent, (*turns)[0].id);
    EXPECT_EQ((*turns)[1].token_begin, 10U);
    EXPECT_EQ((*turns)[1].token_end, 80U);
    EXPECT_EQ((*turns)[1].content, World::new_turn(12).content);
    EXPECT_EQ((*turns)[1].sampler, World::new_turn(12).sampler);
    const auto info = world.store->find("s");
    ASSERT_OK(info.status());
    EXPECT_EQ(info->turns, 2U);
    EXPECT_EQ(info->tokens, 80U);
    EXPECT_EQ(info->model_name, "tiny");
    EXPECT_EQ(info->model_path, "/models/tiny.gguf");
    EXPECT_EQ(info->head, (*turns)[1].id);
    const auto tokens = world.store->tokens("s");
    ASSERT_OK(tokens.status());
    EXPECT_EQ(*tokens, value.tokens);
    const auto loaded = world.store->load("s", world.fingerprint, world.pool);
    ASSERT_OK(loaded.status());
    EXPECT_EQ(loaded->turn.content, World::new_turn(12).content);
    EXPECT_GT(loaded->bytes_read, 0U);
}

TEST(Store, ARestoredValueGoesOn) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        ASSERT_OK(world.commit("s", value, 1 + seed * 17 % 90, seed).status());
        ASSERT_OK(world.open());
        auto loaded = world.store->load("s", world.fingerprint, world.pool);
        ASSERT_OK(loaded.status());
        ASSERT_EQ(loaded->sequence.tokens, value.tokens);
        value = std::move(loaded->sequence);
        ASSERT_EQ(wrong_content(world.schema, value), "");
    }
}

TEST(Store, ALoadedValueCanComeBackToWhereItWas) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s", value, 130, 5).status());
    const auto loaded = world.store->load("s", world.fingerprint, world.pool);
    ASSERT_OK(loaded.status());
    ASSERT_NE(loaded->sequence.sampler, nullptr);
    EXPECT_EQ(*loaded->sequence.sampler, World::new_turn(5).sampler);
    const Sequence next = extend(world.pool, loaded->sequence, make_tokens(300, 6));
    const auto back = state::rollback(world.schema, next, 130);
    ASSERT_OK(back.status());
    EXPECT_EQ(wrong_content(world.schema, *back), "");
    ASSERT_NE(back->sampler, nullptr);
    EXPECT_EQ(*back->sampler, World::new_turn(5).sampler);
}

TEST(Store, MediaPositionsAreRefusedByName) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = extend(world.pool, Sequence::empty(world.schema), make_tokens(10, 1));
    value.extensions.resize(10);
    const auto refused = world.store->commit_turn("s", world.schema, value, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), Code::unimplemented);
    EXPECT_NE(refused.status().to_string().find("media positions"), std::string::npos);
}

TEST(Store, ForksShareAndGoTheirOwnWays) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("a"));
    Sequence a = Sequence::empty(world.schema);
    const auto first = world.commit("a", a, 100, 1);
    ASSERT_OK(first.status());
    const Sequence after_first = a;
    ASSERT_OK(world.commit("a", a, 50, 2).status());
    const std::uint64_t before = segment_bytes(world.directory());

    ASSERT_OK(world.store->fork("a", "b").status());
    const auto c_info = world.store->fork("a", "c", first->id);
    ASSERT_OK(c_info.status());
    EXPECT_EQ(c_info->tokens, 100U);
    ASSERT_OK(world.store->fork("a", "d", kNoTurn).status());
    EXPECT_EQ(segment_bytes(world.directory()), before);

    Sequence b = a;
    Sequence c = after_first;
    ASSERT_OK(world.commit("b", b, 33, 3).status());
    ASSERT_OK(world.commit("c", c, 50, 4).status());
    EXPECT_EQ(world.wrong_session("a", a.tokens), "");
    EXPECT_EQ(world.wrong_session("b", b.tokens), "");
    EXPECT_EQ(world.wrong_session("c", c.tokens), "");
    EXPECT_EQ(world.wrong_session("d", {}), "");

    // Whoever goes takes nothing of the others along.
    ASSERT_OK(world.store->remove("a"));
    EXPECT_EQ(world.store->find("a").status().code(), Code::not_found);
    ASSERT_OK(world.store->collect_garbage().status());
    EXPECT_EQ(world.wrong_session("b", b.tokens), "");
    EXPECT_EQ(world.wrong_session("c", c.tokens), "");

    EXPECT_EQ(world.store->fork("b", "c").status().code(), Code::already_exists);
    EXPECT_EQ(world.store->fork("b", "e", 99).status().code(), Code::not_found);
    const auto c_turns = world.store->turns("c");
    ASSERT_OK(c_turns.status());
    EXPECT_EQ(world.store->fork("b", "e", c_turns->back().id).status().code(), Code::not_found)
        << "a turn of another branch";
}

TEST(Store, RollbackMovesTheNameOnly) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    const auto first = world.commit("s", value, 100, 1);
    ASSERT_OK(first.status());
    const Sequence after_first = value;
    const auto second = world.commit("s", value, 50, 2);
    ASSERT_OK(second.status());

    EXPECT_EQ(world.store->rollback("s", 77).code(), Code::not_found);
    ASSERT_OK(world.store->rollback("s", first->id));
    EXPECT_EQ(world.wrong_session("s", after_first.tokens), "");
    EXPECT_EQ(world.store->rollback("s", second->id).code(), Code::not_found);
    EXPECT_EQ(world.store->load("s", world.fingerprint, world.pool, second->id).status().code(),
              Code::not_found);

    value = after_first;
    const auto other = world.commit("s", value, 20, 3);
    ASSERT_OK(other.status());
    EXPECT_GT(other->id, second->id) << "turn ids are never used again";
    EXPECT_EQ(world.wrong_session("s", value.tokens), "");

    ASSERT_OK(world.store->rollback("s", kNoTurn));
    EXPECT_EQ(world.wrong_session("s", {}), "");
    value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s", value, 5, 4).status());
    EXPECT_EQ(world.wrong_session("s", value.tokens), "");
}

TEST(Store, RenameRemoveAndListByLastUse) {
    World world;
    ASSERT_OK(world.open());
    for (const char* name : {"one", "two", "three"}) ASSERT_OK(world.create(name));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("two", value, 5, 1).status());
    ASSERT_OK(world.store->rename("three", "drei"));
    EXPECT_EQ(world.store->rename("drei", "two").code(), Code::already_exists);
    EXPECT_EQ(world.store->rename("three", "four").code(), Code::not_found);
    const auto names = [&] {
        std::vector<std::string> found;
        const auto list = world.store->list();
        EXPECT_TRUE(list.is_ok());
        for (const auto& info : *list) found.push_back(info.name);
        return found;
    };
    EXPECT_EQ(names(), (std::vector<std::string>{"two", "drei", "one"}));
    ASSERT_OK(world.store->remove("drei"));
    EXPECT_EQ(world.store->remove("drei").code(), Code::not_found);
    ASSERT_OK(world.open());
    EXPECT_EQ(names(), (std::vector<std::string>{"two", "one"}));
    EXPECT_EQ(world.wrong_session("two", value.tokens), "");
}

TEST(Store, RefusalsNameTheCause) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("holiday"));
    EXPECT_EQ(world.create("holiday").code(), Code::already_exists);
    for (const std::string& name :
         {std::string(), std::string(".x"), std::string("a/b"), std::string("a\0b", 3),
          std::string(65, 'a'), std::string("\xc3\xa4")}) {
        EXPECT_EQ(world.create(name).code(), Code::invalid_argument) << name;
        EXPECT_EQ(world.store->find(name).status().code(), Code::invalid_argument);
    }
    const Status missing = world.store->find("holidya").status();
    EXPECT_EQ(missing.code(), Code::not_found);
    EXPECT_NE(missing.to_string().find("'holiday'"), std::string::npos);

    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("holiday", value, 80, 1).status());
    const auto commit = [&](const Schema& schema, const Sequence& sequence) {
        return world.store->commit_turn("holiday", schema, sequence, {}).status();
    };
    EXPECT_EQ(commit(world.schema, value).code(), Code::invalid_argument) << "nothing new";
    Sequence other = extend(world.pool, Sequence::empty(world.schema), make_tokens(90, 9));
    EXPECT_EQ(commit(world.schema, other).code(), Code::conflict);
    Sequence shorter = extend(world.pool, Sequence::empty(world.schema), make_tokens(40, 1));
    EXPECT_EQ(commit(world.schema, shorter).code(), Code::conflict);
    EXPECT_EQ(commit(make_schema(1), value).code(), Code::incompatible);

    const Hash256 stranger = fingerprint_of(2);
    const Status wrong_model = world.store->load("holiday", stranger, world.pool).status();
    EXPECT_EQ(wrong_model.code(), Code::incompatible);
    EXPECT_NE(wrong_model.to_string().find(stranger.hex()), std::string::npos);
    EXPECT_NE(wrong_model.to_string().find(world.fingerprint.hex()), std::string::npos);
    memory::PagePool other_pool(make_schema(3), 1U << 20);
    EXPECT_EQ(world.store->load("holiday", world.fingerprint, other_pool).status().code(),
              Code::incompatible);
    memory::PagePool tiny_pool(world.schema, 100);
    EXPECT_EQ(world.store->load("holiday", world.fingerprint, tiny_pool).status().code(),
              Code::resource_exhausted);
    EXPECT_EQ(tiny_pool.stats().pages_in_use, 0U);
    EXPECT_EQ(world.wrong_session("holiday", value.tokens), "");

    world.options.tenant = "somebody else";
    ASSERT_OK(world.open());
    EXPECT_EQ(world.store->load("holiday", world.fingerprint, world.pool).status().code(),
              Code::incompatible);
}

TEST(Store, ACommitWritesOnlyItsNewRows) {
    World world(make_schema(7));
    std::uint64_t row_bytes = 0;  // of a token, all groups
    for (const Group& group : world.schema.groups) row_bytes += group.row_bytes();
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s", value, 5000, 1).status());
    for (std::uint64_t seed = 2; seed < 6; ++seed) {
        const std::uint64_t before = segment_bytes(world.directory());
        ASSERT_OK(world.commit("s", value, 64, seed).status());
        EXPECT_LE(segment_bytes(world.directory()) - before, 64 * row_bytes * 3 / 2 + 8192);
    }
    EXPECT_EQ(world.wrong_session("s", value.tokens), "");
}

TEST(Store, EqualPrefixesAreStoredOnce) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s0"));
    Sequence first = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s0", first, 4096, 1).status());
    const std::uint64_t one = segment_bytes(world.directory());
    for (int i = 1; i < 8; ++i) {
        const std::string name = fmt::format("s{}", i);
        ASSERT_OK(world.create(name));
        Sequence value = Sequence::empty(world.schema);
        ASSERT_OK(world.commit(name, value, 4096, 1).status());
        ASSERT_OK(world.commit(name, value, 10, 100 + static_cast<std::uint64_t>(i)).status());
        EXPECT_EQ(world.wrong_session(name, value.tokens), "");
    }
    EXPECT_LE(segment_bytes(world.directory()), one * 115 / 100);
}

// The second commit of the same prefix finds the first one's record damaged.
TEST(Store, ASharedRecordIsVerifiedBeforeATurnReliesOnIt) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("a"));
    ASSERT_OK(world.create("b"));
    Sequence a = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("a", a, 200, 1).status());
    world.store.reset();
    const auto file = segment_files(world.directory()).front();
    auto bytes = read_bytes(file);
    bytes[bytes.size() / 2] ^= std::byte{4};
    write_bytes(file, bytes);
    ASSERT_OK(world.open());
    EXPECT_EQ(world.store->load("a", world.fingerprint, world.pool).status().code(),
              Code::corruption);
    Sequence b = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("b", b, 200, 1).status());
    EXPECT_EQ(world.wrong_session("b", b.tokens), "");
    EXPECT_EQ(world.wrong_session("a", a.tokens), "") << "mended by b";
}

TEST(Store, OneOwnerAnyReaders) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s", value, 20, 1).status());

    const auto second = store::Store::open(Env::posix(), world.directory(), world.options);
    EXPECT_EQ(second.status().code(), Code::conflict);
    const pid_t child = fork();
    if (child == 0) {
        const auto opened = store::Store::open(Env::posix(), world.directory(), world.options);
        _exit(opened.status().code() == Code::conflict ? 0 : 1);
    }
    int exit_status = 0;
    ASSERT_EQ(waitpid(child, &exit_status, 0), child);
    EXPECT_EQ(exit_status, 0);

    store::StoreOptions options = world.options;
    options.read_only = true;
    {
        auto reader = store::Store::open(Env::posix(), world.directory(), options);
        ASSERT_OK(reader.status());
        ASSERT_OK(world.commit("s", value, 20, 2).status());
        const auto list = (*reader)->list();
        ASSERT_OK(list.status());
        ASSERT_EQ(list->size(), 1U);
        EXPECT_EQ(list->front().tokens, 40U);
        EXPECT_EQ((*reader)->tokens("s")->size(), 40U);
        EXPECT_EQ((*reader)->remove("s").code(), Code::invalid_argument);
        const auto loaded = (*reader)->load("s", world.fingerprint, world.pool);
        ASSERT_OK(loaded.status());
        EXPECT_EQ(loaded->sequence.tokens, value.tokens);
        EXPECT_EQ(wrong_content(world.schema, loaded->sequence), "");
    }
    world.store.reset();
    auto reader = store::Store::open(Env::posix(), world.directory(), options);
    ASSERT_OK(reader.status());
    EXPECT_EQ((*reader)->turns("s")->size(), 2U);
    const TempDirectory empty;
    EXPECT_EQ(store::Store::open(Env::posix(), empty.path(), options).status().code(),
              Code::not_found);
}

// Each thread has a session of its own; all share the store, the pool and a prefix.
TEST(Store, ManyThreads) {
    World world(make_schema(15, 70, 4));
    world.options.segment_bytes = 200000;
    ASSERT_OK(world.open());
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&world, &failures, t] {
            const std::string name = fmt::format("t{}", t);
            Sequence value = Sequence::empty(world.schema);
            bool is_good = world.create(name).is_ok();
            for (std::uint64_t i = 0; i < 25 && is_good; ++i) {
                const std::uint64_t seed = i < 3 ? i : mix(i, static_cast<std::uint64_t>(t));
                is_good = world.commit(name, value, 1 + seed % 90, seed).is_ok();
                is_good = is_good && world.store->list().is_ok();
                is_good = is_good && (i % 5 != 4 || world.store->collect_garbage().is_ok());
                is_good = is_good && world.wrong_session(name, value.tokens).empty();
            }
            if (!is_good) ++failures;
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
}

TEST(Store, FilesAreTheOwnersAlone) {
    World world;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s", value, 20, 1).status());
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(world.directory())) {
        struct stat st {};
        ASSERT_EQ(stat(entry.path().c_str(), &st), 0);
        EXPECT_EQ(st.st_mode & 0777U, entry.is_directory() ? 0700U : 0600U) << entry.path();
        ++files;
    }
    EXPECT_GE(files, 4U);
}

void run_sql(const std::filesystem::path& path, const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(database);
}

TEST(Store, ANewerVersionIsRefusedByName) {
    World world;
    ASSERT_OK(world.open());
    world.store.reset();
    run_sql(world.directory() / "catalogue.sqlite",
            "UPDATE meta SET value = 'stet 9.9.9' WHERE name = 'writer'; PRAGMA user_version = 7;");
    const Status refused = world.open();
    EXPECT_EQ(refused.code(), Code::incompatible);
    EXPECT_NE(refused.to_string().find("stet 9.9.9"), std::string::npos) << refused.to_string();
    EXPECT_NE(refused.to_string().find("version 7"), std::string::npos) << refused.to_string();
}

// Someone edits the catalogue by hand, or its file decays in a way that SQLite does not notice.
TEST(Store, ChangedRowsAreNoticed) {
    World world;
    const auto catalogue = world.directory() / "catalogue.sqlite";
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("a"));
    ASSERT_OK(world.create("b"));
    Sequence a = Sequence::empty(world.schema);
    Sequence b = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("a", a, 30, 1).status());
    ASSERT_OK(world.commit("b", b, 30, 2).status());
    world.store.reset();
    run_sql(catalogue,
            "UPDATE session SET head = (SELECT head FROM session WHERE name = 'b') "
            "WHERE name = 'a'");
    ASSERT_OK(world.open());
    EXPECT_EQ(world.store->find("a").status().code(), Code::corruption);
    EXPECT_EQ(world.store->load("a", world.fingerprint, world.pool).status().code(),
              Code::corruption);
    EXPECT_EQ(world.wrong_session("b", b.tokens), "");
    EXPECT_EQ(world.store->list()->size(), 2U);
    ASSERT_OK(world.store->remove("a"));
    EXPECT_EQ(world.wrong_session("b", b.tokens), "");

    world.store.reset();
    run_sql(catalogue,
            "DELETE FROM turn_record WHERE turn = 2 AND record = "
            "(SELECT max(record) FROM turn_record)");
    ASSERT_OK(world.open());
    EXPECT_EQ(world.store->collect_garbage().status().code(), Code::corruption);
    EXPECT_EQ(world.wrong_session("b", b.tokens), "") << "nothing was removed";

    world.store.reset();
    run_sql(catalogue, "UPDATE turn SET content = '{}' WHERE id = 2");
    ASSERT_OK(world.open());
    EXPECT_EQ(world.store->turns("b").status().code(), Code::corruption);
}

TEST(Store, AForeignOrLostCatalogueIsNotMadeAnew) {
    World world;
    const auto catalogue = world.directory() / "catalogue.sqlite";
    run_sql(catalogue, "CREATE TABLE other (x)");
    EXPECT_EQ(world.open().code(), Code::corruption);
    const std::string text(5000, 'x');
    write_bytes(catalogue, std::as_bytes(std::span(text)));
    EXPECT_EQ(world.open().code(), Code::corruption);
    std::filesystem::remove(catalogue);
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("s", value, 20, 1).status());
    world.store.reset();
    std::filesystem::rename(catalogue, world.directory() / "aside");
    EXPECT_EQ(world.open().code(), Code::corruption);
    EXPECT_FALSE(std::filesystem::exists(catalogue));
    std::filesystem::rename(world.directory() / "aside", catalogue);
    ASSERT_OK(world.open());
    EXPECT_EQ(world.wrong_session("s", value.tokens), "");
}

TEST(Store, DefaultDirectoryFollowsXdg) {
    setenv("XDG_DATA_HOME", "/data", 1);
    setenv("HOME", "/home/ann", 1);
    EXPECT_EQ(store::default_store_directory(), "/data/stet");
    setenv("XDG_DATA_HOME", "relative", 1);
    EXPECT_EQ(store::default_store_directory(), "/home/ann/.local/share/stet");
    unsetenv("XDG_DATA_HOME");
    EXPECT_EQ(store::default_store_directory(), "/home/ann/.local/share/stet");
}

}  // namespace
}  // namespace stet::store_test
