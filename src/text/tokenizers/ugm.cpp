// Unigram language model of SentencePiece (T5): the text is normalised, then cut into the tokens
// with the best sum of scores.
#include <algorithm>
#include <limits>

#include "base/try.h"
#include "text/tokenizers/charsmap.h"
#include "text/tokenizers/tokenizer_base.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

constexpr double kUnknownPenalty = 10.0;

class UgmTokenizer final : public TokenizerBase {
  public:
    UgmTokenizer(Vocabulary held, Charsmap charsmap)
        : TokenizerBase(std::move(held)), charsmap_(std::move(charsmap)) {
        std::vector<std::pair<std::string_view, Token>> tokens;
        std::vector<std::pair<std::string_view, Token>> user_defined;
        float lowest = std::numeric_limits<float>::max();
        for (std::size_t i = 0; i < vocabulary().size(); ++i) {
            const auto token = static_cast<Token>(i);
            if (vocabulary().is(token, kControl | kUnknown | kByte)) continue;
            const std::string_view text = vocabulary().text(token);
            if (vocabulary().is(token, kNormal))
                lowest = std::min(lowest, vocabulary().score(token));
            tokens.emplace_back(text, token);
            if (vocabulary().is(token, kUserDefined)) user_defined.emplace_back(text, token);
        }
        unknown_score_ = lowest - kUnknownPenalty;
        tokens_ = Trie(std::move(tokens));
        user_defined_ = Trie(std::move(user_defined));
    }
    std::string_view kind() const override { return "ugm"; }

  protected:
    void encode_fragments(std::span<const Fragment> fragments, std::size_t text_bytes,
                          std::vector<Token>& output) const override;
    std::string normal_piece(Token token) const override {
        const std::string_view text = vocabulary().text(token);
        const int byte = vocabulary().is(token, kByte) ? Vocabulary::byte_value(text) : -1;
        if (byte >= 0) return std::string(1, static_cast<char>(byte));
        return vocabulary().is(token, kNormal) ? unescaped_spaces(text) : std::string();
    }

  private:
    struct Step {
        double score = -std::numeric_limits<double>::max();  // of the best way to get here
        std::uint32_t begin = 0;                             // of its last token
        Token token = kNoToken;                              // unknown
    };

    std::string normalize(std::string_view text) const;
    void encode_text(std::string_view text, std::vector<Token>& output) const;
    std::vector<Step> best_steps(std::string_view text) const;

    Charsmap charsmap_;
    Trie tokens_;
    Trie user_defined_;
    double unknown_score_ = 0;
};

void UgmTokenizer::encode_fragments(std::span<const Fragment> fragments, std::size_t,
                                    std::vector<Token>& output) const {
    for (const Fragment& fragment : fragments) {
        if (fragment.token != kNoToken) {
            output.push_back(fragment.token);
        } else {
            encode_text(normalize(fragment.text), output);
        }
    }
}

std::string UgmTokenizer::normalize(std::string_view text) const {
    const bool merge_spaces = vocabulary().flags().remove_extra_whitespaces;
    std::string out;
    out.reserve(text.size() + text.size() / 2 + kEscapedSpace.size());
    bool prefix_due = vocabulary().flags().add_space_prefix;
    bool in_word = false;
    const auto add = [&](std::string_view part) {
        for (const char c : part) {
            if (c == ' ') {
                in_word = false;
                if (!merge_spaces) out.append(kEscapedSpace);
                continue;
            }
            if (!in_word && (prefix_due || (merge_spaces && !out.empty())))
                out.append(kEscapedSpace);
            prefix_due = false;
            in_word = true;
            out.push_back(c);
        }
    };
    while (!text.empty()) {
        std::size_t length = user_defined_.longest_prefix(text).length;
        std::string_view part = text.substr(0, length);
        if (length == 0) {
            const Charsmap::Replacement replacement = charsmap_.find(text);
            length = replacement.length;
            part = replacement.by;
        }
        if (length == 0) {
            length = utf8_length(static_cast<unsigned char>(text.front()));
            part = text.substr(0, length);
        }
        add(part);
        text.remove_prefix(std::min(length, text.size()));
    }
    return out;
}

std::vector<UgmTokenizer::Step> UgmTokenizer::best_steps(std::string_view text) const {
    std::vector<Step> steps(text.size() + 1);
    steps[0].score = 0;
    const auto offer = [&](std::size_t begin, std::size_t end, double score, Token token) {
        const double sum = steps[begin].score + score;
        if (sum > steps[end].score) steps[end] = {sum, static_cast<std::uint32_t>(begin), token};
    };
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t character = std::min<std::size_t>(
            utf8_length(static_cast<unsigned char>(text[at])), text.size() - at);
        bool covered = false;
        tokens_.for_each_prefix(text.substr(at), [&](std::size_t length, Token token) {
            covered = covered || length == character;
            const bool chosen = vocabulary().is(token, kUserDefined);
            offer(at, at + length, chosen ? 0.0 : double{vocabulary().score(token)}, token);
        });
        if (!covered) offer(at, at + character, unknown_score_, kNoToken);
        at += character;
    }
    return steps;
}

void UgmTokenizer::encode_text(std::string_view text, std::vector<Token>& output) const {
    if (text.empty()) return;
    const std::vector<Step> steps = best_steps(text);
    const auto first = static_cast<std::ptrdiff_t>(output.size());
    const Token unknown = vocabulary().specials().unk;
    bool after_unknown = false;
    for (std::size_t at = text.size(); at > 0; at = steps[at].begin) {
        const bool is_unknown = steps[at].token == kNoToken;
        if (!is_unknown) {
            output.push_back(steps[at].token);
        } else if (!after_unknown && unknown != kNoToken) {
            output.push_back(unknown);  // one for a run of them
        }
        after_unknown = is_unknown;
    }
    std::reverse(output.begin() + first, output.end());
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_ugm(const gguf::File& file) {
    const SpecialTokens specials{.eos = 1, .unk = 2, .pad = 0};
    VocabularyFlags flags;
    flags.add_eos = true;
    STET_ASSIGN(Vocabulary vocabulary, Vocabulary::load(file, specials, flags));
    STET_ASSIGN(Charsmap charsmap, Charsmap::load(file));
    return std::unique_ptr<Tokenizer>(
        std::make_unique<UgmTokenizer>(std::move(vocabulary), std::move(charsmap)));
}

}  // namespace stet::text
