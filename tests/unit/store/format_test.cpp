// Files of every format version that was ever released open for ever. Their rows are a function of
// their tokens (store_world.h), so they need no second copy to be compared with.
//
// STET_WRITE_FORMATS=DIR writes the files of the current version there.
#include <sqlite3.h>

#include <cstdlib>

#include "base/try.h"
#include "store/session_file.h"
#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

namespace fs = std::filesystem;

// As small as every lifetime allows.
Schema fixture_schema() {
    return make_schema(15, 20, 4);
}
constexpr std::array<std::size_t, 3> kTurnTokens = {70, 3, 64};

std::vector<Token> fixture_tokens() {
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < kTurnTokens.size(); ++i) {
        const auto more = make_tokens(kTurnTokens[i], i + 1);
        tokens.insert(tokens.end(), more.begin(), more.end());
    }
    return tokens;
}

Status write_fixtures(const fs::path& folder) {
    World world(fixture_schema());
    STET_TRY(world.open());
    STET_TRY(world.create("s"));
    Sequence value = Sequence::empty(world.schema);
    for (std::size_t i = 0; i < kTurnTokens.size(); ++i) {
        STET_TRY(world.commit("s", value, kTurnTokens[i], i + 1).status());
    }
    STET_ASSIGN(const auto file, store::collect_session(*world.store, "s"));
    for (const bool is_compressed : {false, true}) {
        STET_TRY(replace_file(Env::posix(),
                              folder / (is_compressed ? "session-zstd.stet" : "session.stet"),
                              [&](File& to) -> Status {
                                  state::FileSink sink(to);
                                  return store::write_session(file, is_compressed, sink);
                              }));
    }
    STET_TRY(replace_file(Env::posix(), folder / "sequence.state", [&](File& to) -> Status {
        state::FileSink sink(to);
        return state::encode(file.state.saved, sink).status();
    }));
    world.store.reset();
    fs::remove(world.directory() / "lock");
    fs::copy(world.directory(), folder / "store", fs::copy_options::recursive);
    return {};
}

TEST(Formats, WriteThemWhenAsked) {
    const char* folder = std::getenv("STET_WRITE_FORMATS");
    if (folder == nullptr) return;
    const Status written = write_fixtures(folder);
    EXPECT_TRUE(written.is_ok()) << written.to_string();
}

class Formats : public testing::TestWithParam<std::string> {
  protected:
    fs::path folder() const { return fs::path(STET_TEST_DATA) / "formats" / GetParam(); }
    static void expect_session(World& world, const std::string& name) {
        const auto tokens = fixture_tokens();
        EXPECT_EQ(world.wrong_session(name, tokens), "");
        const auto turns = world.store->turns(name);
        ASSERT_TRUE(turns.is_ok()) << turns.status().to_string();
        ASSERT_EQ(turns->size(), kTurnTokens.size());
        std::ptrdiff_t end = 0;
        for (std::size_t i = 0; i < kTurnTokens.size(); ++i) {
            end += static_cast<std::ptrdiff_t>(kTurnTokens[i]);
            EXPECT_EQ(
                world.wrong_session(name, {tokens.begin(), tokens.begin() + end}, turns->at(i).id),
                "");
            EXPECT_EQ(turns->at(i).content, World::new_turn(i + 1).content);
        }
        // And it goes on.
        auto loaded = world.store->load(name, world.fingerprint, world.pool);
        ASSERT_TRUE(loaded.is_ok());
        Sequence value = std::move(loaded->sequence);
        EXPECT_TRUE(world.commit(name, value, 10, 9).is_ok());
        EXPECT_EQ(world.wrong_session(name, value.tokens), "");
    }
};
INSTANTIATE_TEST_SUITE_P(Versions, Formats, testing::Values("v1"));

TEST_P(Formats, Stores) {
    World world(fixture_schema());
    fs::copy(folder() / "store", world.directory(), fs::copy_options::recursive);
    const Status opened = world.open();
    ASSERT_TRUE(opened.is_ok()) << opened.to_string();
    expect_session(world, "s");
    EXPECT_EQ(world.store->schema("s")->hash(), world.schema.hash());
}

// The first stores had neither pins nor schemas.
TEST_P(Formats, StoresWithoutLaterTables) {
    World world(fixture_schema());
    fs::copy(folder() / "store", world.directory(), fs::copy_options::recursive);
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((world.directory() / "catalogue.sqlite").c_str(), &database), SQLITE_OK);
    EXPECT_EQ(
        sqlite3_exec(database, "DROP TABLE pin; DROP TABLE schema", nullptr, nullptr, nullptr),
        SQLITE_OK);
    sqlite3_close(database);
    const Status opened = world.open();
    ASSERT_TRUE(opened.is_ok()) << opened.to_string();
    EXPECT_EQ(world.store->schema("s").status().code(), Code::not_found);
    expect_session(world, "s");  // whose next turn notes the schema
    EXPECT_EQ(world.store->schema("s")->hash(), world.schema.hash());
}

TEST_P(Formats, SessionFiles) {
    for (const char* name : {"session.stet", "session-zstd.stet"}) {
        World world(fixture_schema());
        ASSERT_TRUE(world.open().is_ok());
        const auto bytes = read_bytes(folder() / name);
        state::SpanSource source(bytes);
        const auto file = store::read_session(source, 1U << 30);
        ASSERT_TRUE(file.is_ok()) << file.status().to_string();
        ASSERT_TRUE(store::import_session(*world.store, *file, "t").is_ok());
        expect_session(world, "t");
    }
}

TEST_P(Formats, States) {
    const auto bytes = read_bytes(folder() / "sequence.state");
    state::SpanSource source(bytes);
    const auto state = state::decode_standalone(source, 1U << 30);
    ASSERT_TRUE(state.is_ok()) << state.status().to_string();
    const Sequence& sequence = state->saved.entries.front().sequence;
    EXPECT_EQ(sequence.tokens, fixture_tokens());
    EXPECT_EQ(wrong_content(fixture_schema(), sequence), "");
}

}  // namespace
}  // namespace stet::store_test
