// Each kind on a vocabulary small enough to work out by hand.
#include <rapidcheck.h>

#include "text/unicode.h"
#include "unit/text/tokenizer_support.h"

namespace stet::text {
namespace {

const std::string kSpace(kEscapedSpace);

std::unique_ptr<Tokenizer> loaded(SmallVocabulary& small) {
    auto made = small.load();
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return made.is_ok() ? std::move(made).value() : nullptr;
}

Tokens ids(std::initializer_list<Token> list) {
    return list;
}

// <unk> <s> </s>, bytes, and pieces of "hello" as SentencePiece would have them.
struct SmallSpm {
    SmallVocabulary small{"llama"};
    Token h, e, l, o, space, he, ll, hell, space_hello, user;

    SmallSpm() {
        small.add("<unk>", kTypeUnknown);
        small.add("<s>", kTypeControl);
        small.add("</s>", kTypeControl);
        small.add_bytes();
        h = small.add("h", kTypeNormal, -20);
        e = small.add("e", kTypeNormal, -21);
        l = small.add("l", kTypeNormal, -22);
        o = small.add("o", kTypeNormal, -23);
        space = small.add(kSpace, kTypeNormal, -24);
        he = small.add("he", kTypeNormal, -2);
        ll = small.add("ll", kTypeNormal, -3);
        hell = small.add("hell", kTypeNormal, -4);
        space_hello = small.add(kSpace + "hello", kTypeNormal, -5);
        user = small.add("[user]", kTypeUser);
        small.add("</", kTypeNormal, -1);
        small.add("s>", kTypeNormal, -1);
        small.add("<", kTypeNormal, -30);
        small.add("/", kTypeNormal, -30);
        small.add("s", kTypeNormal, -30);
        small.add(">", kTypeNormal, -30);
    }
};

TEST(Spm, MergesTheBestScoreFirst) {
    SmallSpm v;
    const auto t = loaded(v.small);
    EXPECT_EQ(t->kind(), "spm");
    // he + ll become hell; a space goes before it, and " hell" + o is no token.
    EXPECT_EQ(encode(*t, "hell"), ids({v.space, v.hell}));
    EXPECT_EQ(encode(*t, "ohell"), ids({v.space, v.o, v.hell}));
    EXPECT_EQ(encode(*t, "lll"), ids({v.space, v.ll, v.l}));  // the leftmost of equal scores
    EXPECT_EQ(encode(*t, "hell", true), ids({1, v.space, v.hell}));
    EXPECT_EQ(encode(*t, ""), Tokens{});
    EXPECT_EQ(encode(*t, "", true), ids({1}));
}

TEST(Spm, FallsBackToBytesAndComesBack) {
    SmallSpm v;
    const auto t = loaded(v.small);
    const Token first_byte = t->find("<0x00>");
    EXPECT_EQ(encode(*t, "\xC3\xA9"), ids({v.space, first_byte + 0xC3, first_byte + 0xA9}));
    for (const std::string text : {"hello", " hello", "  h", "\xC3\xA9t\xC3\xA9", "", "a\nb"}) {
        EXPECT_EQ(t->decode(encode(*t, text), false), text);
        EXPECT_EQ(t->decode(encode(*t, text, true), false), text);
    }
    EXPECT_EQ(t->piece(first_byte + 0xC3, false), "\xC3");
}

TEST(Spm, PrefixesASpaceAgainAfterEverySpecialToken) {
    SmallSpm v;
    const auto t = loaded(v.small);
    EXPECT_EQ(encode(*t, "he</s>he", false, true), ids({v.space, v.he, 2, v.space, v.he}));
    EXPECT_EQ(encode(*t, "he[user]he", false, false), ids({v.space, v.he, v.user, v.space, v.he}));
    v.small.writer().set_bool("tokenizer.ggml.add_space_prefix", false);
    const auto bare = loaded(v.small);
    EXPECT_EQ(encode(*bare, "he</s>he", false, true), ids({v.he, 2, v.he}));
    EXPECT_EQ(bare->decode(encode(*bare, " he"), false), " he");
}

TEST(Spm, TextDoesNotBecomeASpecialTokenByMerging) {
    SmallSpm v;
    const auto t = loaded(v.small);
    const Tokens tokens = encode(*t, "</s>", false, false);
    EXPECT_EQ(t->decode(tokens, false), "</s>");
    for (const Token token : tokens) EXPECT_FALSE(t->is_control(token));
    // Neither does the name of a byte token become that byte.
    SmallSpm w;
    w.small.add("<0x", kTypeNormal, -1);
    w.small.add("0A>", kTypeNormal, -1);
    const auto u = loaded(w.small);
    EXPECT_EQ(u->decode(encode(*u, "<0x0A>"), false), "<0x0A>");
}

TEST(Spm, InvalidUtf8BecomesTheReplacementCharacter) {
    SmallSpm v;
    const auto t = loaded(v.small);
    EXPECT_EQ(t->decode(encode(*t, "h\xFFh"), false), "h\xEF\xBF\xBDh");
}

// Byte-level pieces: 256 bytes, then merges.
struct SmallBpe {
    SmallVocabulary small{"gpt2"};
    std::vector<std::string> merges;

