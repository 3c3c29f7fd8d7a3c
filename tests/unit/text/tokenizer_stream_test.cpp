#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

// Token i stands for the bytes pieces[i].
class Pieces final : public Tokenizer {
  public:
    explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
    Result<std::vector<Token>> encode(std::string_view, const EncodeOptions&) const override {
        return std::vector<Token>();
    }
    std::string piece(Token token, bool) const override {
        return pieces_[static_cast<std::size_t>(token)];
    }
    std::string decode(std::span<const Token>, bool) const override { return {}; }
    std::size_t size() const override { return pieces_.size(); }
    Token bos() const override { return kNoToken; }
    Token eos() const override { return kNoToken; }
    bool adds_bos() const override { return false; }
    bool adds_eos() const override { return false; }
    bool is_end_of_generation(Token) const override { return false; }
    bool is_control(Token) const override { return false; }
    Token find(std::string_view) const override { return kNoToken; }
    std::string_view kind() const override { return "test"; }

  private:
    std::vector<std::string> pieces_;
};

struct Streamed {
    std::string text;
    bool always_valid = true;
};

Streamed stream(const std::vector<std::string>& pieces) {
    const Pieces tokenizer(pieces);
    StreamDecoder decoder(tokenizer);
    Streamed streamed;
    const auto take = [&](const std::string& part) {
        streamed.text += part;
        streamed.always_valid &= utf8_valid_prefix(part) == part.size();
    };
    for (std::size_t i = 0; i < pieces.size(); ++i) take(decoder.add(static_cast<Token>(i)));
    take(decoder.finish());
    return streamed;
}

// 1, 2, 3 and 4 byte characters, a joined emoji, and ill-formed parts of every sort.
const char* const kTexts[] = {
    "plain",
    "\xC3\xA9t\xC3\xA9",
    "\xE4\xBD\xA0\xE5\xA5\xBD",
    "\xF0\x9F\x98\xB6\xE2\x80\x8D\xF0\x9F\x8C\xAB",
    "a\xFFz",
    "\x80\x80",
    "\xE4\xBD",   // cut short
    "\xE4\xBDz",  // broken off
    "\xF0\x9F\x98",
    "\xC0\xAF\xED\xA0\x80\xF5\x80",  // overlong, surrogate, too large
    "\xF0\x9F\xE4\xBD\xA0",
};

TEST(StreamDecoder, GivesTheSameTextForEverySplitInTwoAndThree) {
    for (const std::string text : kTexts) {
        const std::string expected = utf8_sanitize(text);
        for (std::size_t i = 0; i <= text.size(); ++i) {
            for (std::size_t j = i; j <= text.size(); ++j) {
                const Streamed streamed =
                    stream({text.substr(0, i), text.substr(i, j - i), text.substr(j)});
                EXPECT_EQ(streamed.text, expected) << "cut at " << i << " and " << j;
                EXPECT_TRUE(streamed.always_valid);
            }
        }
    }
}

TEST(StreamDecoder, GivesTheSameTextByteByByte) {
    rc::check("random bytes", [](const std::string& text) {
        std::vector<std::string> pieces;
        for (const char byte : text) pieces.emplace_back(1, byte);
        const Streamed streamed = stream(pieces);
        RC_ASSERT(streamed.text == utf8_sanitize(text));
        RC_ASSERT(streamed.always_valid);
    });
}

TEST(StreamDecoder, HoldsBackOnlyWhatIsNotComplete) {
    const Pieces tokenizer({"a\xE4", "\xBD", "\xA0z"});
    StreamDecoder decoder(tokenizer);
    EXPECT_EQ(decoder.add(0), "a");
    EXPECT_EQ(decoder.add(1), "");
    EXPECT_EQ(decoder.add(2), "\xE4\xBD\xA0z");
    EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, ShowsABrokenSequenceAsSoonAsItIsBroken) {
    const Pieces tokenizer({"\xE4\xBD", "z"});
    StreamDecoder decoder(tokenizer);
    EXPECT_EQ(decoder.add(0), "");
    EXPECT_EQ(decoder.add(1), "\xEF\xBF\xBDz");
    EXPECT_EQ(decoder.add(0), "");
    EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
    EXPECT_EQ(decoder.finish(), "");
}

}  // namespace
}  // namespace stet::text
