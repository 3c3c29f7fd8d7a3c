// A context: what restores bring back, into which contexts they fit, and that a restore that fails
// was never made.
#include "state/context.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "support/fault_env.h"
#include "support/temp_directory.h"
#include "unit/state/context_world.h"

namespace stet::state {
namespace {

using namespace state_test;

// Three sequences: one that is a fork of another and went on, checkpoints, an empty id between.
void fill(World& world) {
    world.feed(0, 700);
    world.feed(0, 324);
    ASSERT_TRUE(world.context.checkpoint(0));
    ASSERT_TRUE(world.context.fork(0, 1));
    world.feed(0, 30, 300);
    world.feed(1, 7, 900);
    world.feed(3, 5, 2000);
    for (const SequenceId id : {0U, 1U, 3U}) world.dress(id);
    ASSERT_TRUE(world.context.checkpoint(1));
}

TEST(Context, RestoresWhatWasSavedByEveryWay) {
    World world(all_lifetimes(70, 4));
    fill(world);
    const Sequence before = world.at(0);
    test::TempDirectory directory;
    const auto path = directory / "state";
    const Snapshot snapshot = world.context.snapshot(0).value();
    const Bytes bytes = world.saved(0);
    ASSERT_TRUE(world.context.save_file(0, Env::posix(), path));
    EXPECT_EQ(std::filesystem::file_size(path), bytes.size());
    Bytes streamed;
    CallbackSink sink([&](std::span<const std::byte> data) {
        streamed.insert(streamed.end(), data.begin(), data.end());
        return Status();
    });
    ASSERT_TRUE(world.context.save(0, sink));
    EXPECT_EQ(streamed, bytes);

    std::size_t read = 0;
    streamed.resize(streamed.size() + 100);  // a stream may go on
    CallbackSource source([&](std::span<std::byte> into) {
        std::memcpy(into.data(), streamed.data() + read, into.size());
        read += into.size();
        return Status();
    });
    const std::vector<std::function<Status()>> ways = {
        [&] { return world.context.restore(2, snapshot); },
        [&] { return world.context.restore(2, bytes); },
        [&] { return world.context.restore(2, source); },
        [&] { return world.context.restore_file(2, Env::posix(), path); },
    };
    for (const auto& way : ways) {
        world.feed(2, 40, 50);
        const Status status = way();
        ASSERT_TRUE(status) << status.to_string();
        EXPECT_EQ(difference(world.schema(), world.at(2), before), "");
        ASSERT_TRUE(world.context.clear(2));
    }
    EXPECT_EQ(read, bytes.size());
    // And they go on from there as if nothing had been.
    ASSERT_TRUE(world.context.restore(2, bytes));
    world.feed(2, 200, 3);
    EXPECT_EQ(first_wrong_row(world.schema(), world.at(2)), "");
    EXPECT_EQ(difference(world.schema(), world.at(0), before), "");
    EXPECT_EQ(world.saved(0), bytes) << "saving again says the same";
}

TEST(Context, ASequenceTakesWhatItsSchemaSays) {
    World world(all_lifetimes(70, 4));
    EXPECT_EQ(world.schema().bytes_at(0), 0U);
    for (const std::size_t tokens : {1U, 2U, 63U, 64U, 65U, 128U, 133U, 134U, 255U, 256U, 500U}) {
        const std::uint64_t position = world.at(0).position();
        world.feed(0, tokens - position);
        EXPECT_EQ(world.schema().bytes_at(tokens), world.context.usage(0)->bytes) << tokens;
    }
}

// Values of another context are copied in: that can fail too.
TEST(Context, ValuesThatFindNoRoomChangeNothing) {
    const Schema schema = all_lifetimes(70, 4);
    World world(schema);
    fill(world);
    const Snapshot one = world.context.snapshot(0).value();
    const ContextSnapshot all = world.context.snapshot_all();
    World small(schema, 4096, 4, world.pool.stats().bytes_in_use / 2);
    small.feed(0, 30, 4);
    small.feed(2, 5, 9);
    const Photo before(small);
    for (const Status& refused : {small.context.restore(2, one), small.context.restore_all(all)}) {
        EXPECT_EQ(refused.code(), Code::resource_exhausted) << refused.to_string();
        EXPECT_EQ(before.difference(), "");
    }
}

TEST(Context, RestoresAllOfIt) {
    World world(all_lifetimes(70, 4));
    fill(world);
    const Bytes bytes = world.saved_all();
    const ContextSnapshot snapshot = world.context.snapshot_all();
    test::TempDirectory directory;
    const auto path = directory / "state";
    ASSERT_TRUE(world.context.save_all_file(Env::posix(), path));
    SpanSource source(bytes);
    World other(all_lifetimes(70, 4), 1100, 6);
    const std::vector<std::function<Status()>> ways = {
        [&] { return other.context.restore_all(bytes); },
        [&] { return other.context.restore_all(snapshot); },
        [&] { return other.context.restore_all(source); },
        [&] { return other.context.restore_all_file(Env::posix(), path); },
    };
    for (const auto& way : ways) {
        other.feed(5, 10);
        other.feed(0, 33);
        const Status status = way();
        ASSERT_TRUE(status) << status.to_string();
        for (const SequenceId id : {0U, 1U, 2U, 3U}) {
            EXPECT_EQ(difference(world.schema(), other.at(id), world.at(id)), "") << id;
        }
        EXPECT_EQ(other.at(5).position(), 0U) << "not part of it";
        EXPECT_EQ(other.pool.stats().pages_in_use, world.pool.stats().pages_in_use)
            << "pages that sequences share are shared again";
        EXPECT_EQ(other.at(0).groups[0].pages[0], other.at(1).groups[0].pages[0]);
    }
    other.feed(0, 30, 77);
    other.feed(1, 30, 78);
    for (const SequenceId id : {0U, 1U, 3U}) {
        EXPECT_EQ(first_wrong_row(other.schema(), other.at(id)), "") << id;
    }
}

TEST(Context, SharedPagesAreWrittenOnce) {
    World world(some_lifetimes(1, 1, 1));
    world.feed(0, 640);
    const std::uint64_t one = world.context.encoded_size_all();
    ASSERT_TRUE(world.context.fork(0, 1));
    const std::uint64_t two = world.context.encoded_size_all();
    EXPECT_LT(two - one, 640 * sizeof(Token) + 200);
}

TEST(Context, EveryPositionAroundEveryBoundary) {
    for (const unsigned lifetimes : {1U, 2U, 4U, 8U, 15U}) {
        const Schema schema = some_lifetimes(lifetimes, 70, 4);
        for (const std::size_t k : {4U, 64U, 70U, 128U, 512U}) {
            for (const std::size_t position : {k - 1, k, k + 1, 2 * k + 1}) {
                World from(schema);
                World to(schema, position + 10, 1);
                from.feed(0, position);
                const Status status = to.context.restore(0, from.saved(0));
                ASSERT_TRUE(status) << status.to_string();
                ASSERT_EQ(difference(schema, from.at(0), to.at(0)), "") << position;
                to.feed(0, 10, 400);
                ASSERT_EQ(first_wrong_row(schema, to.at(0)), "") << position;
            }
        }
    }
}

TEST(Context, CutsForksAndCounts) {
    World world(all_lifetimes(70, 4));
    fill(world);
    const CutResult cut = world.context.truncate(0, 1050).value();
    EXPECT_EQ(cut.position, 1024U);
    EXPECT_EQ(cut.recompute_tokens, 26U);
    EXPECT_EQ(world.context.rollback(0, 1000).code(), Code::unavailable);
    EXPECT_EQ(world.at(0).position(), 1024U);
    ASSERT_TRUE(world.context.rollback(0, 1024));
    const Usage usage = world.context.usage(0).value();
    EXPECT_EQ(usage.position, 1024U);
    EXPECT_EQ(usage.rows, (std::vector<std::uint64_t>{1024, 128, 256, 1}));
    EXPECT_EQ(usage.checkpoints, (std::vector<std::uint64_t>{1024}));
    EXPECT_EQ(usage.pages, 16U + 2 + 4 + 1);
    std::uint64_t bytes = 0;
    const std::array counts = {16U, 2U, 4U, 1U};
    for (std::size_t g = 0; g < 4; ++g) bytes += counts[g] * world.schema().groups[g].page_bytes();
    EXPECT_EQ(usage.bytes, bytes);
    ASSERT_TRUE(world.context.clear(0));
    EXPECT_EQ(world.context.usage(0).value().pages, 0U);
    EXPECT_EQ(first_wrong_row(world.schema(), world.at(1)), "");
}

TEST(Context, RefusesIdsItDoesNotHave) {
    World world(all_lifetimes(70, 4));
    Context& context = world.context;
    const Snapshot snapshot = context.snapshot(0).value();
    const auto is_refused = [](const Status& status) {
        return status.code() == Code::invalid_argument;
    };
    EXPECT_TRUE(is_refused(context.find(4).status()));
    EXPECT_TRUE(is_refused(context.put(4, Sequence::empty(world.schema()))));
    EXPECT_TRUE(is_refused(context.usage(4).status()));
    EXPECT_TRUE(is_refused(context.clear(4)));
    EXPECT_TRUE(is_refused(context.fork(4, 0)));
    EXPECT_TRUE(is_refused(context.fork(0, 4)));
    EXPECT_TRUE(is_refused(context.truncate(4, 0).status()));
    EXPECT_TRUE(is_refused(context.checkpoint(4)));
    EXPECT_TRUE(is_refused(context.rollback(4, 0)));
    EXPECT_TRUE(is_refused(context.snapshot(4).status()));
    EXPECT_TRUE(is_refused(context.restore(4, snapshot)));
    EXPECT_TRUE(is_refused(context.encoded_size(4).status()));
    EXPECT_TRUE(is_refused(context.restore(4, world.saved(0))));
    EXPECT_TRUE(is_refused(context.restore_file(4, Env::posix(), "/nothing")));
    EXPECT_TRUE(is_refused(context.truncate(0, 1).status())) << "past the end";
}

// What keeps state from fitting, each with a code and both sides in the message.
TEST(Context, NamesTheOneCauseOfARefusal) {
    World world(all_lifetimes(70, 4));
    fill(world);
    const Bytes one = world.saved(0);
    const Bytes all = world.saved_all();
    const Snapshot snapshot = world.context.snapshot(0).value();
    struct Case {
        const char* name;
        Code code;
        std::vector<std::string> said;
        Schema schema = all_lifetimes(70, 4);
        std::uint64_t model = 1;
        std::uint64_t tokens_max = 4096;
        std::uint64_t pool_bytes = 1U << 26;
        ElementType k_type = ElementType::f32;
    };
    Schema other_rows = all_lifetimes(70, 4);
    other_rows.groups[0].planes[1] = plane("v", 0, 9);
    std::vector<Case> cases(6);
    cases[0] = {"model", Code::incompatible, {fingerprint_of(1).hex(), fingerprint_of(2).hex()}};
    cases[0].model = 2;
    cases[1] = {"K/V types", Code::incompatible, {"f32/f32", "q8_0/f32"}};
    cases[1].k_type = ElementType::q8_0;
    cases[2] = {"window", Code::incompatible, {"window(70)", "window(71)"}, all_lifetimes(71, 4)};
    cases[3] = {"row", Code::incompatible, {"1 x f32", "9 x f32"}, other_rows};
    cases[4] = {"tokens", Code::resource_exhausted, {"1054", "1053"}};
    cases[4].tokens_max = 1053;
    cases[5] = {"pool", Code::resource_exhausted, {"state memory is full"}};
    cases[5].pool_bytes = 9000;
    for (const Case& c : cases) {
        SCOPED_TRACE(c.name);
        PagePool pool(c.schema, c.pool_bytes);
        Identity identity = identity_of(c.schema, c.model);
        identity.k_type = c.k_type;
        Context context(pool, identity, limits_of(c.tokens_max, 4));
        const std::vector<Status> statuses = {context.restore(0, one), context.restore_all(all)};
        for (const Status& status : statuses) {
            EXPECT_EQ(status.code(), c.code) << status.to_string();
            for (const std::string& word : c.said) {
                EXPECT_NE(status.to_string().find(word), std::string::npos) << status.to_string();
            }
        }
        EXPECT_EQ(context.restore(0, snapshot).code(), c.code);
        EXPECT_EQ(pool.stats().pages_in_use, 0U);
    }
    World narrow(all_lifetimes(70, 4), 4096, 3);
    const Status ids = narrow.context.restore_all(all);
    EXPECT_EQ(ids.code(), Code::resource_exhausted) << ids.to_string();
    EXPECT_NE(ids.to_string().find("id 3"), std::string::npos);
    EXPECT_EQ(narrow.context.restore_all(world.context.snapshot_all()).code(),
              Code::resource_exhausted);
    EXPECT_EQ(world.context.restore(0, all).code(), Code::incompatible);
    EXPECT_EQ(world.context.restore_all(one).code(), Code::incompatible);
}

TEST(Context, FilesAreNamedInRefusalsAndLinksAreNotFollowed) {
    World world(all_lifetimes(70, 4));
    fill(world);
    test::TempDirectory directory;
    EXPECT_EQ(world.context.restore_file(0, Env::posix(), directory / "none").code(),
              Code::not_found);
    const auto path = directory / "state";
    ASSERT_TRUE(world.context.save_file(0, Env::posix(), path));
    std::filesystem::create_symlink(path, directory / "link");
    EXPECT_EQ(world.context.restore_file(0, Env::posix(), directory / "link").code(),
              Code::invalid_argument);
    const auto size = std::filesystem::file_size(path);
    ASSERT_TRUE(world.context.save_file(3, Env::posix(), directory / "link"));
    EXPECT_EQ(std::filesystem::file_size(path), size) << "the link was replaced, not its target";
    EXPECT_FALSE(std::filesystem::is_symlink(directory / "link"));
    std::filesystem::resize_file(path, size - 1);
    const Status cut = world.context.restore_file(0, Env::posix(), path);
    EXPECT_EQ(cut.code(), Code::corruption);
    EXPECT_NE(cut.to_string().find(path.string()), std::string::npos) << cut.to_string();
    EXPECT_NE(cut.to_string().find("cut short"), std::string::npos) << cut.to_string();
}

// Every call of a save fails in turn, and the power goes at each: the old file or the new one.
TEST(Context, AFailedSaveLeavesTheOldFile) {
    World world(all_lifetimes(70, 4));
    fill(world);
    const Bytes old_bytes = world.saved(3);
    const Bytes new_bytes = world.saved(1);
    bool is_done = false;
    for (std::uint64_t call = 0; !is_done; ++call) {
        test::TempDirectory directory;
        test::FaultEnv env;
        ASSERT_TRUE(world.context.save_file(3, env, directory / "state"));
        env.cut_power_at(call);
        const auto saved = world.context.save_file(1, env, directory / "state");
        is_done = !env.has_cut_power();
        ASSERT_EQ(saved.is_ok(), is_done);
        env.crash(call);
        const Bytes found = read_file(env, directory / "state", 1U << 20).value();
        ASSERT_TRUE(found == new_bytes || (!is_done && found == old_bytes)) << call;
        ASSERT_LT(call, 100U);
    }
}

TEST(Context, PutTakesOnlyPagesOfItsPool) {
    World world(all_lifetimes(70, 4));
    World other(all_lifetimes(70, 4));
    other.feed(0, 10);
    EXPECT_EQ(world.context.put(0, other.at(0)).code(), Code::invalid_argument);
    Sequence broken = other.at(0);
    broken.tokens.pop_back();
    EXPECT_EQ(other.context.put(0, broken).code(), Code::internal);
    EXPECT_EQ(other.context.put(0, extended(other.pool, other.at(0), some_tokens(4087))).code(),
              Code::resource_exhausted);
    EXPECT_EQ(other.at(0).position(), 10U);
}

TEST(Context, SmallBuffersAreRefusedWithTheSizeThatIsNeeded) {
    World world(all_lifetimes(70, 4));
    fill(world);
    Bytes buffer(world.saved(0).size() - 1);
    const auto refused = world.context.save(0, buffer);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), Code::resource_exhausted);
    EXPECT_NE(refused.status().to_string().find(std::to_string(buffer.size() + 1)),
              std::string::npos);
    EXPECT_EQ(buffer, Bytes(buffer.size())) << "nothing was written";
}

