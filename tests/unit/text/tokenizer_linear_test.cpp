// One long word: four times the text takes less than eight times as long, in every kind.
#include <algorithm>

#include "base/stopwatch.h"
#include "text/unicode.h"
#include "unit/text/tokenizer_support.h"

namespace stet::text {
namespace {

SmallVocabulary vocabulary_of(const std::string& model) {
    SmallVocabulary small(model);
    small.add("<unk>", kTypeUnknown);
    small.add("<s>", kTypeControl);
    small.add("</s>", kTypeControl);
    if (model == "gpt2") {
        for (const std::string& byte : byte_alphabet().text) small.add(byte);
        small.writer().set_string("tokenizer.ggml.pre", "llama-bpe");
    } else {
        small.add_bytes();
        small.add("a", kTypeNormal, -9);
    }
    small.add("aa", kTypeNormal, -2);
    small.add("aaaa", kTypeNormal, -3);
    if (model == "gpt2" || model == "gemma4") small.set_merges({"a a", "aa aa"});
    for (const char* key : {"bos", "eos", "unknown"}) {
        small.writer().set_u32(std::string("tokenizer.ggml.") + key + "_token_id", 1);
    }
    return small;
}

double seconds(const Tokenizer& tokenizer, const std::string& text) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
        const ThreadStopwatch stopwatch;
        EXPECT_FALSE(encode(tokenizer, text).empty());
        best = std::min(best, stopwatch.seconds());
    }
    return best;
}

TEST(LongWord, TimeGrowsWithTheText) {
    constexpr std::size_t kBytes = std::size_t{512} << 10;
    for (const std::string model : {"llama", "gpt2", "gemma4", "bert", "t5", "rwkv", "plamo2"}) {
        SmallVocabulary small = vocabulary_of(model);
        const auto tokenizer = small.load();
        ASSERT_TRUE(tokenizer) << model << ": " << tokenizer.status().to_string();
        for (const std::string unit : {"a", "\xCC\x81\xCC\xA3", "\xFF"}) {
            std::string text = "a";
            while (text.size() < kBytes) text += unit;
            std::string longer = text;
            for (int i = 0; i < 3; ++i) longer += text;
            if (encode(**tokenizer, text).empty()) {
                EXPECT_EQ(model, "bert") << "only bert drops what is no character";
                continue;
            }
            const double once = seconds(**tokenizer, text);
            EXPECT_LT(seconds(**tokenizer, longer), 8 * once) << model << " of " << unit;
        }
    }
}

}  // namespace
}  // namespace stet::text
