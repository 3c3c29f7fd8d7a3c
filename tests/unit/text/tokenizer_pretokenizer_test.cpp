#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/pretokenizer_rules.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

using Words = std::vector<std::string>;

PreTokenizer make(std::string_view name) {
    auto made = PreTokenizer::make(name);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return std::move(made).value();
}

Words words_of(const PreTokenizer& pre, std::string_view text) {
    Words words;
    PreTokenizer::Scratch scratch;
    pre.for_each_word(text, scratch, [&](std::string_view word) { words.emplace_back(word); });
    return words;
}

Words words_of(std::string_view name, std::string_view text) {
    return words_of(make(name), text);
}

TEST(PreTokenizer, EveryNameLeadsToAFamilyAndNoFamilyIsIdle) {
    for (const PreFamily& family : pre_families()) {
        const auto names = pre_names();
        EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const PreName& name) {
            return name.family == family.name;
        })) << family.name;
    }
    EXPECT_EQ(pre_names().size(), 92U);
    for (const PreName& name : pre_names()) EXPECT_TRUE(PreTokenizer::make(name.name).is_ok());
}

TEST(PreTokenizer, NamesWhatItKnowsWhenItDoesNot) {
    const auto unknown = PreTokenizer::make("llama9");
    ASSERT_FALSE(unknown.is_ok());
    EXPECT_EQ(unknown.status().code(), Code::unimplemented);
    EXPECT_NE(unknown.status().message().find("\"llama9\""), std::string::npos);
    EXPECT_NE(unknown.status().message().find("llama-bpe"), std::string::npos);
    EXPECT_NE(unknown.status().message().find("deepseek-v3"), std::string::npos);
}

TEST(PreTokenizer, WordsCoverTheTextInEveryFamily) {
    const std::string_view parts[] = {"a",
                                      "Z",
                                      "it's",
                                      "I'LL",
                                      " ",
                                      "  ",
                                      "\t",
                                      "\n",
                                      "\r\n",
                                      "1",
                                      "23",
                                      "4567",
                                      ".",
                                      "!?",
                                      "<|",
                                      "\xC3\xA9",
                                      "e\xCC\x81",
                                      "\xE4\xBD\xA0",
                                      "\xE3\x81\x82",
                                      "\xED\x95\x9C",
                                      "\xC2\xA0",
                                      "\xE3\x80\x80",
                                      "\xF0\x9F\x98\x80",
                                      "\xE2\x80\x8D",
                                      "\xEF\xBC\x81",
                                      "\xD9\xA3",
                                      "\xC2\xBD",
                                      "<sentinel:1>",
                                      "IMGIMGABZ",
                                      "\xE1\xA0\x8E"};
    for (const PreFamily& family : pre_families()) {
        const auto names = pre_names();
        const auto name = std::find_if(names.begin(), names.end(), [&](const PreName& each) {
            return each.family == family.name;
        });
        const PreTokenizer pre = make(name->name);
        rc::check(std::string(family.name), [&] {
            std::string text;
            for (const std::size_t i : *rc::gen::container<std::vector<std::size_t>>(
                     rc::gen::inRange<std::size_t>(0, std::size(parts)))) {
                text += parts[i];
            }
            std::string joined;
            for (const std::string& word : words_of(pre, text)) {
                RC_ASSERT(!word.empty());
                RC_ASSERT(utf8_valid_prefix(word) == word.size());
                joined += word;
            }
            RC_ASSERT(joined == text);
        });
    }
}

TEST(PreTokenizer, SplitsAsTheModelsDo) {
    EXPECT_EQ(words_of("gpt-2", "Hello  world's 123\n\n x"),
              (Words{"Hello", " ", " world", "'s", " 123", "\n\n", " x"}));
    EXPECT_EQ(words_of("llama-bpe", "Hello  world'S 12345.\n\n x"),
              (Words{"Hello", " ", " world", "'S", " ", "123", "45", ".\n\n", " x"}));
    EXPECT_EQ(words_of("qwen2", "a12 b"), (Words{"a", "1", "2", " b"}));
    EXPECT_EQ(words_of("qwen35",
                       "e\xCC\x81"
                       "a"),
              (Words{"e\xCC\x81"
                     "a"}));
    EXPECT_EQ(words_of("qwen2",
                       "e\xCC\x81"
                       "a"),
              (Words{"e",
                     "\xCC\x81"
                     "a"}));
    EXPECT_EQ(words_of("smollm", "a 12"), (Words{"a", " ", "1", "2"}));
    EXPECT_EQ(words_of("gpt-4o", "HelloWorld don't path/\n"),
              (Words{"Hello", "World", " don't", " path", "/\n"}));
    EXPECT_EQ(words_of("tekken", "HelloWorld don't 12"),
              (Words{"Hello", "World", " don", "'t", " ", "1", "2"}));
    EXPECT_EQ(words_of("gemma4", "a b\n\nc"), (Words{"a b", "\n\n", "c"}));
    EXPECT_EQ(words_of("bloom", "Hi, you (there)"), (Words{"Hi", ",", " you", " (", "there", ")"}));
    EXPECT_EQ(words_of("deepseek-v3", "1234 _abc \xE4\xBD\xA0\xE5\xA5\xBDz"),
              (Words{"123", "4", " _", "abc", " ", "\xE4\xBD\xA0\xE5\xA5\xBD", "z"}));
    EXPECT_EQ(words_of("kimi-k2", "\xE4\xBD\xA0\xE5\xA5\xBDHello's"),
              (Words{"\xE4\xBD\xA0\xE5\xA5\xBD", "Hello's"}));
    EXPECT_EQ(words_of("exaone-moe", "a b cd 1"), (Words{"a b cd", " ", "1"}));
    EXPECT_EQ(words_of("chameleon", "IMGIMGABZ."), (Words{"IMGIMGABZ", "."}));
    EXPECT_EQ(words_of("deepseek-llm", "a  b   "), (Words{"a", " ", " b", "   "}));
}