TEST(Context, SamplerStateAndVocabularyAreCheckedBeforeTheSwap) {
    const Schema schema = all_lifetimes(70, 4);
    World world(schema);
    world.feed(0, 10);
    world.dress(0);
    const Bytes bytes = world.saved(0);
    const Snapshot snapshot = world.context.snapshot(0).value();
    Limits limits = limits_of(100, 1);
    limits.check_sampler = [](std::span<const std::byte>) {
        return Status(Code::corruption, "not a sampler");
    };
    Context picky(world.pool, identity_of(schema), limits);
    EXPECT_EQ(picky.restore(0, bytes).message(), "not a sampler");
    EXPECT_EQ(picky.restore(0, snapshot).message(), "not a sampler");
    limits.check_sampler = {};
    for (const auto& [vocabulary, code] :
         {std::pair{10U, Code::corruption}, {11U, Code::corruption}, {12U, Code::ok}}) {
        limits.vocabulary = vocabulary;
        Context context(world.pool, identity_of(schema), limits);
        EXPECT_EQ(context.restore(0, bytes).code(), code) << vocabulary;
    }
}

TEST(Context, AModelWithoutMemoryHasAHistory) {
    World world(Schema{});
    world.feed(0, 100);
    World other(Schema{});
    ASSERT_TRUE(other.context.restore(0, world.saved(0)));
    EXPECT_EQ(other.at(0).tokens, world.at(0).tokens);
    EXPECT_EQ(other.context.truncate(0, 50).value().position, 50U);
}

}  // namespace
}  // namespace stet::state
