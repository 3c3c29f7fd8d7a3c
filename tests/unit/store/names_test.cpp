#include "store/names.h"

#include <gtest/gtest.h>

namespace stet::store {
namespace {

TEST(Names, OnlyPlainOnes) {
    for (const char* name : {"a", "A9", "x.y_z-1", "-", "_", "a..b"}) {
        EXPECT_TRUE(check_name(name).is_ok()) << name;
    }
    EXPECT_TRUE(check_name(std::string(64, 'n')).is_ok());
    for (const std::string& name :
         {std::string(), std::string(65, 'n'), std::string("."), std::string(".."),
          std::string(".a"), std::string("a b"), std::string("a/b"), std::string("a\\b"),
          std::string("a\n"), std::string("\0", 1), std::string("caf\xc3\xa9"), std::string("%"),
          std::string("a:b"), std::string(1 << 20, 'n')}) {
        const Status refused = check_name(name);
        EXPECT_EQ(refused.code(), Code::invalid_argument) << name.substr(0, 80);
        EXPECT_LT(refused.message().size(), 300U);
        EXPECT_EQ(refused.message().find('\n'), std::string_view::npos);
    }
}

TEST(Names, EditDistance) {
    EXPECT_EQ(edit_distance("", ""), 0U);
    EXPECT_EQ(edit_distance("", "abc"), 3U);
    EXPECT_EQ(edit_distance("abc", ""), 3U);
    EXPECT_EQ(edit_distance("abc", "abc"), 0U);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
    EXPECT_EQ(edit_distance("holiday", "holidya"), 2U);
    EXPECT_EQ(edit_distance(std::string(64, 'a'), std::string(64, 'b')), 64U);
    EXPECT_EQ(edit_distance(std::string(500, 'a'), std::string(500, 'a') + "b"), 0U);
}

TEST(Names, CloseOnesClosestFirst) {
    const std::vector<std::string> names = {"work", "works", "word", "holiday", "wrk", "x"};
    EXPECT_EQ(close_names("work", {"holiday", "x"}), std::vector<std::string>());
    EXPECT_EQ(close_names("worq", names), (std::vector<std::string>{"work", "word"}));
    EXPECT_EQ(close_names("holi", names), std::vector<std::string>{"holiday"}) << "a beginning";
    EXPECT_EQ(close_names("wor", names), (std::vector<std::string>{"work", "works", "word"}))
        << "three at most";
}

}  // namespace
}  // namespace stet::store
