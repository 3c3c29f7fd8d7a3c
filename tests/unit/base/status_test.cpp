#include "stet/status.h"

#include <gtest/gtest.h>

#include <set>

#include "base/try.h"

namespace stet {
namespace {

constexpr int kCodes = static_cast<int>(Code::internal) + 1;

TEST(Status, OkIsOk) {
    EXPECT_TRUE(Status().is_ok());
    EXPECT_TRUE(Status(Code::ok, "ignored").is_ok());
    EXPECT_EQ(Status().to_string(), "ok");
    EXPECT_TRUE(Status().with_context("x").is_ok());
}

TEST(Status, ContextKeepsTheCodeAndTheCause) {
    const Status inner(Code::corruption, "page 3: checksum");
    const Status outer = inner.with_context("session a").with_context("restore");
    EXPECT_EQ(outer.code(), Code::corruption);
    EXPECT_EQ(outer.to_string(), "restore: session a: page 3: checksum");
    EXPECT_EQ(outer.message(), "restore");
    EXPECT_EQ(outer.cause()->message(), "session a");
}

TEST(Status, EveryCodeHasItsRow) {
    std::set<std::string_view> names;
    std::set<int> exits;
    for (int i = 0; i < kCodes; ++i) {
        const Code code{static_cast<std::uint8_t>(i)};
        names.insert(code_name(code));
        exits.insert(exit_code(code));
        EXPECT_EQ(http_status(code) == 200, code == Code::ok);
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(kCodes));
    EXPECT_EQ(exits.size(), static_cast<std::size_t>(kCodes));  // scripts can tell them apart
    EXPECT_EQ(code_name(Code::internal), "internal");
    EXPECT_EQ(exit_code(Code::ok), 0);
    EXPECT_EQ(http_status(Code::not_found), 404);
}

Result<int> half(int value) {
    if (value % 2 != 0) return Status(Code::invalid_argument, "odd");
    return value / 2;
}

Result<int> quarter(int value) {
    STET_ASSIGN(const int once, half(value));
    STET_ASSIGN(const int twice, half(once));
    return twice;
}

Status check_quarter(int value) {
    STET_TRY(quarter(value).status());
    return {};
}

TEST(Result, PassesValuesAndFailuresOn) {
    EXPECT_EQ(*quarter(12), 3);
    EXPECT_EQ(quarter(6).status().message(), "odd");
    EXPECT_TRUE(check_quarter(4).is_ok());
    EXPECT_EQ(check_quarter(1).code(), Code::invalid_argument);
}

TEST(Result, MadeFromAnOkStatusIsAnInternalError) {
    EXPECT_EQ(Result<int>(Status()).status().code(), Code::internal);
}

}  // namespace
}  // namespace stet
