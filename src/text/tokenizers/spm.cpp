// SentencePiece vocabularies with scores: characters are joined to ever longer tokens, the best
// score first; what no token covers falls back to byte tokens.
#include <array>
#include <bit>
#include <deque>

#include "base/try.h"
#include "text/tokenizers/merger.h"
#include "text/tokenizers/segmenter.h"
#include "text/tokenizers/tokenizer_base.h"
#include "text/tokenizers/word_cache.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

// Higher scores get lower ranks; never kNoRank.
std::uint32_t rank_of_score(float score) {
    const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0 and 0 are one score
    const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    return ~ascending == Join::kNoRank ? Join::kNoRank - 1 : ~ascending;
}

class SpmTokenizer final : public TokenizerBase {
  public:
    explicit SpmTokenizer(Vocabulary held) : TokenizerBase(std::move(held)) {
        fill_byte_tokens();
        for (std::size_t c = 0; c < byte_ids_.size(); ++c) {
            byte_ids_[c] = find_id(std::string(1, static_cast<char>(c)));
        }
        for (std::size_t i = 0; i < vocabulary().size(); ++i) {
            const auto token = static_cast<Token>(i);
            if (may_merge(token)) segmenter_.allow(vocabulary().text(token));
        }
    }
    std::string_view kind() const override { return "spm"; }

  protected:
    void encode_fragments(std::span<const Fragment> fragments, std::size_t text_bytes,
                          std::vector<Token>& output) const override;
    std::string normal_piece(Token token) const override;

  private:
    static constexpr std::uint32_t kNoId = 0xFFFFFFFE;

    // Text must not turn into a special token by merging: only parse_special does that.
    bool may_merge(Token token) const {
        return !vocabulary().is(token, kControl | kUnknown | kByte);
    }
    std::uint32_t find_id(std::string_view text) const {
        const Token token = vocabulary().find(text);
        return token != kNoToken && may_merge(token) ? static_cast<std::uint32_t>(token) : kNoId;
    }
    void merge_word(std::string_view word, Merger& merger, std::vector<Token>& output) const;

    Segmenter segmenter_;
    std::array<std::uint32_t, 256> byte_ids_{};  // most symbols are ASCII at first
};

std::string SpmTokenizer::normal_piece(Token token) const {
    const std::string_view text = vocabulary().text(token);
    if (vocabulary().is(token, kByte)) {
        const int value = Vocabulary::byte_value(text);
        return value < 0 ? std::string() : std::string(1, static_cast<char>(value));
    }
    return vocabulary().is(token, kNormal) ? unescaped_spaces(text) : std::string();
}

void SpmTokenizer::encode_fragments(std::span<const Fragment> fragments, std::size_t text_bytes,
                                    std::vector<Token>& output) const {
    WordCache cache(text_bytes);
    Merger merger;
    std::deque<std::string> texts;  // what cached words point into
    bool after_special = true;
    for (const Fragment& fragment : fragments) {
        if (fragment.token != kNoToken) {
            output.push_back(fragment.token);
            after_special = true;
            continue;
        }
        std::string& text = texts.emplace_back();
        text.reserve(fragment.text.size() + fragment.text.size() / 2 + kEscapedSpace.size());
        if (vocabulary().flags().add_space_prefix && after_special) text.append(kEscapedSpace);
        append_escaped_spaces(text, fragment.text);
        after_special = false;
        segmenter_.for_each(text, [&](std::string_view word) {
            cache.append(word, output, [&](std::string_view each, std::vector<Token>& tokens) {
                merge_word(each, merger, tokens);
            });
        });
    }
}

void SpmTokenizer::merge_word(std::string_view word, Merger& merger,
                              std::vector<Token>& output) const {
    const auto end = static_cast<std::uint32_t>(word.size());
    const auto first_at = [&](std::uint32_t at) -> Merger::First {
        const auto byte = static_cast<unsigned char>(word[at]);
        const std::size_t length = utf8_length(byte);
        return {static_cast<std::uint32_t>(length),
                length == 1 ? byte_ids_[byte] : find_id(word.substr(at, length))};
    };
    const auto left =
        merger.merge(end, first_at, [&](const auto& first, const auto&, std::uint32_t stop) {
            const std::uint32_t id = find_id(word.substr(first.start, stop - first.start));
            if (id == kNoId) return Join{};
            return Join{rank_of_score(vocabulary().score(static_cast<Token>(id))), id};
        });
    for (std::size_t i = 0; i < left.size(); ++i) {
        const std::uint32_t stop = i + 1 < left.size() ? left[i + 1].start : end;
        if (left[i].id != kNoId) {
            output.push_back(static_cast<Token>(left[i].id));
        } else {
            append_byte_tokens(word.substr(left[i].start, stop - left[i].start), output);
        }
    }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_spm(const gguf::File& file) {
    const SpecialTokens specials{.bos = 1, .eos = 2, .unk = 0};
    VocabularyFlags flags;
    flags.add_bos = true;
    flags.add_space_prefix = true;
    STET_ASSIGN(Vocabulary vocabulary, Vocabulary::load(file, specials, flags));
    return std::unique_ptr<Tokenizer>(std::make_unique<SpmTokenizer>(std::move(vocabulary)));
}

}  // namespace stet::text
