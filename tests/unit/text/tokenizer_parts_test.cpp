// The data structures under the tokenizers, against slow and obvious versions of themselves.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "text/tokenizers/flat_map.h"
#include "text/tokenizers/merger.h"
#include "text/tokenizers/segmenter.h"
#include "text/tokenizers/trie.h"
#include "text/unicode.h"
#include "unit/text/tokenizer_support.h"

namespace stet::text {
namespace {

TEST(Unicode, SanitizesMaximalIllFormedParts) {
    const std::string r = "\xEF\xBF\xBD";
    const struct {
        std::string in, out;
    } cases[] = {
        {"", ""},
        {"ok \xC3\xA9", "ok \xC3\xA9"},
        {"\xFF", r},
        {"\xC3", r},
        {"\xC0\x80", r + r},
        {"\xE2\x82", r},  // one part
        {"\xE2\x82z", r + "z"},
        {"\xED\xA0\x80", r + r + r},  // a surrogate: no byte of it begins anything
        {"\xF0\x9F\x98", r},
        {"\xF4\x90\x80\x80", r + r + r + r},  // beyond U+10FFFF
        {"12345678\xFF"
         "12345678",
         "12345678" + r + "12345678"},
    };
    for (const auto& each : cases) EXPECT_EQ(utf8_sanitize(each.in), each.out);
}

TEST(Unicode, AppendIsTheInverseOfStep) {
    for (const char32_t c :
         {U'a', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xFFFD', U'\x10000', U'\x10FFFF'}) {
        std::string text;
        utf8_append(text, c);
        const Utf8Step step = utf8_step(text, 0);
        EXPECT_TRUE(step.valid);
        EXPECT_EQ(step.codepoint, c);
        EXPECT_EQ(step.length, text.size());
    }
}

TEST(Unicode, DecomposesAndOrdersMarks) {
    EXPECT_EQ(nfd("\xC3\xA9"), (std::vector<char32_t>{U'e', 0x301}));
    // U+0323 (below) goes before U+0301 (above), whatever the order in the text.
    EXPECT_EQ(nfd("a\xCC\x81\xCC\xA3"), (std::vector<char32_t>{U'a', 0x323, 0x301}));
    EXPECT_EQ(nfd("\xEA\xB0\x81"), (std::vector<char32_t>{0x1100, 0x1161, 0x11A8}));
}

TEST(Unicode, ByteAlphabetIsABijection) {
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
    std::string encoded;
    append_byte_encoded(encoded, all);
    EXPECT_EQ(byte_decoded(encoded), all);
    EXPECT_EQ(byte_decoded("\xC4\xA0x"), " x");
    EXPECT_EQ(byte_decoded("\xE4\xBD\xA0 "), "\xE4\xBD\xA0 ");  // not of the alphabet: as it is
}

TEST(Trie, FindsEveryPrefix) {
    rc::check("like a map", [](const std::vector<std::string>& keys, const std::string& text) {
        std::map<std::string, std::int32_t> map;
        std::vector<std::pair<std::string_view, std::int32_t>> entries;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const std::string_view key = std::string_view(keys[i]).substr(0, 3);
            entries.emplace_back(key, static_cast<std::int32_t>(i));
            if (!key.empty()) map.emplace(key, static_cast<std::int32_t>(i));
        }
        const std::string hay = keys.empty() ? text : keys.back().substr(0, 2) + text;
        const Trie trie(std::move(entries));
        std::vector<std::pair<std::size_t, std::int32_t>> expected;
        for (std::size_t length = 1; length <= hay.size(); ++length) {
            const auto found = map.find(hay.substr(0, length));
            if (found != map.end()) expected.emplace_back(length, found->second);
        }
        std::vector<std::pair<std::size_t, std::int32_t>> got;
        trie.for_each_prefix(
            hay, [&](std::size_t length, std::int32_t value) { got.emplace_back(length, value); });
        RC_ASSERT(got == expected);
    });
}

TEST(FlatMaps, GrowAndFind) {
    std::vector<std::string> texts;
    for (int i = 0; i < 5000; ++i) texts.push_back(std::to_string(i * 7919));
    const auto text_of = [&](std::uint32_t i) { return std::string_view(texts[i]); };
    TextIndex index;
    PairMap pairs(texts.size());
    for (std::uint32_t i = 0; i < texts.size(); ++i) {
        index.insert(texts[i], i, text_of);
        pairs.insert(i, i / 2, {i + 1, i});
    }
    index.insert(texts[7], 9, text_of);  // the first stays
    for (std::uint32_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(index.find(texts[i], hash_bytes(texts[i]), text_of), i);
        EXPECT_EQ(pairs.find(i, i / 2).rank, i + 1);
        EXPECT_EQ(pairs.find(i, i / 2 + 1).rank, Join::kNoRank);
    }
    EXPECT_EQ(index.find("no", hash_bytes("no"), text_of), TextIndex::kNone);
}

// Joins the lowest rank, leftmost first, by looking at everything each time.
std::vector<std::uint32_t> merge_slowly(std::vector<std::uint32_t> ids, const PairMap& pairs) {
    for (;;) {
        std::size_t best = 0;
        Join join;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            const Join each = pairs.find(ids[i], ids[i + 1]);
            if (each.rank < join.rank) {
                join = each;
                best = i;
            }
        }
        if (join.rank == Join::kNoRank) return ids;
        ids[best] = join.merged;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

// In one window, and in windows so small that their borders matter everywhere.
TEST(Merger, JoinsLikeTheSlowVersion) {
    rc::check("random merges, words and windows", [] {
        const auto symbol = rc::gen::inRange<std::uint32_t>(0, 6);
        const auto merges = *rc::gen::container<
            std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>>>(
            rc::gen::tuple(symbol, symbol, symbol));
        const auto word =
            *rc::gen::scale(4.0, rc::gen::container<std::vector<std::uint32_t>>(symbol));
        PairMap pairs(merges.size());
        std::uint32_t rank = 0;
        for (const auto& [left, right, merged] : merges)
            pairs.insert(left, right, {rank++, merged});
        const auto window = *rc::gen::inRange<std::uint32_t>(1, 40);
        Merger merger(window, *rc::gen::inRange<std::uint32_t>(0, window));
        const auto left = merger.merge(
            static_cast<std::uint32_t>(word.size()),
            [&](std::uint32_t at) {
                return Merger::First{1, word[at]};
            },
            [&](const auto& first, const auto& second, std::uint32_t) {
                return pairs.find(first.id, second.id);
            });
        std::vector<std::uint32_t> got;
        for (const Merger::Left& each : left) got.push_back(each.id);
        RC_ASSERT(got == merge_slowly(word, pairs));
    });
}

TEST(Segmenter, CutsOnlyWhereNothingMerges) {
    Segmenter segmenter;
    segmenter.allow("abc");
    segmenter.allow_across("x\xE4\xBD\xA0", "\xE5\xA5\xBDy");
    std::vector<std::string> parts;
    const std::string text = "abcab\xE4\xBD\xA0\xE5\xA5\xBDy";
    segmenter.for_each(text, [&](std::string_view part) { parts.emplace_back(part); });
    EXPECT_EQ(parts, (std::vector<std::string>{"abc", "ab", "\xE4\xBD\xA0\xE5\xA5\xBD", "y"}));
}

// Longest special first, at every place from the left; then the next shorter length.
struct SlowCutter {
    std::vector<std::string> specials;  // token i + 1 is specials[i]

    std::string cut(const std::string& text) const {
        std::vector<int> owner(text.size(), 0);  // 0: free; n: token n begins; -1: inside a token
        for (std::size_t length = text.size(); length > 0; --length) {
            for (std::size_t at = 0; at + length <= text.size(); ++at) {
                const auto found =
                    std::find(specials.begin(), specials.end(), text.substr(at, length));
                if (found == specials.end()) continue;
                const auto first = owner.begin() + static_cast<std::ptrdiff_t>(at);
                const auto last = first + static_cast<std::ptrdiff_t>(length);
                if (std::any_of(first, last, [](int each) { return each != 0; })) continue;
                std::fill(first, last, -1);
                *first = static_cast<int>(found - specials.begin()) + 1;
            }
        }
        std::string shown;
        for (std::size_t at = 0; at < text.size(); ++at) {
            if (owner[at] > 0)
                shown += "[" + specials[static_cast<std::size_t>(owner[at]) - 1] + "]";
            if (owner[at] == 0) shown += text[at];
        }
        return shown;
    }
};

TEST(SpecialTokens, AreCutLongestFirstThenLeftmost) {
    const SlowCutter slow{{"a", "ab", "bca", "aaa", "abca", "cc", "\n\n", "\n\n\n"}};
    SmallVocabulary small("rwkv");
    small.add("<unk>", kTypeUnknown);
    for (const std::string& special : slow.specials) small.add(special, kTypeControl);
    std::map<Token, std::string> bytes;
    for (const char c : std::string("abc\n"))
        bytes[small.add(c == '\n' ? "\\n" : std::string(1, c))] = c;
    const auto tokenizer = small.load();
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().to_string();
    rc::check("random texts", [&] {
        const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c', '\n'));
        std::string shown;
        for (const Token token : encode(**tokenizer, text, false, true)) {
            const auto byte = bytes.find(token);
            shown += byte != bytes.end()
                         ? byte->second
                         : "[" + slow.specials[static_cast<std::size_t>(token) - 1] + "]";
        }
        RC_ASSERT(shown == slow.cut(text));
    });
}

}  // namespace
}  // namespace stet::text
