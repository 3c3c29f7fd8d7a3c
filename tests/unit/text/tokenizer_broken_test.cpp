// Vocabularies that contradict themselves, and texts made to hurt. Nothing may crash; what can't be
// used is answered with a status that names it.
#include <rapidcheck.h>

#include "text/unicode.h"
#include "unit/text/tokenizer_support.h"

namespace stet::text {
namespace {

test::GgufWriter basic(std::string_view model) {
    test::GgufWriter writer;
    writer.set_string("general.architecture", "llama");
    writer.set_string("tokenizer.ggml.model", model);
    return writer;
}

Status status_of(test::GgufWriter& writer) {
    return SmallVocabulary::load_bare(writer).status();
}

TEST(BrokenVocabulary, UnknownModelAndPreAreNamed) {
    auto writer = basic("llama2");
    Status status = status_of(writer);
    EXPECT_EQ(status.code(), Code::unimplemented);
    EXPECT_NE(status.message().find("\"llama2\""), std::string::npos);
    EXPECT_NE(status.message().find("gpt2"), std::string::npos);

    auto bpe = basic("gpt2");
    bpe.set_string("tokenizer.ggml.pre", "no-such-pre");
    bpe.set_strings("tokenizer.ggml.tokens", {"a"}).set_strings("tokenizer.ggml.merges", {});
    status = status_of(bpe);
    EXPECT_EQ(status.code(), Code::unimplemented);
    EXPECT_NE(status.message().find("\"no-such-pre\""), std::string::npos);
}

TEST(BrokenVocabulary, WhatAMessageQuotesStaysInItsLine) {
    const std::string odd = "a\nb\x1b[2J" + std::string(5000, 'x');
    auto model = basic(odd);
    auto pre = basic("gpt2");
    pre.set_string("tokenizer.ggml.pre", odd);
    pre.set_strings("tokenizer.ggml.tokens", {"a"}).set_strings("tokenizer.ggml.merges", {});
    auto merges = basic("gpt2");
    merges.set_strings("tokenizer.ggml.tokens", {"a"}).set_strings("tokenizer.ggml.merges", {odd});
    for (test::GgufWriter* writer : {&model, &pre, &merges}) {
        const Status status = status_of(*writer);
        EXPECT_FALSE(status.is_ok());
        EXPECT_EQ(status.message().find_first_of("\n\x1b"), std::string::npos) << status.message();
        EXPECT_LT(status.message().size(), 3000U);
    }
}

TEST(BrokenVocabulary, MissingModelOrTokens) {
    test::GgufWriter none;
    none.set_string("general.architecture", "llama");
    EXPECT_EQ(status_of(none).code(), Code::corruption);
    for (const char* model : {"llama", "gpt2", "bert", "t5", "rwkv", "plamo2", "gemma4"}) {
        auto writer = basic(model);
        EXPECT_EQ(status_of(writer).code(), Code::corruption) << model;
        auto empty = basic(model);
        empty.set_strings("tokenizer.ggml.tokens", {});
        EXPECT_EQ(status_of(empty).code(), Code::corruption) << model;
        auto numbers = basic(model);
        numbers.set_u32s("tokenizer.ggml.tokens", {1, 2});
        EXPECT_EQ(status_of(numbers).code(), Code::corruption) << model;
    }
}

TEST(BrokenVocabulary, ListsOfOtherLengths) {
    for (const std::size_t count : {0, 1, 3}) {
        auto types = basic("llama");
        types.set_strings("tokenizer.ggml.tokens", {"a", "b"});
        types.set_i32s("tokenizer.ggml.token_type", std::vector<std::int32_t>(count, 1));
        const Status status = status_of(types);
        EXPECT_EQ(status.code(), Code::corruption);
        EXPECT_NE(status.message().find("token_type"), std::string::npos);
        auto scores = basic("llama");
        scores.set_strings("tokenizer.ggml.tokens", {"a", "b"});
        scores.set_f32s("tokenizer.ggml.scores", std::vector<float>(count, 1));
        EXPECT_EQ(status_of(scores).code(), Code::corruption);
    }
    auto texts = basic("llama");
    texts.set_strings("tokenizer.ggml.tokens", {"a", "b"});
    texts.set_strings("tokenizer.ggml.token_type", {"a", "b"});
    EXPECT_EQ(status_of(texts).code(), Code::corruption);
    auto nan = basic("llama");
    nan.set_strings("tokenizer.ggml.tokens", {"a", "b"});
    nan.set_f32s("tokenizer.ggml.scores", {1, std::numeric_limits<float>::quiet_NaN()});
    EXPECT_EQ(status_of(nan).code(), Code::corruption);
}

TEST(BrokenVocabulary, IdsOutOfRange) {
    for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
        auto writer = basic("llama");
        writer.set_strings("tokenizer.ggml.tokens", {"a", "b", "c"});
        writer.set_u32(key, 3);
        const Status status = status_of(writer);
        EXPECT_EQ(status.code(), Code::corruption);
        EXPECT_NE(status.message().find(key), std::string::npos);
        auto none = basic("llama");
        none.set_strings("tokenizer.ggml.tokens", {"a", "b", "c"});
        none.set_u32(key, 0xFFFFFFFF);  // how converters write "none"
        EXPECT_TRUE(status_of(none).is_ok());
    }
    // Real files name padding beyond the vocabulary; it isn't needed.
    auto padding = basic("llama");
    padding.set_strings("tokenizer.ggml.tokens", {"a", "b", "c"});
    padding.set_u32("tokenizer.ggml.padding_token_id", 32000);
    EXPECT_TRUE(status_of(padding).is_ok());
}

TEST(BrokenVocabulary, DefaultIdsBeyondASmallVocabularyAreNone) {
    auto writer = basic("gpt2");
    writer.set_strings("tokenizer.ggml.tokens", {"a"}).set_strings("tokenizer.ggml.merges", {});
    const auto t = SmallVocabulary::load_bare(writer);
    ASSERT_TRUE(t.is_ok()) << t.status().to_string();
    EXPECT_EQ((*t)->bos(), kNoToken);
    EXPECT_EQ((*t)->eos(), kNoToken);
    EXPECT_EQ(encode(**t, "aba", true), (Tokens{0, 0}));  // no token for b: left out
}

TEST(BrokenVocabulary, Merges) {
    auto missing = basic("gpt2");
    missing.set_strings("tokenizer.ggml.tokens", {"a", "b"});
    EXPECT_EQ(status_of(missing).code(), Code::corruption);
    for (const char* merge : {"", "ab", " ", "a"}) {
        auto writer = basic("gpt2");
        writer.set_strings("tokenizer.ggml.tokens", {"a", "b"});
        writer.set_strings("tokenizer.ggml.merges", {merge});
        EXPECT_EQ(status_of(writer).code(), Code::corruption) << "'" << merge << "'";
    }
    auto strange = basic("gpt2");
    strange.set_strings("tokenizer.ggml.tokens", {"a", "b"});
    strange.set_strings("tokenizer.ggml.merges", {"x y", "xy z", "a b", "a ", "  a"});
    const auto t = SmallVocabulary::load_bare(strange);
    ASSERT_TRUE(t.is_ok()) << t.status().to_string();
    EXPECT_EQ(encode(**t, "ab"), (Tokens{0, 1}));
}

TEST(BrokenVocabulary, ByteTokensOfOddForms) {
    SmallVocabulary small("llama");
    small.add("<unk>", kTypeUnknown);
    std::vector<Token> odd;
    for (const char* text : {"<0x-1>", "<0xZZ>", "<0x1>", "<0x123>", "x", "<0x", "<0x0>>"}) {
        odd.push_back(small.add(text, kTypeByte));
    }
    const auto t = small.load();
    ASSERT_TRUE(t.is_ok()) << t.status().to_string();
    for (const Token token : odd) EXPECT_EQ((*t)->piece(token, true), "");
    encode(**t, "any \xC3\xA9 text <0x-1>");
    for (const Token token : {-1, -5, 8, 1 << 30}) {
        EXPECT_EQ((*t)->piece(token, true), "");
        EXPECT_FALSE((*t)->is_control(token));
        EXPECT_FALSE((*t)->is_end_of_generation(token));
    }
    EXPECT_EQ((*t)->decode(Tokens{-1, 99}, true), "");
}

TEST(BrokenVocabulary, Plamo2WithoutByteTokens) {
    auto writer = basic("plamo2");
    writer.set_strings("tokenizer.ggml.tokens", {"a", "b"});
    EXPECT_EQ(status_of(writer).code(), Code::corruption);
}

TEST(BrokenVocabulary, EmptyAndRepeatedTexts) {
    SmallVocabulary small("llama");
    small.add("<unk>", kTypeUnknown);
    const Token empty = small.add("");
    small.add("", kTypeControl);
    const Token first = small.add("a");
    small.add("a");
    const auto t = small.load();
    ASSERT_TRUE(t.is_ok()) << t.status().to_string();
    EXPECT_EQ((*t)->find("[EMPTY_1]"), empty);
    EXPECT_EQ((*t)->find("a"), first);
    EXPECT_EQ((*t)->find(""), kNoToken);
}

TEST(BrokenVocabulary, TokensOfAbsurdLength) {
    auto writer = basic("rwkv");
    writer.set_strings("tokenizer.ggml.tokens", {"a", std::string(70'000, 'a')});
    EXPECT_EQ(status_of(writer).code(), Code::corruption);
    SmallVocabulary longest("rwkv");
    longest.add(std::string(60'000, 'a'));
    const auto t = longest.load();  // a trie that deep needs no stack
    ASSERT_TRUE(t.is_ok());
    EXPECT_EQ(encode(**t, std::string(120'000, 'a')), (Tokens{0, 0}));
}

TEST(BrokenVocabulary, AnyTokensAndTypesInEveryKind) {
    for (const char* model :
         {"llama", "gpt2", "gemma4", "bert", "t5", "rwkv", "hybriddna", "whitespace"}) {
        rc::check(std::string(model), [&] {
            const auto texts =
                *rc::gen::container<std::vector<std::string>>(rc::gen::arbitrary<std::string>());
            std::vector<std::int32_t> types;
            std::vector<float> scores;
            for (std::size_t i = 0; i < texts.size(); ++i) {
                types.push_back(*rc::gen::inRange(0, 8));
                scores.push_back(static_cast<float>(*rc::gen::arbitrary<std::int16_t>()));
            }
            std::vector<std::string> merges;
            for (std::size_t i = 0; i + 1 < texts.size(); ++i)
                merges.push_back(texts[i] + " " + texts[i + 1]);
            auto writer = basic(model);
            writer.set_strings("tokenizer.ggml.tokens", texts);
            writer.set_i32s("tokenizer.ggml.token_type", types);
            writer.set_f32s("tokenizer.ggml.scores", scores);
            writer.set_strings("tokenizer.ggml.merges", merges);
            auto t = SmallVocabulary::load_bare(writer);
            if (!t) return;
            std::string text = *rc::gen::arbitrary<std::string>();
            for (const std::string& each : texts) text += each;
            for (const Token token : encode(**t, text, true, true)) {
                RC_ASSERT(token >= 0 && static_cast<std::size_t>(token) < (*t)->size());
                (*t)->piece(token, true);
            }
        });
    }
}

// Cutting at a part of a character would give the kinds text that isn't UTF-8.
TEST(BrokenVocabulary, SpecialTokensThatArePartsOfCharacters) {
    for (const char* model : {"llama", "gpt2", "gemma4", "bert", "t5", "rwkv"}) {
        SmallVocabulary small(model);
        small.add("<unk>", kTypeUnknown);
        small.add("\xCC", kTypeControl);
        small.add("\x9F", kTypeUser);
        small.set_merges({});
        const auto t = small.load();
        ASSERT_TRUE(t.is_ok()) << t.status().to_string();
        for (const Token token : encode(**t,
                                        "a\xCC\x9F"
                                        "b",
                                        false, true)) {
            EXPECT_TRUE(token >= 0 && static_cast<std::size_t>(token) < (*t)->size()) << model;
            EXPECT_TRUE(token != 1 || (*t)->kind() == "rwkv") << model;
        }
    }
}

class HostileText : public testing::TestWithParam<const char*> {};

// A megabyte of each: quadratic time would not end, recursion would overflow the stack. What comes
// back must still be the text.
TEST_P(HostileText, IsTokenizedInFull) {
    const auto path = test_cache() / "vocab" / ("ggml-vocab-" + std::string(GetParam()) + ".gguf");
    STET_NEED_FILE(path);
    const auto t = load_tokenizer(path);
    ASSERT_TRUE(t.is_ok());
    const bool lossless = (*t)->kind() == "bpe" || (*t)->kind() == "spm";
    for (const char* part : {"a", " ", "\n", "1", "!", "\xCC\x81", "a\xCC\x81\xCC\xA3\xCC\x81",
                             "\xFF", "\xE4\xBD\xA0", "<", "'", "   \n", "\xF0\x9F\x98\x80"}) {
        std::string text;
        while (text.size() < (1U << 20)) text += part;
        const Tokens tokens = encode(**t, text, false, true);
        if (lossless) {
            EXPECT_EQ((*t)->decode(tokens, true), utf8_sanitize(text)) << part;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, HostileText,
                         testing::Values("llama-bpe", "llama-spm", "gemma-4", "bert-bge",
                                         "nomic-bert-moe"));

TEST(ParseSpecial, OffNeverGivesAControlToken) {
    for (const char* name : {"llama-bpe", "llama-spm", "phi-3", "gemma-4", "bert-bge", "qwen2"}) {
        const auto path = test_cache() / "vocab" / ("ggml-vocab-" + std::string(name) + ".gguf");
        STET_NEED_FILE(path);
        const auto t = load_tokenizer(path);
        ASSERT_TRUE(t.is_ok());
        for (std::size_t i = 0; i < (*t)->size(); ++i) {
            const auto special = static_cast<Token>(i);
            if (!(*t)->is_control(special)) continue;
            const std::string text = "x " + (*t)->piece(special, true) + " y";
            for (const Token token : encode(**t, text)) {
                EXPECT_FALSE((*t)->is_control(token)) << name << ": " << text;
            }
        }
    }
}

}  // namespace
}  // namespace stet::text
