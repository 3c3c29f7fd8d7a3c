// The small parts of the server: JSON fields, targets, keys, reuse of kept sequences.
#include <gtest/gtest.h>

#include "server/http_text.h"
#include "server/json.h"
#include "server/kept.h"
#include "server/keys.h"

namespace stet::server {
namespace {

TEST(Json, DepthIsBounded) {
    const auto nested = [](std::size_t depth) {
        return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
    };
    EXPECT_TRUE(parse_object(nested(kJsonDepthMax)).is_ok());
    EXPECT_EQ(parse_object(nested(kJsonDepthMax + 1)).status().code(), Code::invalid_argument);
    EXPECT_TRUE(parse_object("{\"a\":\"" + std::string(1000, '[') + "\"}").is_ok());
    EXPECT_FALSE(parse_object(std::string(1U << 20U, '{')).is_ok());
}

TEST(Json, FirstMistakeWins) {
    const auto json = parse_object(R"({"a": 3, "b": "x", "c": 1.5, "d": 16.0, "e": 1e300})");
    ASSERT_TRUE(json.is_ok());
    Fields good(*json);
    std::int64_t whole = 0;
    good.integer("d", whole, 0, 100);
    good.integer("missing", whole, 0, 1);
    EXPECT_TRUE(good.status().is_ok());
    EXPECT_EQ(whole, 16);
    for (const auto* name : {"b", "c", "e"}) {
        Fields bad(*json);
        bad.integer(name, whole, 0, 100);
        float number = 0;
        bad.number("b", number, 0, 1);
        EXPECT_NE(bad.status().message().find(name), std::string_view::npos) << name;
        EXPECT_EQ(whole, 16);
    }
}

TEST(Target, IsTakenApart) {
    Request request;
    split_target("/slots/%31?action=save&x=a%20b+c&flag", request);
    EXPECT_EQ(request.path, "/slots/1");
    EXPECT_EQ(request.query_value("action"), "save");
    EXPECT_EQ(request.query_value("x"), "a b c");
    EXPECT_EQ(request.query_value("flag"), "");
    Request odd;
    split_target("/%zz%4", odd);
    EXPECT_EQ(odd.path, "/%zz%4");
}

TEST(Keys, TenantsAreKeys) {
    const Keys keys("one, two\nthree");
    const auto tenant = [&](std::string_view name, std::string_view value) {
        Request request;
        request.headers = {{std::string(name), std::string(value)}};
        return keys.tenant_of(request);
    };
    EXPECT_FALSE(tenant("x-api-key", "").has_value());
    EXPECT_FALSE(tenant("x-api-key", "on").has_value());
    EXPECT_FALSE(tenant("authorization", "one").has_value());
    EXPECT_EQ(tenant("authorization", "Bearer one"), tenant("x-api-key", "one"));
    EXPECT_NE(tenant("x-api-key", "one"), tenant("x-api-key", "two"));
    EXPECT_TRUE(tenant("authorization", "bearer three").has_value());
    EXPECT_EQ(keys.tenants().size(), 3U);
    EXPECT_EQ(Keys("").tenants(), std::vector<std::string>{""});
}

class Kept : public testing::Test {
  protected:
    // A model without memory: only tokens count.
    static state::Sequence sequence(std::vector<Token> tokens) {
        state::Sequence value;
        value.tokens = std::move(tokens);
        return value;
    }
    memory::Schema schema_;
    KeptSequences kept_{schema_, 3};
    const std::vector<Token> prompt_{1, 2, 3, 4};
};

TEST_F(Kept, TheLastTokenIsAlwaysComputed) {
    kept_.add("a", sequence({1, 2, 3, 4, 5}));
    EXPECT_EQ(kept_.find("a", prompt_).prefix.position, 3U);
    EXPECT_EQ(common_prefix(prompt_, std::vector<Token>{}), 0U);
}

TEST_F(Kept, ATenantSeesOnlyItsOwn) {
    kept_.add("a", sequence({1, 2, 3, 4}));
    EXPECT_EQ(kept_.find("b", prompt_).kept, nullptr);
    EXPECT_EQ(kept_.find("b", prompt_).prefix.matched, 0U);
}

TEST_F(Kept, LongerReplacesWhatItBeginsWith) {
    kept_.add("a", sequence({1, 2}));
    kept_.add("b", sequence({1, 2}));
    kept_.add("a", sequence({1, 2, 3}));
    EXPECT_EQ(kept_.size(), 2U);
}

TEST_F(Kept, TheOldestGoes) {
    for (Token first = 10; first < 13; ++first) kept_.add("a", sequence({first, 2, 3}));
    EXPECT_NE(kept_.find("a", std::vector<Token>{10, 2, 9}).kept, nullptr);  // used just now
    kept_.add("a", sequence({20, 2}));
    EXPECT_EQ(kept_.size(), 3U);
    EXPECT_NE(kept_.find("a", std::vector<Token>{10, 2, 9}).kept, nullptr);
    EXPECT_EQ(kept_.find("a", std::vector<Token>{11, 2, 9}).kept, nullptr);
}

}  // namespace
}  // namespace stet::server
