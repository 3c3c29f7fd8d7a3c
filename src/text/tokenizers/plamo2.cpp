// PLaMo-2: the segmentation with the best sum of scores, found from the end of the text; a
// character that no token covers costs much and becomes its byte tokens.
#include <fmt/format.h>

#include <array>
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
    struct Step {
        std::int64_t cost = kUnreached;  // of the best segmentation from here to the end
        std::uint32_t length = 0;
        Token token = kNoToken;  // or byte tokens
    };

    void encode_text(std::string_view text, std::vector<Token>& output) const {
        if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // byte order mark
        std::vector<Step> steps(text.size() + 1);
        steps[text.size()].cost = 0;
        for (std::size_t at = text.size(); at-- > 0;) {
            if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
            steps[at] = best_step(text, at, steps);
        }
        for (std::size_t at = 0; at < text.size(); at += steps[at].length) {
            if (steps[at].token != kNoToken) {
                output.push_back(steps[at].token);
            } else {
                append_byte_tokens(text.substr(at, steps[at].length), output);
            }
        }
    }
    // Of equal costs the longest token wins, and any token before byte tokens.
    Step best_step(std::string_view text, std::size_t at, const std::vector<Step>& steps) const {
        const std::uint32_t character = utf8_length(static_cast<unsigned char>(text[at]));
        Step best;
        trie_.for_each_prefix(text.substr(at), [&](std::size_t length, Token token) {
            const std::int64_t value = score_of(token);
            const Step& rest = steps[at + length];
            if (value <= kScoreMin || rest.cost >= kUnreached) return;
            if (rest.cost - value <= best.cost) {
                best = {rest.cost - value, static_cast<std::uint32_t>(length), token};
            }
        });
        const std::int64_t in_bytes = steps[at + character].cost - kScoreByte;
        if (in_bytes < best.cost) best = {in_bytes, character, kNoToken};
        return best;
    }
    std::int64_t score_of(Token token) const {
        const double steps = std::round(double{vocabulary().score(token)} * kScoreSteps);
        if (!(steps > static_cast<double>(kScoreMin))) return kScoreMin;
        return steps > 1e9 ? 1'000'000'000 : static_cast<std::int64_t>(steps);
    }

    Trie trie_;
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
