// What a turn costs: bytes written by all that writes (segments and SQLite's log), and syncs.

#include "support/env_vfs.h"
#include "support/fault_env.h"
#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

constexpr std::size_t kTurnTokens = 64;
constexpr std::uint64_t kSlackBytes = 8192;

// 2 KiB a token, a tenth of what a model of 135 million parameters has: so SQLite's share shows.
Schema schema_of(bool is_recurrent) {
    Schema schema;
    schema.groups.push_back(
        {"attention",
         Lifetime::tokens,
         0,
         {make_plane("k", 0, ElementType::f16, 512), make_plane("v", 0, ElementType::f16, 512)}});
    if (is_recurrent) {
        schema.groups.push_back(
            {"recurrent", Lifetime::fixed, 0, {make_plane("state", 1, ElementType::f32, 4096)}});
    }
    return schema;
}

class CommitCost : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Tokens, CommitCost, testing::Values(512, 2048, 8192),
                         testing::PrintToStringParamName());

// The same however long the conversation is.
TEST_P(CommitCost, IsThatOfTheNewTokens) {
    for (const bool is_recurrent : {false, true}) {
        test::FaultEnv env;
        test::EnvVfs vfs(env);
        World world(schema_of(is_recurrent), env);
        ASSERT_TRUE(world.open().is_ok());
        ASSERT_TRUE(world.create("s").is_ok());
        Sequence value = Sequence::empty(world.schema);
        ASSERT_TRUE(world.commit("s", value, GetParam(), 1).is_ok());
        const std::uint64_t rows_bytes = kTurnTokens * world.schema.groups[0].row_bytes();
        const std::uint64_t block_bytes = is_recurrent ? world.schema.groups[1].page_bytes() : 0;
        for (std::uint64_t seed = 2; seed < 42; ++seed) {
            env.reset_calls();
            ASSERT_TRUE(world.commit("s", value, kTurnTokens, seed).is_ok());
            EXPECT_LE(env.bytes_written(), rows_bytes * 3 / 2 + block_bytes + kSlackBytes)
                << "turn " << seed;
            EXPECT_LE(env.calls(test::kSync), 2U) << "turn " << seed;
        }
    }
}

}  // namespace
}  // namespace stet::store_test
