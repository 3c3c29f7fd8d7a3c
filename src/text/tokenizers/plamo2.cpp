// PLaMo-2: the segmentation with the best sum of scores, found from the end of the text; a
// character that no token covers costs much and becomes its byte tokens.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/try.h"
#include "text/tokenizers/tokenizer_base.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

// Scores are compared in steps of 1/10,000, as the model's own tokenizer does.
constexpr double kScoreSteps = 1e4;
constexpr std::int64_t kScoreMin = -20'000'000;   // at or below: not used
constexpr std::int64_t kScoreByte = -10'000'000;  // a character in byte tokens
constexpr std::size_t kCharacterBytesMax = 4;
constexpr std::int64_t kUnreached = std::int64_t{1} << 60;

class Plamo2Tokenizer final : public TokenizerBase {
  public:
    explicit Plamo2Tokenizer(Vocabulary held) : TokenizerBase(std::move(held)) {
        fill_byte_tokens();
        std::vector<std::pair<std::string_view, Token>> entries;
        for (std::size_t i = 0; i < vocabulary().size(); ++i) {
            const auto token = static_cast<Token>(i);
            if (vocabulary().is(token, kControl | kUnknown | kByte)) continue;
            entries.emplace_back(vocabulary().text(token), token);
            longest_ = std::max(longest_, entries.back().first.size());
        }
        trie_ = Trie(std::move(entries));
    }
    std::string_view kind() const override { return "plamo2"; }

    Status check(const gguf::File& file) const {
        for (int byte = 0; byte < 256; ++byte) {
            const std::string text = fmt::format("<0x{:02X}>", byte);
            if (find(text) != kNoToken) continue;
            return {Code::corruption, fmt::format("vocabulary of {} has no byte token {}",
                                                  file.path().string(), text)};
        }
        return {};
    }

  protected:
    std::string normal_piece(Token token) const override {
        const std::string_view text = vocabulary().text(token);
        const int byte = vocabulary().is(token, kByte) ? Vocabulary::byte_value(text) : -1;
        return byte < 0 ? std::string(text) : std::string(1, static_cast<char>(byte));
    }
    void encode_fragments(std::span<const Fragment> fragments, std::size_t,
                          std::vector<Token>& output) const override {
        for (const Fragment& fragment : fragments) {
            if (fragment.token != kNoToken) {
                output.push_back(fragment.token);
            } else {
                encode_text(fragment.text, output);
            }
        }
    }

  private:
    // Costs of the best segmentation from a position to the end, of as many positions as a token
    // reaches over: a ring, so that a long text keeps nothing but a token for each position.
    class Costs {
      public:
        explicit Costs(std::size_t reach) : ring_(std::bit_ceil(reach + 1), kUnreached) {}
        std::int64_t& operator[](std::size_t at) { return ring_[at & (ring_.size() - 1)]; }

      private:
        std::vector<std::int64_t> ring_;
    };

    void encode_text(std::string_view text, std::vector<Token>& output) const {
        if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // byte order mark
        Costs costs(std::min(std::max(longest_, kCharacterBytesMax), text.size()));
        costs[text.size()] = 0;
        std::vector<Token> best(text.size(), kNoToken);  // none: the character in byte tokens
        for (std::size_t at = text.size(); at-- > 0;) {
            costs[at] = kUnreached;
            if (!is_character(text, at)) continue;
            best[at] = best_token(text, at, costs);
        }
        for (std::size_t at = 0; at < text.size();) {
            const Token token = best[at];
            if (token != kNoToken) {
                output.push_back(token);
                at += vocabulary().text(token).size();
                continue;
            }
            const std::size_t length = utf8_length(static_cast<unsigned char>(text[at]));
            append_byte_tokens(text.substr(at, length), output);
            at += length;
        }
    }
    // Sets the cost of `at` too. Of equal costs the longest token wins, and any token before byte
    // tokens.
    Token best_token(std::string_view text, std::size_t at, Costs& costs) const {
        std::int64_t cost = kUnreached;
        Token best = kNoToken;
        trie_.for_each_prefix(text.substr(at), [&](std::size_t length, Token token) {
            const std::int64_t value = score_of(token);
            const std::int64_t rest = costs[at + length];
            if (value <= kScoreMin || rest >= kUnreached || rest - value > cost) return;
            cost = rest - value;
            best = token;
        });
        const std::size_t character = utf8_length(static_cast<unsigned char>(text[at]));
        const std::int64_t in_bytes = costs[at + character] - kScoreByte;
        if (in_bytes < cost) {
            cost = in_bytes;
            best = kNoToken;
        }
        costs[at] = cost;
        return best;
    }
    static bool is_character(std::string_view text, std::size_t at) {
        return (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    }
    std::int64_t score_of(Token token) const {
        const double steps = std::round(double{vocabulary().score(token)} * kScoreSteps);
        if (!(steps > static_cast<double>(kScoreMin))) return kScoreMin;
        return steps > 1e9 ? 1'000'000'000 : static_cast<std::int64_t>(steps);
    }

    Trie trie_;
    std::size_t longest_ = 0;  // bytes of a token
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_plamo2(const gguf::File& file) {
    const SpecialTokens specials{.bos = 1, .eos = 2, .unk = 0, .pad = 3};
    STET_ASSIGN(Vocabulary vocabulary, Vocabulary::load(file, specials, {}));
    auto made = std::make_unique<Plamo2Tokenizer>(std::move(vocabulary));
    STET_TRY(made->check(file));
    return std::unique_ptr<Tokenizer>(std::move(made));
}

}  // namespace stet::text
