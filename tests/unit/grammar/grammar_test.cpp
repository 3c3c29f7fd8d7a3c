// Sources, what they allow, and what strangers may try with them.
#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include "grammar/begin.h"
#include "grammar/source.h"
#include "unit/grammar/grammar_support.h"

namespace stet::grammar {
namespace {

Source schema(std::string text) {
    return {Kind::json_schema, std::move(text)};
}

Source gbnf(std::string text) {
    return {Kind::gbnf, std::move(text)};
}

void expect_refused(Compiler& compiler, const Source& source, std::string_view why) {
    const auto grammar = compiler.compile(source);
    ASSERT_FALSE(grammar) << source.text.substr(0, 200);
    EXPECT_EQ(grammar.status().code(), Code::invalid_argument);
    const std::string line = grammar.status().to_string();
    EXPECT_NE(line.find(why), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
}

TEST(Grammar, ASchemaAllowsWhatItSays) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    const Source source = schema(R"({"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]})");
    EXPECT_TRUE(allows(compiler, source, R"({"name": "Ann", "age": 7})"));
    EXPECT_TRUE(allows(compiler, source, "{\"name\":\"A\\u00e9\",\n  \"age\": -70}"));
    EXPECT_FALSE(allows(compiler, source, R"({"name": "Ann"})"));
    EXPECT_FALSE(allows(compiler, source, R"({"name": "Ann", "age": "7"})"));
    EXPECT_FALSE(allows(compiler, source, R"({"name": "Ann", "age": 7, "more": 1})"));
    EXPECT_FALSE(allows(compiler, source, "Ann is 7"));
}

TEST(Grammar, WhatASchemaIsSilentAboutIsOpen) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    EXPECT_TRUE(allows(compiler, any_json_object(), R"({"a": [1, {"b": null}], "c": "d"})"));
    EXPECT_FALSE(allows(compiler, any_json_object(), "[1]"));
    EXPECT_TRUE(allows(compiler, schema(R"({"type": "array"})"), R"([1, "a", {}])"));
}

TEST(Grammar, GbnfOfTheKindThatClientsSend) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    const Source list =
        gbnf("# a list\nroot ::= (item \"\\n\"){1,3}\nitem ::= \"- \" [a-z ]+ |\n  \"* \" .\n");
    EXPECT_TRUE(allows(compiler, list, "- red\n* \xC3\xA9\n"));
    EXPECT_FALSE(allows(compiler, list, "- red"));
    EXPECT_FALSE(allows(compiler, list, "- a\n- b\n- c\n- d\n"));
}

TEST(Grammar, AnEndIsPossibleOnlyWhereTheGrammarIsComplete) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    const auto matcher = matcher_of(compiler, gbnf("root ::= \"yes\" \" sir\"?"));
    ASSERT_NE(matcher, nullptr);
    EXPECT_FALSE(may_end(*matcher));
    EXPECT_TRUE(passes(*matcher, "yes"));
    EXPECT_TRUE(may_end(*matcher));
    EXPECT_TRUE(passes(*matcher, " sir"));
    const std::vector<float> logits(vocabulary(), 0.0F);
    const auto mask = matcher->mask(logits);
    ASSERT_TRUE(mask);
    for (std::size_t i = 0; const float logit : *mask) {
        const auto token = static_cast<Token>(i++);
        EXPECT_EQ(!std::isinf(logit), tokenizer()->is_end_of_generation(token)) << token;
    }
}

TEST(Grammar, OneCompiledIsFoundAgain) {
    STET_NEED_TOKENIZER();
    Limits limits;
    limits.cache_count = 2;
    Compiler compiler(*tokenizer(), vocabulary(), limits);
    const std::vector<Source> sources = {gbnf("root ::= \"a\""), gbnf("root ::= \"b\""),
                                         gbnf("root ::= \"c\"")};
    EXPECT_EQ(compiler.find(sources[0]), nullptr);
    for (const Source& source : sources) ASSERT_TRUE(compiler.compile(source));
    EXPECT_EQ(compiler.find(sources[0]), nullptr) << "more are kept than the bound says";
    const auto found = compiler.find(sources[2]);
    EXPECT_NE(found, nullptr);
    EXPECT_EQ(*compiler.compile(sources[2]), found);
}

TEST(Grammar, WhatCantBeEnforcedIsRefused) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    expect_refused(compiler, gbnf("root ::= \"a"), "line 1");
    expect_refused(compiler, gbnf("root ::= other"), "other");
    expect_refused(compiler, gbnf("start ::= \"a\""), "root");
    expect_refused(compiler, gbnf(""), "root");
}

TEST(Grammar, ReasoningIsFreeAndTheAnswerIsNot) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    Begin begin;
    begin.after = {"</think>"};
    const auto matcher = matcher_of(compiler, gbnf("root ::= \"yes\" | \"no\""), begin);
    ASSERT_NE(matcher, nullptr);
    EXPECT_FALSE(may_end(*matcher)) << "an answer must come";
    EXPECT_TRUE(passes(*matcher, "well, well {\"a\": 1}\n</think>\n\n"));
    EXPECT_FALSE(may_end(*matcher));
    EXPECT_TRUE(passes(*matcher, "yes"));
    EXPECT_TRUE(matcher->is_complete());
    EXPECT_TRUE(may_end(*matcher));
}

TEST(Grammar, AModelMayBeginToReason) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    Begin begin;
    begin.opening = tokens_of("#").front();
    begin.opened_until = "##";
    const Source source = gbnf("root ::= \"yes\"");
    const auto direct = matcher_of(compiler, source, begin);
    EXPECT_TRUE(passes(*direct, "yes"));
    EXPECT_FALSE(passes(*direct, "#")) << "only at the beginning";
    const auto reasoned = matcher_of(compiler, source, begin);
    EXPECT_TRUE(passes(*reasoned, "# hm ##\nyes"));
    EXPECT_TRUE(reasoned->is_complete());
}

TEST(Grammar, WhereAnswersBegin) {
    STET_NEED_TOKENIZER();
    const auto begin_of = [](std::string_view format, std::string_view prompt) {
        return begin_of_answer(text::chat_options_of(*text::find_chat_format(format), prompt, ""),
                               *tokenizer());
    };
    EXPECT_EQ(begin_of("hermes", "<think>\n")->after, std::vector<std::string>{"</think>"});
    EXPECT_TRUE(begin_of("hermes", "assistant\n")->after.empty());
    EXPECT_FALSE(begin_of("gpt-oss", "<|start|>assistant")->after.empty());
    EXPECT_EQ(begin_of("functionary-3.2", ">>>").status().code(), Code::invalid_argument);
}

TEST(Grammar, DotsOfGbnfOutsideOfLiterals) {
    EXPECT_EQ(plain_gbnf("a ::= . \".\" [.] # .\n"), "a ::= [\\x01-\\U0010FFFF] \".\" [.] # .\n");
    EXPECT_EQ(plain_gbnf("a.b ::= c.d"), "a.b ::= c.d");
}

}  // namespace
}  // namespace stet::grammar
