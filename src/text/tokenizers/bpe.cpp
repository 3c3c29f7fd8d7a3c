// Byte pair encoding. Byte-level vocabularies write bytes in an alphabet of printable characters;
// raw ones (gemma4 and others) hold UTF-8 and fall back to byte tokens.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "base/quote.h"
#include "base/try.h"
#include "text/tokenizers/merger.h"
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/segmenter.h"
#include "text/tokenizers/tokenizer_base.h"
#include "text/tokenizers/word_cache.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

// Marks the k-mers of hybrid DNA vocabularies apart from ordinary tokens with the same letters.
constexpr std::string_view kKmerMark = "\xEE\x80\x80";
constexpr std::size_t kKmerLetters = 6;

class BpeTokenizer final : public TokenizerBase {
  public:
    BpeTokenizer(Vocabulary vocabulary, PreTokenizer pre, std::string_view model)
        : TokenizerBase(std::move(vocabulary)),
          pre_(std::move(pre)),
          is_dna_(model == "hybriddna"),
          drops_spaces_(model == "whitespace") {
        if (pre_.rules().raw) fill_byte_tokens();
    }
    std::string_view kind() const override { return "bpe"; }
    Status build(const gguf::File& file, const std::vector<std::string>* merges);

  protected:
    void encode_fragments(std::span<const Fragment> fragments, std::size_t text_bytes,
                          std::vector<Token>& output) const override;
    std::string normal_piece(Token token) const override;

  private:
    // One encode() call.
    struct Session {
        explicit Session(std::size_t text_bytes) : cache(text_bytes) {}
        PreTokenizer::Scratch pre;
        WordCache cache;
        Merger merger;
        std::string word;               // in the vocabulary's own writing
        std::deque<std::string> texts;  // what cached words point into
    };

    // Symbols are token ids, and beyond them the texts that merges name but no token has.
    std::uint32_t symbol_of(std::string_view text, std::uint64_t hash);
    std::uint32_t find_symbol(std::string_view text, std::uint64_t hash) const;
    // Merges are read a batch at a time, so that their look-ups wait for memory together.
    struct Merge {
        std::string text;  // both parts
        std::size_t left_bytes = 0;
        std::uint64_t hash[3] = {};  // of left, right and both
        std::uint32_t symbol[3] = {};

        std::string_view left() const { return std::string_view(text).substr(0, left_bytes); }
        std::string_view right() const { return std::string_view(text).substr(left_bytes); }
    };
    void read_merge(std::string_view line, std::size_t space, Merge& merge) const;
    void add_merges(std::span<Merge> merges, std::size_t first_rank);

    void encode_text(std::string_view text, Session& session, std::vector<Token>& output) const;
    void encode_dna(std::string_view text, Session& session, std::vector<Token>& output) const;
    void encode_kmers(std::string_view letters, Token unknown, std::vector<Token>& output) const;
    void encode_spaceless(std::string_view text, Session& session,
                          std::vector<Token>& output) const;
    void encode_piece(std::string_view text, Session& session, std::vector<Token>& output) const;
    void encode_metaspace(std::string_view word, Session& session,
                          std::vector<Token>& output) const;
    void encode_word(std::string_view word, Session& session, std::vector<Token>& output) const;
    Token whole_word(std::string_view word, Session& session) const;
    void merge_word(std::string_view word, Session& session, std::vector<Token>& output) const;
    void append_symbol(std::uint32_t symbol, std::string_view bytes,
                       std::vector<Token>& output) const;

    static constexpr std::uint32_t kNoSymbol = 0xFFFFFFFE;

    PreTokenizer pre_;
    bool is_dna_;
    bool drops_spaces_;
    PairMap merges_;
    Segmenter segmenter_;                            // raw vocabularies only
    std::array<std::uint32_t, 256> byte_symbols_{};  // of raw ones only ASCII is used
    std::deque<std::string> extra_texts_;
    TextIndex extra_index_;
};

std::uint32_t BpeTokenizer::find_symbol(std::string_view text, std::uint64_t hash) const {
    const Token token = vocabulary().find(text, hash);
    if (token != kNoToken) return static_cast<std::uint32_t>(token);
    if (extra_texts_.empty()) return kNoSymbol;
    const std::uint32_t extra = extra_index_.find(
        text, hash, [this](std::uint32_t i) { return std::string_view(extra_texts_[i]); });
    if (extra == TextIndex::kNone) return kNoSymbol;
    return static_cast<std::uint32_t>(vocabulary().size()) + extra;
}

