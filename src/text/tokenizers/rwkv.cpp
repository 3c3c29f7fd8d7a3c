// RWKV's world vocabulary: the longest token that fits, byte by byte. Tokens are any bytes and are
// stored escaped.
#include "base/try.h"
#include "text/tokenizers/tokenizer_base.h"

namespace stet::text {
namespace {

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

std::string unescape(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 == text.size()) {
            out.push_back(text[i]);
            continue;
        }
        const char kind = text[++i];
        if (kind == 'x' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
            hex_value(text[i + 2]) >= 0) {
            out.push_back(static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2])));
            i += 2;
        } else {
            out.push_back(kind == 't' ? '\t' : kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind);
        }
    }
    return out;
}

class RwkvTokenizer final : public TokenizerBase {
  public:
    explicit RwkvTokenizer(Vocabulary held) : TokenizerBase(std::move(held)) {
        std::vector<std::string> texts(vocabulary().size());
        std::vector<std::pair<std::string_view, Token>> entries;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const auto token = static_cast<Token>(i);
            if (vocabulary().is(token, kControl | kUnknown)) continue;
            texts[i] = unescape(vocabulary().text(token));
            entries.emplace_back(texts[i], token);
        }
        trie_ = Trie(std::move(entries));
    }
    std::string_view kind() const override { return "rwkv"; }

  protected:
    bool takes_any_bytes() const override { return true; }
    std::string normal_piece(Token token) const override {
        return unescape(vocabulary().text(token));
    }
    void encode_fragments(std::span<const Fragment> fragments, std::size_t,
                          std::vector<Token>& output) const override {
        for (const Fragment& fragment : fragments) {
            if (fragment.token != kNoToken) {
                output.push_back(fragment.token);
                continue;
            }
            std::string_view rest = fragment.text;
            while (!rest.empty()) {
                const Trie::Match match = trie_.longest_prefix(rest);
                const Token token = match.length > 0 ? match.value : vocabulary().specials().unk;
                if (token != kNoToken) output.push_back(token);
                rest.remove_prefix(match.length > 0 ? match.length : 1);
            }
        }
    }

  private:
    Trie trie_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_rwkv(const gguf::File& file) {
    STET_ASSIGN(Vocabulary vocabulary, Vocabulary::load(file, {}, {}));
    return std::unique_ptr<Tokenizer>(std::make_unique<RwkvTokenizer>(std::move(vocabulary)));
}

}  // namespace stet::text