TEST(PreTokenizer, GroupsDigitsFromTheRight) {
    EXPECT_EQ(words_of("afmoe", "x1234567y"), (Words{"x", "1", "234", "567", "y"}));
    EXPECT_EQ(words_of("afmoe", "123"), (Words{"123"}));
    EXPECT_EQ(words_of("tiny_aya", "1234567"), (Words{"1", "234", "567"}));
    // No boundary follows the run: the next stage takes three digits at a time from the left.
    EXPECT_EQ(words_of("tiny_aya", "1234x"), (Words{"123", "4", "x"}));
    EXPECT_EQ(words_of("superbpe", "a1234"), (Words{"a", "1", "234"}));
    EXPECT_EQ(words_of("superbpe", "123456"), (Words{"123", "456"}));
}

TEST(PreTokenizer, CutsLongSpacesIntoPowersOfTwo) {
    std::vector<std::size_t> widths;
    for (const std::string& word : words_of("jais-2", std::string(512 * 2 + 7, ' ') + "\n")) {
        widths.push_back(word.size());
    }
    EXPECT_EQ(widths, (std::vector<std::size_t>{1032}));  // up to a newline it is one word
    widths.clear();
    for (const std::string& word : words_of("jais-2", std::string(512 * 2 + 8, ' ') + "x")) {
        widths.push_back(word.size());
    }
    EXPECT_EQ(widths, (std::vector<std::size_t>{512, 512, 4, 2, 1, 2}));
}

// What makes patterns backtrack, in every family. It would take very long if one of them were
// quadratic.
TEST(PreTokenizer, TakesLinearTimeOnHostileText) {
    const auto repeat = [](std::string_view part) {
        std::string text;
        while (text.size() < (1U << 18)) text += part;
        return text;
    };
    const std::string texts[] = {repeat("a"),
                                 repeat("A"),
                                 repeat(" "),
                                 repeat("\n"),
                                 repeat("\r\n"),
                                 repeat("1"),
                                 repeat("!"),
                                 repeat("'"),
                                 repeat("\xCC\x81"),
                                 repeat("a\xCC\x81\xCC\xA3"),
                                 repeat("\xE4\xBD\xA0"),
                                 repeat("a "),
                                 repeat(" ") + "x",
                                 repeat("\xC2\xA0"),
                                 repeat("   \n"),
                                 repeat("<sentinel:"),
                                 repeat("IMGIMGA"),
                                 repeat("1\xC2\xBD")};
    for (const PreFamily& family : pre_families()) {
        const auto names = pre_names();
        const auto name = std::find_if(names.begin(), names.end(), [&](const PreName& each) {
            return each.family == family.name;
        });
        const PreTokenizer pre = make(name->name);
        PreTokenizer::Scratch scratch;
        for (const std::string& text : texts) {
            std::size_t covered = 0;
            pre.for_each_word(text, scratch,
                              [&](std::string_view word) { covered += word.size(); });
            EXPECT_EQ(covered, text.size()) << family.name;
        }
    }
}

TEST(Matcher, GivesTheRestAsOnePieceWhenALimitIsHit) {
    // Exponential on purpose: no pattern of ours is.
    auto pattern = Pattern::compile("(a+)+$|b");
    ASSERT_TRUE(pattern.is_ok());
    Matcher matcher;
    std::vector<std::uint32_t> ends;
    const std::string text = "b" + std::string(40, 'a') + "c";
    matcher.split(*pattern, text, ends);
    EXPECT_EQ(ends, (std::vector<std::uint32_t>{1, 42}));
}

TEST(Matcher, GrowsItsStack) {
    auto pattern = Pattern::compile("(?:a|b(?=a)|(c))+d");  // needs a frame a repetition
    ASSERT_TRUE(pattern.is_ok());
    Matcher matcher;
    std::vector<std::uint32_t> ends;
    const std::string text = std::string(200'000, 'a') + "d!";
    matcher.split(*pattern, text, ends);
    EXPECT_EQ(ends, (std::vector<std::uint32_t>{200'001, 200'002}));
}

TEST(Pattern, SaysWhereItDoesNotCompile) {
    const auto pattern = Pattern::compile("(a");
    ASSERT_FALSE(pattern.is_ok());
    EXPECT_EQ(pattern.status().code(), Code::internal);
}

}  // namespace
}  // namespace stet::text