std::uint32_t BpeTokenizer::symbol_of(std::string_view text, std::uint64_t hash) {
    const std::uint32_t found = find_symbol(text, hash);
    if (found != kNoSymbol) return found;
    const auto extra = static_cast<std::uint32_t>(extra_texts_.size());
    extra_texts_.emplace_back(text);
    extra_index_.insert(text, extra,
                        [this](std::uint32_t i) { return std::string_view(extra_texts_[i]); });
    return static_cast<std::uint32_t>(vocabulary().size()) + extra;
}

void BpeTokenizer::read_merge(std::string_view line, std::size_t space, Merge& merge) const {
    merge.text.assign(line.substr(0, space));
    merge.text.append(line.substr(space + 1));
    merge.left_bytes = space;
    merge.hash[0] = hash_bytes(merge.left());
    merge.hash[1] = hash_bytes(merge.right());
    merge.hash[2] = hash_bytes(merge.text);
    for (const std::uint64_t hash : merge.hash) vocabulary().prefetch(hash);
}

void BpeTokenizer::add_merges(std::span<Merge> merges, std::size_t first_rank) {
    for (Merge& merge : merges) {
        merge.symbol[0] = symbol_of(merge.left(), merge.hash[0]);
        merge.symbol[1] = symbol_of(merge.right(), merge.hash[1]);
        merge.symbol[2] = symbol_of(merge.text, merge.hash[2]);
        merges_.prefetch(merge.symbol[0], merge.symbol[1]);
    }
    for (const Merge& merge : merges) {
        const auto rank = static_cast<std::uint32_t>(first_rank++);
        const std::uint32_t merged = merge.symbol[2];
        // Text must not turn into a special token by merging: only parse_special does that.
        const bool special =
            merged < vocabulary().size() &&
            vocabulary().is(static_cast<Token>(merged), kControl | kUnknown | kByte);
        if (special) continue;
        merges_.insert(merge.symbol[0], merge.symbol[1], {rank, merged});
        if (pre_.rules().raw) segmenter_.allow_across(merge.left(), merge.right());
    }
}

Status BpeTokenizer::build(const gguf::File& file, const std::vector<std::string>* merges) {
    const std::size_t count = merges == nullptr ? 0 : merges->size();
    if (count >= Join::kNoRank / 4) {
        return {Code::corruption, fmt::format("{} has {} merges", file.path().string(), count)};
    }
    merges_ = PairMap(count);
    std::vector<Merge> batch(64);
    for (std::size_t first = 0; first < count; first += batch.size()) {
        const std::size_t some = std::min(batch.size(), count - first);
        for (std::size_t i = 0; i < some; ++i) {
            const std::string_view line = (*merges)[first + i];
            const std::size_t space = line.find(' ', 1);
            if (space == std::string_view::npos) {
                return {Code::corruption,
                        fmt::format("merge {} of {} is {}, expected two parts and a space between",
                                    first + i, file.path().string(), quote_name(line))};
            }
            read_merge(line, space, batch[i]);
        }
        add_merges(std::span(batch).first(some), first);
    }
    for (std::size_t byte = 0; byte < byte_symbols_.size(); ++byte) {
        const std::string text =
            pre_.rules().raw ? std::string(1, static_cast<char>(byte)) : byte_alphabet().text[byte];
        byte_symbols_[byte] = symbol_of(text, hash_bytes(text));
    }
    return {};
}

std::string BpeTokenizer::normal_piece(Token token) const {
    std::string_view text = vocabulary().text(token);
    if (vocabulary().is(token, kByte)) {
        const int value = Vocabulary::byte_value(text);
        return value < 0 ? std::string() : std::string(1, static_cast<char>(value));
    }
    if (!vocabulary().is(token, kNormal)) return {};
    if (is_dna_ && text.ends_with(kKmerMark)) text.remove_suffix(kKmerMark.size());
    if (pre_.rules().escape_spaces) return unescaped_spaces(text);
    return pre_.rules().raw ? std::string(text) : byte_decoded(text);
}

