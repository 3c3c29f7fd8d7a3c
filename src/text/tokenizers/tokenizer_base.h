// What all kinds of tokenizer share: the vocabulary, cutting at special tokens, bos and eos, and
// the look-ups of Tokenizer. A kind adds how ordinary text becomes tokens and back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/gguf.h"
#include "text/tokenizer.h"
#include "text/tokenizers/special_cutter.h"
#include "text/tokenizers/vocabulary.h"

namespace stet::text {

class TokenizerBase : public Tokenizer {
  public:
    Result<std::vector<Token>> encode(std::string_view text,
                                      const EncodeOptions& options) const final;
    std::string piece(Token token, bool special) const final;
    std::string decode(std::span<const Token> tokens, bool special) const override;

    std::size_t size() const final { return vocabulary_.size(); }
    Token bos() const final { return vocabulary_.specials().bos; }
    Token eos() const final { return vocabulary_.specials().eos; }
    bool adds_bos() const final { return vocabulary_.flags().add_bos && bos() != kNoToken; }
    bool adds_eos() const final { return vocabulary_.flags().add_eos && eos() != kNoToken; }
    bool is_end_of_generation(Token token) const final {
        return vocabulary_.is_end_of_generation(token);
    }
    bool is_control(Token token) const final {
        return vocabulary_.contains(token) && vocabulary_.is(token, kControl);
    }
    Token find(std::string_view text) const final { return vocabulary_.find(text); }

  protected:
    explicit TokenizerBase(Vocabulary vocabulary)
        : vocabulary_(std::move(vocabulary)), cutter_(vocabulary_) {}

    const Vocabulary& vocabulary() const { return vocabulary_; }
    // True if the kind works on bytes; else encode_fragments gets valid UTF-8.
    virtual bool takes_any_bytes() const { return false; }
    // Appends the tokens of all fragments; `text_bytes` is their length in all.
    virtual void encode_fragments(std::span<const Fragment> fragments, std::size_t text_bytes,
                                  std::vector<Token>& output) const = 0;
    // Bytes of a token that is neither control nor unknown nor user-defined nor unused.
    virtual std::string normal_piece(Token token) const = 0;
    virtual Token last_token() const { return adds_eos() ? eos() : kNoToken; }
    // Appends the byte tokens `<0xXX>` for `bytes`; those that don't exist become unk, if any.
    void append_byte_tokens(std::string_view bytes, std::vector<Token>& output) const;
    void fill_byte_tokens();

  private:
    Vocabulary vocabulary_;
    SpecialCutter cutter_;
    std::vector<Token> byte_tokens_;  // 256 once filled
};

// One a kind; see Tokenizer::load for errors.
Result<std::unique_ptr<Tokenizer>> load_bpe(const gguf::File& file, std::string_view model);
Result<std::unique_ptr<Tokenizer>> load_spm(const gguf::File& file);
Result<std::unique_ptr<Tokenizer>> load_wpm(const gguf::File& file);
Result<std::unique_ptr<Tokenizer>> load_ugm(const gguf::File& file);
Result<std::unique_ptr<Tokenizer>> load_rwkv(const gguf::File& file);
Result<std::unique_ptr<Tokenizer>> load_plamo2(const gguf::File& file);
Result<std::unique_ptr<Tokenizer>> load_none(const gguf::File& file);

}  // namespace stet::text
