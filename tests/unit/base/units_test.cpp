#include "base/units.h"

#include <gtest/gtest.h>

namespace stet {
namespace {

TEST(Units, Sizes) {
    EXPECT_EQ(*parse_size("0"), 0U);
    EXPECT_EQ(*parse_size("12345"), 12345U);
    EXPECT_EQ(*parse_size("500M"), 500U << 20);
    EXPECT_EQ(*parse_size("20G"), 20ULL << 30);
    EXPECT_EQ(*parse_size("20GiB"), 20ULL << 30);
    EXPECT_EQ(*parse_size("20GB"), 20'000'000'000U);
    EXPECT_EQ(*parse_size("1.5k"), 1536U);
    EXPECT_EQ(*parse_size("2T"), 2ULL << 40);
    for (const char* wrong :
         {"", "G", "-1", "1X", "1 G", "nan", "inf", "1e300", "9999999999T", "0x10", "1GiBs"}) {
        EXPECT_EQ(parse_size(wrong).status().code(), Code::invalid_argument) << wrong;
    }
}

TEST(Units, Durations) {
    using namespace std::chrono_literals;
    EXPECT_EQ(*parse_duration("90s"), 90s);
    EXPECT_EQ(*parse_duration("15m"), 15min);
    EXPECT_EQ(*parse_duration("12h"), 12h);
    EXPECT_EQ(*parse_duration("30d"), 720h);
    for (const char* wrong : {"", "d", "0d", "-1d", "1", "1w", "1.5h", "99999999999999d"}) {
        EXPECT_EQ(parse_duration(wrong).status().code(), Code::invalid_argument) << wrong;
    }
}

}  // namespace
}  // namespace stet