void BpeTokenizer::encode_fragments(std::span<const Fragment> fragments, std::size_t text_bytes,
                                    std::vector<Token>& output) const {
    Session session(text_bytes);
    for (const Fragment& fragment : fragments) {
        if (fragment.token != kNoToken) {
            output.push_back(fragment.token);
        } else if (pre_.rules().escape_spaces) {
            std::string& escaped = session.texts.emplace_back();
            escaped.reserve(fragment.text.size() + fragment.text.size() / 2);
            append_escaped_spaces(escaped, fragment.text);
            encode_text(escaped, session, output);
        } else {
            encode_text(fragment.text, session, output);
        }
    }
}

void BpeTokenizer::encode_text(std::string_view text, Session& session,
                               std::vector<Token>& output) const {
    if (is_dna_) {
        encode_dna(text, session, output);
    } else if (drops_spaces_) {
        encode_spaceless(text, session, output);
    } else {
        encode_piece(text, session, output);
    }
}

void BpeTokenizer::encode_dna(std::string_view text, Session& session,
                              std::vector<Token>& output) const {
    constexpr std::string_view kOpen = "<dna>";
    constexpr std::string_view kClose = "</dna>";
    const Token open = find(kOpen);
    const Token close = find(kClose);
    const Token unknown = find("<oov>");
    if (open == kNoToken || close == kNoToken || unknown == kNoToken) {
        encode_piece(text, session, output);
        return;
    }
    while (!text.empty()) {
        const std::size_t begin = text.find(kOpen);
        encode_piece(text.substr(0, begin), session, output);
        if (begin == std::string_view::npos) return;
        output.push_back(open);
        text.remove_prefix(begin + kOpen.size());
        const std::size_t end = text.find(kClose);
        encode_kmers(text.substr(0, end), unknown, output);
        if (end == std::string_view::npos) return;
        output.push_back(close);
        text.remove_prefix(end + kClose.size());
    }
}

