// The vocabulary of a model: token texts, kinds and scores, special tokens, flags. Read from the
// tokenizer.* keys of a GGUF file, checked, and independent of that file afterwards.
//
// Immutable after load(); any thread may read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "stet/status.h"
#include "text/tokenizer.h"
#include "text/tokenizers/flat_map.h"

namespace stet::text {

// What a token is; several may hold at once.
enum Attribute : std::uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 4,
    kUserDefined = 8,
    kUnused = 16,
    kByte = 32,
    kStripLeft = 64,    // swallows white space before it in the text
    kStripRight = 128,  // and after it
};

enum class Algorithm : std::uint8_t { none, spm, bpe, wpm, ugm, rwkv, plamo2 };

struct SpecialTokens {
    Token bos = kNoToken;
    Token eos = kNoToken;
    Token eot = kNoToken;
    Token eom = kNoToken;
    Token unk = kNoToken;
    Token sep = kNoToken;
    Token pad = kNoToken;
    Token mask = kNoToken;
    Token fim_pre = kNoToken;
    Token fim_suf = kNoToken;
    Token fim_mid = kNoToken;
    Token fim_pad = kNoToken;
    Token fim_rep = kNoToken;
    Token fim_sep = kNoToken;
};

struct VocabularyFlags {
    bool add_bos = false;
    bool add_eos = false;
    bool add_space_prefix = false;
    bool remove_extra_whitespaces = false;
    bool lowercase = true;
    bool strip_accents = true;
    bool force_add_bos = false;  // whatever the file says
};

class Vocabulary {
  public:
    // `defaults` come from the kind of tokenizer; the file's keys override them.
    static Result<Vocabulary> load(const gguf::File& file, const SpecialTokens& default_specials,
                                   const VocabularyFlags& default_flags);
    std::size_t size() const { return attributes_.size(); }
    bool contains(Token token) const {
        return token >= 0 && static_cast<std::size_t>(token) < size();
    }
    // The rest takes only tokens that contains() holds for.
    std::string_view text(Token token) const { return view(static_cast<std::uint32_t>(token)); }
    float score(Token token) const {
        return scores_.empty() ? 0.0F : scores_[static_cast<std::size_t>(token)];
    }
    bool is(Token token, unsigned attributes) const {
        return (attributes_[static_cast<std::size_t>(token)] & attributes) != 0;
    }
    bool is_end_of_generation(Token token) const;

    // Lowest id with this text, or kNoToken.
    Token find(std::string_view text) const { return find(text, hash_bytes(text)); }
    Token find(std::string_view text, std::uint64_t hash) const;
    void prefetch(std::uint64_t hash) const { index_.prefetch(hash); }
    std::size_t longest_text_bytes() const { return longest_text_bytes_; }

    const SpecialTokens& specials() const { return specials_; }
    const VocabularyFlags& flags() const { return flags_; }
    // Control, unknown and user-defined tokens: what a text is cut at.
    const std::vector<Token>& special_tokens() const { return special_tokens_; }

    // The byte that `<0x0A>` names, or -1 when the text has another form.
    static int byte_value(std::string_view text);

  private:
    Status read_tokens(const gguf::File& file);
    Status read_attributes(const gguf::File& file);
    Status read_scores(const gguf::File& file);
    Status read_specials(const gguf::File& file);
    void read_flags(const gguf::File& file);
    void detect_specials();
    void mark_unused();
    void collect_end_of_generation();
    void fix_end_of_generation();
    void set_strip_rules(const gguf::File& file);

    void add(unsigned attribute, Token token) {
        auto& held = attributes_[static_cast<std::size_t>(token)];
        held = static_cast<std::uint8_t>(held | attribute);
    }
    std::string_view view(std::uint32_t index) const {
        return std::string_view(arena_).substr(begins_[index], begins_[index + 1] - begins_[index]);
    }

    std::string arena_;                  // all texts, one after the other
    std::vector<std::uint32_t> begins_;  // one more than texts
    TextIndex index_;
    std::vector<std::uint8_t> attributes_;
    std::vector<float> scores_;
    std::size_t longest_text_bytes_ = 0;
    SpecialTokens specials_;
    VocabularyFlags flags_;
    std::vector<Token> special_tokens_;
    std::vector<Token> end_of_generation_;  // sorted
};

}  // namespace stet::text