    explicit SmallBpe(std::string_view pre = "gpt-2") {
        for (const std::string& byte : byte_alphabet().text) small.add(byte);
        small.writer().set_string("tokenizer.ggml.pre", pre);
    }
    Token merge(const std::string& left, const std::string& right) {
        merges.push_back(left + " " + right);
        return small.add(left + right);
    }
    std::unique_ptr<Tokenizer> load() {
        small.set_merges(merges);
        return loaded(small);
    }
};

TEST(Bpe, MergesInOrderOfTheList) {
    SmallBpe v;
    const Token bc = v.merge("b", "c");
    v.merge("a", "b");
    const Token abc = v.merge("a", "bc");
    const Token space_a = v.merge("\xC4\xA0", "a");
    const auto t = v.load();
    EXPECT_EQ(t->kind(), "bpe");
    EXPECT_EQ(encode(*t, "abc"), ids({abc}));
    EXPECT_EQ(encode(*t, "bcb"), ids({bc, 'b'}));
    EXPECT_EQ(encode(*t, " a"), ids({space_a}));
    EXPECT_EQ(t->piece(space_a, false), " a");
    EXPECT_EQ(t->adds_bos(), false);
}

TEST(Bpe, IgnoresMergesWhereTheWholeWordIsAToken) {
    SmallBpe with("llama-bpe");
    with.small.add("xyz");
    const auto t = with.load();
    EXPECT_EQ(encode(*t, "xyz").size(), 1U);
    EXPECT_TRUE(t->adds_bos());
    SmallBpe without("gpt-2");
    without.small.add("xyz");
    EXPECT_EQ(encode(*without.load(), "xyz").size(), 3U);
}

TEST(Bpe, MergesOfTextsThatAreNoTokensFallBackToBytes) {
    SmallBpe v;
    v.merges.push_back("a b");  // "ab" is not in the vocabulary
    const auto t = v.load();
    EXPECT_EQ(encode(*t, "ab"), ids({'a', 'b'}));
    const Token abc = v.small.add("abc");
    v.merges.push_back("ab c");
    EXPECT_EQ(encode(*v.load(), "abc"), ids({abc}));  // through it to one that is
}

TEST(Bpe, RoundTripsAnyTextOnAnyVocabulary) {
    SmallBpe v;
    v.merge("e", "r");
    v.merge("\xC3\x83", "\xC2\xA9");
    v.merge("\xC4\xA0", "\xC4\xA0");
    const auto t = v.load();
    rc::check("round trip", [&](const std::string& text) {
        RC_ASSERT(t->decode(encode(*t, text), false) == utf8_sanitize(text));
    });
}

TEST(Bpe, RepeatedWordsAreCachedCorrectly) {
    SmallBpe v;
    v.merge("a", "b");
    const auto t = v.load();
    std::string text;
    Tokens expected;
    const std::string words[] = {" ab", " ba", " abab", " b", " a"};
    for (int i = 0; i < 4000; ++i) {
        const std::string& word = words[static_cast<std::size_t>(i * i % 5)];
        text += word;
        const Tokens one = encode(*t, word);
        expected.insert(expected.end(), one.begin(), one.end());
    }
    EXPECT_EQ(encode(*t, text), expected);
}

TEST(Bpe, SpecialTokensTakeTheSpaceBesideThemWhenTheModelSaysSo) {
    SmallBpe phi("default");
    phi.small.writer().set_string("general.name", "Phi-3 mini");
    const Token end = phi.small.add("<|end|>", kTypeControl);
    const auto right = phi.load();
    EXPECT_EQ(encode(*right, "a <|end|> \n b", false, true), ids({'a', ' ', end, 'b'}));
    SmallBpe jina("jina-v2-de");
    const Token mask = jina.small.add("<mask>", kTypeControl);
    EXPECT_EQ(encode(*jina.load(), "a  <mask> b", false, true), ids({'a', mask, ' ', 'b'}));
}

TEST(Bpe, GemmaWritesSpacesEscapedAndFallsBackToByteTokens) {
    SmallVocabulary small("gemma4");
    small.add("<pad>", kTypeControl);
    small.add("<eos>", kTypeControl);
    const Token bos = small.add("<bos>", kTypeControl);
    small.add_bytes();
    const Token a = small.add("a");
    const Token space = small.add(kSpace);
    const Token space_a = small.add(kSpace + "a");
    const Token newlines = small.add("\n\n");
    small.writer().set_u32("tokenizer.ggml.bos_token_id", 2);
    small.writer().set_bool("tokenizer.ggml.add_bos_token", false);  // overruled for this model
    small.set_merges({kSpace + " a"});
    const auto t = loaded(small);
    EXPECT_EQ(encode(*t, "a a  a\n\n", true), ids({bos, a, space_a, space, space_a, newlines}));
    const Token zero = t->find("<0x00>");
    EXPECT_EQ(encode(*t, "\xC3\xA9"), ids({zero + 0xC3, zero + 0xA9}));
    EXPECT_EQ(t->decode(encode(*t, "a a\n\n\xC3\xA9"), false), "a a\n\n\xC3\xA9");
}

TEST(Bpe, HybridDnaCutsTaggedPartsIntoSixLetters) {
    SmallVocabulary small("hybriddna");
    for (const std::string& byte : byte_alphabet().text) small.add(byte);
    const Token open = small.add("<dna>");
    const Token close = small.add("</dna>");
    const Token unknown = small.add("<oov>");
    const Token acgtac = small.add("ACGTAC\xEE\x80\x80");
    const Token gtaaaa = small.add("GTAAAA\xEE\x80\x80");
    small.set_merges({});
    const auto t = loaded(small);
    EXPECT_EQ(encode(*t, "x<dna>ACGTACgt</dna>y"), ids({'x', open, acgtac, gtaaaa, close, 'y'}));
    EXPECT_EQ(encode(*t, "<dna>NNNNNN"), ids({open, unknown}));
    EXPECT_EQ(t->piece(acgtac, false), "ACGTAC");
}

TEST(Bpe, WhitespaceModelDropsSpaces) {
    SmallVocabulary small("whitespace");
    small.add("<unk>", kTypeUnknown);
    const Token ni = small.add("\xE4\xBD\xA0");
    const Token hao = small.add("\xE5\xA5\xBD");
    const Token nihao = small.add("\xE4\xBD\xA0\xE5\xA5\xBD");
    small.writer().set_string("tokenizer.ggml.pre", "whitespace");
    small.set_merges({"\xE4\xBD\xA0 \xE5\xA5\xBD"});
    const auto t = loaded(small);
    EXPECT_EQ(encode(*t, "\xE4\xBD\xA0\xE5\xA5\xBD \xE4\xBD\xA0 \xE5\xA5\xBD"),
              ids({nihao, ni, hao}));
}

struct SmallWpm {
    SmallVocabulary small{"bert"};
    Token pad, unk, cls, sep, he, llo, comma, cafe, zhong;
    SmallWpm() {
        pad = small.add("[PAD]", kTypeControl);
        unk = small.add("[UNK]", kTypeUnknown);
        cls = small.add("[CLS]", kTypeControl);
        sep = small.add("[SEP]", kTypeControl);
        he = small.add(kSpace + "he");
        llo = small.add("llo");
        comma = small.add(kSpace + ",");
        cafe = small.add(kSpace + "cafe");
        zhong = small.add(kSpace + "\xE4\xB8\xAD");
        small.writer().set_u32("tokenizer.ggml.bos_token_id", 2);
        small.writer().set_u32("tokenizer.ggml.seperator_token_id", 3);
        small.writer().set_u32("tokenizer.ggml.unknown_token_id", 1);
    }
};

TEST(Wpm, CoversWordsFromTheLeft) {
    SmallWpm v;
    const auto t = loaded(v.small);
    EXPECT_EQ(t->kind(), "wpm");
    EXPECT_EQ(encode(*t, "Hello, HE", true), ids({v.cls, v.he, v.llo, v.comma, v.he, v.sep}));
    EXPECT_EQ(encode(*t, "hex he"), ids({v.unk, v.he}));  // unknown as a whole
    EXPECT_EQ(encode(*t, "caf\xC3\xA9 cafe\xCC\x81"), ids({v.cafe, v.cafe}));
    EXPECT_EQ(encode(*t, "he\xE4\xB8\xADhe"), ids({v.he, v.zhong, v.he}));
    EXPECT_EQ(encode(*t,
                     "h\x01\xE2\x80\x8B"
                     "e\xEF\xBF\xBD"),
              ids({v.he}));  // not printable
    EXPECT_EQ(t->decode(encode(*t, "hello, he", true), false), "hello, he");
    EXPECT_EQ(encode(*t, "he\xCD\xB8"), ids({v.unk}));  // not assigned, but not dropped either
    EXPECT_EQ(encode(*t, "[SEP]", false, true), ids({v.sep}));
    EXPECT_EQ(encode(*t, std::string(101, 'x')), ids({v.unk}));
}

TEST(Wpm, KeepsCaseAndAccentsWhenToldTo) {
    SmallWpm v;
    v.small.writer().set_bool("tokenizer.ggml.normalizer.lowercase", false);
    const auto t = loaded(v.small);
    EXPECT_EQ(encode(*t, "He he caf\xC3\xA9"), ids({v.unk, v.he, v.unk}));
}

struct SmallUgm {
    SmallVocabulary small{"t5"};
    Token pad, eos, unk, a, b, ab, space, space_ab, user;
    SmallUgm() {
        pad = small.add("<pad>", kTypeControl);
        eos = small.add("</s>", kTypeControl);
        unk = small.add("<unk>", kTypeUnknown);
        a = small.add("a", kTypeNormal, -3);
        b = small.add("b", kTypeNormal, -3);
        ab = small.add("ab", kTypeNormal, -5);
        space = small.add(kSpace, kTypeNormal, -2);
        space_ab = small.add(kSpace + "ab", kTypeNormal, -7.5F);
        user = small.add("<X>", kTypeUser);
        small.writer().set_bool("tokenizer.ggml.add_space_prefix", true);
        small.writer().set_bool("tokenizer.ggml.remove_extra_whitespaces", true);
    }
};

TEST(Ugm, TakesTheBestSumOfScores) {
    SmallUgm v;
    const auto t = loaded(v.small);
    EXPECT_EQ(t->kind(), "ugm");
    EXPECT_EQ(encode(*t, "ab", true), ids({v.space, v.ab, v.eos}));  // -7 beats -7.5 and -8
    EXPECT_EQ(encode(*t, "  ab   b "), ids({v.space, v.ab, v.space, v.b}));
    EXPECT_EQ(encode(*t, "a??b"), ids({v.space, v.a, v.unk, v.b}));  // one for the run
    EXPECT_EQ(encode(*t, "a<X>b"), ids({v.space, v.a, v.user, v.space, v.b}));
    EXPECT_EQ(encode(*t, "   "), Tokens{});
    EXPECT_EQ(t->decode(encode(*t, "ab b"), false), "ab b");
}

// One replacement, "A" -> "a": the root's offset, the unit of 'A' with a value, and that value.
std::vector<std::byte> charsmap_of_one_letter() {
    std::vector<std::uint32_t> units(512, 0xFFU);
    units[0] = 256U << 10;  // root: children at 256 ^ label
    const std::uint32_t node = 256 ^ 'A';
    units[node] = (('A' ^ 1U) << 10) | 1U << 8 | 'A';  // the value lies at node ^ 'A' ^ 1 = 257
    units[257] = 1U << 31 | 0U;                        // offset 0 of the replacements
    std::vector<std::byte> bytes;
    const auto put = [&](std::uint32_t value) {
        for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(value >> 8 * i));
    };
    put(static_cast<std::uint32_t>(units.size() * 4));
    for (const std::uint32_t unit : units) put(unit);
    bytes.push_back(std::byte{'a'});
    bytes.push_back(std::byte{0});
    return bytes;
}

TEST(Ugm, ReplacesByTheCharsmap) {
    SmallUgm v;
    const auto bytes = charsmap_of_one_letter();
    v.small.writer().set_raw_array("tokenizer.ggml.precompiled_charsmap", test::GgufValue::u8,
                                   bytes.size(), bytes);
    EXPECT_EQ(encode(*loaded(v.small), "Ab"), ids({v.space, v.ab}));
    SmallUgm without;
    EXPECT_EQ(encode(*loaded(without.small), "Ab"), ids({without.space, without.unk, without.b}));
}

// A map whose walk comes back to where it was, and one whose replacement never ends: neither may
// cost more than a bound for each byte of the text.
TEST(Ugm, BoundsAMadeUpCharsmap) {
    const auto with = [](std::vector<std::byte> bytes) {
        SmallUgm v;
        v.small.writer().set_raw_array("tokenizer.ggml.precompiled_charsmap", test::GgufValue::u8,
                                       bytes.size(), bytes);
        return loaded(v.small);
    };
    auto endless = charsmap_of_one_letter();
    const auto put = [&](std::size_t unit, std::uint32_t value) {
        for (std::size_t i = 0; i < 4; ++i) {
            endless[4 + unit * 4 + i] = static_cast<std::byte>(value >> 8 * i);
        }
    };
    put(256 ^ 'A', std::uint32_t{'A'} << 10 | 'A');  // its child 'A' is itself
    EXPECT_EQ(encode(*with(endless), std::string(1 << 20, 'A')).size(), 2U);  // a space, unknown
    auto long_one = charsmap_of_one_letter();
    long_one.pop_back();
    long_one.resize(long_one.size() + (std::size_t{1} << 20), std::byte{'a'});
    long_one.push_back(std::byte{0});
    EXPECT_EQ(encode(*with(long_one), std::string(1 << 20, 'A')).size(), 2U);
}

TEST(Ugm, SurvivesADamagedCharsmap) {
    const auto good = charsmap_of_one_letter();
    rc::check("flipped bytes", [&] {
        auto bytes = good;
        for (int i = 0; i < 20; ++i) {
            const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
            bytes[at] = static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
        }
        SmallUgm v;
        v.small.writer().set_raw_array("tokenizer.ggml.precompiled_charsmap", test::GgufValue::u8,
                                       bytes.size(), bytes);
        auto t = v.small.load();
        if (!t) {
            RC_ASSERT(t.status().code() == Code::corruption);
            return;
        }
        encode(**t, "AbAb caAAA\xFF\x01");
    });
}

TEST(Rwkv, TakesTheLongestBytes) {
    SmallVocabulary small("rwkv");
    small.add("<s>", kTypeControl);
    const Token a = small.add("a");
    const Token abc = small.add("abc");
    const Token b = small.add("b");
    const Token newline = small.add("\\n");
    const Token byte = small.add("\\xff\\\\");
    const auto t = loaded(small);
    EXPECT_EQ(t->kind(), "rwkv");
    EXPECT_EQ(encode(*t, "abcab\n"), ids({abc, a, b, newline}));
    EXPECT_EQ(encode(*t, "\xFF\\"), ids({byte}));
    EXPECT_EQ(encode(*t, "zab"), ids({a, b}));  // no token and no unknown token: left out
    EXPECT_EQ(t->decode(ids({abc, newline, byte}), false), "abc\n\xFF\\");
    EXPECT_GT(encode(*t, "<s>a", false, true).size(), 1U);
}

TEST(Plamo2, TakesTheBestSumOfScores) {
    SmallVocabulary small("plamo2");
    small.add("<|plamo:unk|>", kTypeUnknown);
    small.add("<|plamo:bos|>", kTypeControl);
    small.add("<|plamo:eos|>", kTypeControl);
    small.add("<|plamo:pad|>", kTypeControl);
    small.add_bytes();
    const Token a = small.add("a", kTypeNormal, -1);
    const Token b = small.add("b", kTypeNormal, -1);
    const Token ab = small.add("ab", kTypeNormal, -1.5F);
    const Token abb = small.add("abb", kTypeNormal, -9);
    const auto t = loaded(small);
    EXPECT_EQ(t->kind(), "plamo2");
    EXPECT_EQ(encode(*t, "abb"), ids({ab, b}));
    EXPECT_EQ(encode(*t, "aab"), ids({a, ab}));
    const Token zero = t->find("<0x00>");
    EXPECT_EQ(encode(*t, "a\xE4\xBD\xA0"), ids({a, zero + 0xE4, zero + 0xBD, zero + 0xA0}));
    EXPECT_EQ(encode(*t,
                     "\xEF\xBB\xBF"
                     "a"),
              ids({a}));
    EXPECT_EQ(t->decode(encode(*t, "ab\xE4\xBD\xA0"), false), "ab\xE4\xBD\xA0");
    EXPECT_NE(abb, kNoToken);
}

TEST(None, HasIdsOnly) {
    test::GgufWriter writer;
    writer.set_string("general.architecture", "llama").set_string("tokenizer.ggml.model", "none");
    writer.set_u32("llama.vocab_size", 100);
    const auto t = SmallVocabulary::load_bare(writer);
    ASSERT_TRUE(t.is_ok()) << t.status().to_string();
    EXPECT_EQ((*t)->size(), 100U);
    EXPECT_EQ((*t)->kind(), "none");
    EXPECT_EQ((*t)->encode("a", {}).status().code(), Code::unimplemented);
    EXPECT_EQ((*t)->bos(), kNoToken);
}

TEST(EndOfGeneration, FollowsTheTextsOfTokens) {
    SmallBpe harmony;
    const Token end = harmony.small.add("<|end|>", kTypeControl);
    const Token returns = harmony.small.add("<|return|>", kTypeControl);
    const Token call = harmony.small.add("<|call|>", kTypeControl);
    const Token channel = harmony.small.add("<|channel|>", kTypeControl);
    const auto t = harmony.load();
    EXPECT_TRUE(t->is_end_of_generation(returns));
    EXPECT_TRUE(t->is_end_of_generation(call));
    EXPECT_FALSE(t->is_end_of_generation(end));  // ends a message, not the answer
    EXPECT_EQ(t->piece(channel, false), "<|channel|>");
    SmallBpe plain;
    const Token alone = plain.small.add("<|end|>");  // not marked as control in the file
    const auto u = plain.load();
    EXPECT_TRUE(u->is_end_of_generation(alone));
    EXPECT_TRUE(u->is_control(alone));
}

}  // namespace
}  // namespace stet::text