void BpeTokenizer::encode_kmers(std::string_view letters, Token unknown,
                                std::vector<Token>& output) const {
    std::string kmer;
    for (std::size_t begin = 0; begin < letters.size(); begin += kKmerLetters) {
        kmer.assign(letters.substr(begin, kKmerLetters));
        std::transform(kmer.begin(), kmer.end(), kmer.begin(),
                       [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
        kmer.resize(kKmerLetters, 'A');
        kmer.append(kKmerMark);
        const Token token = find(kmer);
        output.push_back(token == kNoToken ? unknown : token);
    }
}

void BpeTokenizer::encode_spaceless(std::string_view text, Session& session,
                                    std::vector<Token>& output) const {
    std::string* part = nullptr;
    const auto flush = [&] {
        if (part != nullptr) encode_piece(*part, session, output);
        part = nullptr;
    };
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Step step = utf8_step(text, at);
        at += step.length;
        if (is_space(step.codepoint)) {
            flush();
            continue;
        }
        if (part == nullptr) part = &session.texts.emplace_back();
        utf8_append(*part,
                    vocabulary().flags().lowercase ? to_lower(step.codepoint) : step.codepoint);
    }
    flush();
}

void BpeTokenizer::encode_piece(std::string_view text, Session& session,
                                std::vector<Token>& output) const {
    pre_.for_each_word(text, session.pre, [&](std::string_view word) {
        if (pre_.rules().metaspace && word.find_first_not_of('\n') != std::string_view::npos) {
            encode_metaspace(word, session, output);
        } else {
            encode_word(word, session, output);
        }
    });
}

void BpeTokenizer::encode_metaspace(std::string_view word, Session& session,
                                    std::vector<Token>& output) const {
    if (!word.starts_with(kEscapedSpace)) {
        std::string& begun = session.texts.emplace_back(kEscapedSpace);
        begun.append(word);
        word = begun;
    }
    while (!word.empty()) {
        const std::size_t end =
            std::min(word.find(kEscapedSpace, kEscapedSpace.size()), word.size());
        encode_word(word.substr(0, end), session, output);
        word.remove_prefix(end);
    }
}

void BpeTokenizer::encode_word(std::string_view word, Session& session,
                               std::vector<Token>& output) const {
    const auto encode = [&](std::string_view each, std::vector<Token>& tokens) {
        const Token whole = whole_word(each, session);
        if (whole != kNoToken) {
            tokens.push_back(whole);
        } else {
            merge_word(each, session, tokens);
        }
    };
    const bool newlines = pre_.rules().whole_newlines && word.starts_with('\n');
    if (!pre_.rules().raw || pre_.rules().ignore_merges || newlines) {
        session.cache.append(word, output, encode);
        return;
    }
    // A raw word can be a whole line: it is cut where no merge can reach across.
    segmenter_.for_each(word,
                        [&](std::string_view part) { session.cache.append(part, output, encode); });
}

Token BpeTokenizer::whole_word(std::string_view word, Session& session) const {
    const bool newlines = pre_.rules().whole_newlines && word.starts_with('\n');
    if (!pre_.rules().ignore_merges && !newlines) return kNoToken;
    if (word.size() > vocabulary().longest_text_bytes()) return kNoToken;
    Token token = kNoToken;
    if (pre_.rules().raw) {
        token = find(word);
    } else {
        session.word.clear();
        append_byte_encoded(session.word, word);
        token = find(session.word);
    }
    return token != kNoToken && vocabulary().is(token, kControl | kUnknown) ? kNoToken : token;
}

void BpeTokenizer::merge_word(std::string_view word, Session& session,
                              std::vector<Token>& output) const {
    const auto end = static_cast<std::uint32_t>(word.size());
    const auto first_at = [&](std::uint32_t at) -> Merger::First {
        const auto byte = static_cast<unsigned char>(word[at]);
        const std::size_t length = pre_.rules().raw ? utf8_length(byte) : 1;
        if (length == 1) return {1, byte_symbols_[byte]};
        const std::string_view character = word.substr(at, length);
        return {static_cast<std::uint32_t>(length), find_symbol(character, hash_bytes(character))};
    };
    const auto left = session.merger.merge(
        end, first_at, [this](const auto& first, const auto& second, std::uint32_t) {
            return merges_.find(first.id, second.id);
        });
    for (std::size_t i = 0; i < left.size(); ++i) {
        const std::uint32_t stop = i + 1 < left.size() ? left[i + 1].start : end;
        append_symbol(left[i].id, word.substr(left[i].start, stop - left[i].start), output);
    }
}

void BpeTokenizer::append_symbol(std::uint32_t symbol, std::string_view bytes,
                                 std::vector<Token>& output) const {
    if (symbol < vocabulary().size()) {
        output.push_back(static_cast<Token>(symbol));
    } else if (pre_.rules().raw) {
        append_byte_tokens(bytes, output);
    } else {
        for (const char byte : bytes) {
            const std::uint32_t single = byte_symbols_[static_cast<unsigned char>(byte)];
            if (single < vocabulary().size()) output.push_back(static_cast<Token>(single));
        }
    }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_bpe(const gguf::File& file, std::string_view model) {
    const bool gemma = model == "gemma4";
    const std::string_view name =
        gemma ? "gemma4" : file.get_string("tokenizer.ggml.pre").value_or("default");
    STET_ASSIGN(PreTokenizer pre, PreTokenizer::make(name.empty() ? "default" : name));
    SpecialTokens specials;
    if (!gemma) specials.eos = 11;
    if (!gemma && !pre.rules().no_bos) specials.bos = 11;
    VocabularyFlags flags;
    flags.add_bos = pre.rules().add_bos;
    flags.force_add_bos = pre.rules().force_add_bos;
    if (name == "whitespace") flags.lowercase = false;
    STET_ASSIGN(Vocabulary vocabulary, Vocabulary::load(file, specials, flags));
    const auto* merges = file.get_strings("tokenizer.ggml.merges");
    if (merges == nullptr && name != "kimi-k2") {
        return Status(Code::corruption,
                      fmt::format("{} has no list of strings tokenizer.ggml.merges, which its "
                                  "tokenizer needs; convert the model anew",
                                  file.path().string()));
    }
    auto made = std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(pre), model);
    STET_TRY(made->build(file, merges));
    return std::unique_ptr<Tokenizer>(std::move(made));
}

}  // namespace stet::text
