// WordPiece, as BERT has it: text is cleaned and split into words and punctuation; each word is
// covered by the longest tokens from its left, or is unknown as a whole.
#include "base/try.h"
#include "text/tokenizers/tokenizer_base.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

// The library that trained these models gives up on longer words, so they never saw them in parts.
constexpr std::size_t kWordCharactersMax = 100;

bool is_cjk(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool stands_alone(char32_t c) {
    const bool ascii = (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
                       (c > 'z' && c < 0x7F);
    return ascii || is_punctuation(c) || is_cjk(c);
}

class WpmTokenizer final : public TokenizerBase {
  public:
    explicit WpmTokenizer(Vocabulary held) : TokenizerBase(std::move(held)) {
        std::vector<std::pair<std::string_view, Token>> entries;
        for (std::size_t i = 0; i < vocabulary().size(); ++i) {
            const auto token = static_cast<Token>(i);
            if (vocabulary().is(token, kControl | kUnknown)) continue;
            entries.emplace_back(vocabulary().text(token), token);
        }
        trie_ = Trie(std::move(entries));
    }
    std::string_view kind() const override { return "wpm"; }
    std::string decode(std::span<const Token> tokens, bool special) const override;

  protected:
    void encode_fragments(std::span<const Fragment> fragments, std::size_t text_bytes,
                          std::vector<Token>& output) const override;
    std::string normal_piece(Token token) const override {
        return vocabulary().is(token, kNormal) ? unescaped_spaces(vocabulary().text(token))
                                               : std::string();
    }
    Token last_token() const override { return vocabulary().specials().sep; }

  private:
    // A word starts with U+2581, the mark of tokens that begin words in this vocabulary's form.
    struct Word {
        std::string text = std::string(kEscapedSpace);
        std::size_t characters = 0;
    };

    void encode_text(std::string_view text, std::vector<Token>& output) const;
    void add_character(char32_t c, Word& word, std::vector<Token>& output) const;
    void end_word(Word& word, std::vector<Token>& output) const;

    Trie trie_;
};

void WpmTokenizer::encode_fragments(std::span<const Fragment> fragments, std::size_t,
                                    std::vector<Token>& output) const {
    for (const Fragment& fragment : fragments) {
        if (fragment.token != kNoToken) {
            output.push_back(fragment.token);
        } else {
            encode_text(fragment.text, output);
        }
    }
}

void WpmTokenizer::encode_text(std::string_view text, std::vector<Token>& output) const {
    Word word;
    if (vocabulary().flags().strip_accents) {
        for (const char32_t c : nfd(text)) {
            if (!is_nonspacing_mark(c)) add_character(c, word, output);
        }
    } else {
        for (std::size_t at = 0; at < text.size();) {
            const Utf8Step step = utf8_step(text, at);
            add_character(step.codepoint, word, output);
            at += step.length;
        }
    }
    end_word(word, output);
}

void WpmTokenizer::add_character(char32_t c, Word& word, std::vector<Token>& output) const {
    if (is_space(c)) {
        end_word(word, output);
        return;
    }
    if (c == 0 || c == 0xFFFD || text::is_control(c)) return;
    const bool alone = stands_alone(c);
    if (alone) end_word(word, output);
    if (word.characters <= kWordCharactersMax) {
        utf8_append(word.text, vocabulary().flags().lowercase ? to_lower(c) : c);
    }
    ++word.characters;
    if (alone) end_word(word, output);
}

void WpmTokenizer::end_word(Word& word, std::vector<Token>& output) const {
    if (word.characters == 0) return;
    const std::size_t first = output.size();
    std::string_view rest = word.text;
    bool known = word.characters <= kWordCharactersMax;
    while (known && !rest.empty()) {
        const Trie::Match match = trie_.longest_prefix(rest);
        known = match.length > 0;
        if (known) output.push_back(match.value);
        rest.remove_prefix(match.length);
    }
    if (!known) {
        output.resize(first);
        const Token unknown = vocabulary().specials().unk;
        if (unknown != kNoToken) output.push_back(unknown);
    }
    word = Word();
}

// Words come back with a space before each; those that people don't write are taken out.
std::string WpmTokenizer::decode(std::span<const Token> tokens, bool special) const {
    const std::string joined = TokenizerBase::decode(tokens, special);
    std::string text;
    for (std::size_t i = 0; i < joined.size(); ++i) {
        const std::string_view next = std::string_view(joined).substr(i + 1);
        const bool dropped =
            joined[i] == ' ' &&
            (text.empty() || next.starts_with('?') || next.starts_with('!') ||
             next.starts_with('.') || next.starts_with(',') || next.starts_with("'s") ||
             next.starts_with("'m") || next.starts_with("'re") || next.starts_with("'ve"));
        if (!dropped) text.push_back(joined[i]);
    }
    return text;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_wpm(const gguf::File& file) {
    const SpecialTokens specials{.bos = 101, .unk = 100, .sep = 102, .pad = 0, .mask = 103};
    VocabularyFlags flags;
    flags.add_bos = true;
    flags.force_add_bos = true;
    STET_ASSIGN(Vocabulary vocabulary, Vocabulary::load(file, specials, flags));
    return std::unique_ptr<Tokenizer>(std::make_unique<WpmTokenizer>(std::move(vocabulary)));
}

}  // namespace stet::text
