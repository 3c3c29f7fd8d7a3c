// Text to token ids and back, from the vocabulary inside a GGUF file.
//
// A Tokenizer is immutable after load(); any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/gguf.h"
#include "stet/status.h"

namespace stet::text {

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

struct EncodeOptions {
    bool add_special = true;     // bos / eos as the model's flags say
    bool parse_special = false;  // control tokens written in the text become their ids
};

class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    // unimplemented, naming tokenizer.ggml.model or .pre, when the kind is unknown; corruption when
    // the vocabulary contradicts itself.
    static Result<std::unique_ptr<Tokenizer>> load(const gguf::File& file);

    virtual Result<std::vector<Token>> encode(std::string_view text,
                                              const EncodeOptions& options) const = 0;
    // Bytes of one token; may end inside a UTF-8 sequence. Control tokens are "" unless `special`.
    virtual std::string piece(Token token, bool special) const = 0;
    // The text of a whole list. Differs from joined pieces where the kind strips a leading space.
    virtual std::string decode(std::span<const Token> tokens, bool special) const = 0;

    virtual std::size_t size() const = 0;
    virtual Token bos() const = 0;  // kNoToken when the model has none
    virtual Token eos() const = 0;
    virtual bool adds_bos() const = 0;
    virtual bool adds_eos() const = 0;
    virtual bool is_end_of_generation(Token token) const = 0;
    virtual bool is_control(Token token) const = 0;
    // Id of the token with exactly this text (as stored in the vocabulary), or kNoToken.
    virtual Token find(std::string_view text) const = 0;
    virtual std::string_view kind() const = 0;  // "bpe", "spm", ...
};

// Joins the pieces of a growing answer and holds back a UTF-8 sequence that is not complete yet,
// so that what is printed is always valid text.
class StreamDecoder {
  public:
    // `shown`, sorted: control tokens that come as text even without `special`.
    explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false,
                           std::vector<Token> shown = {})
        : tokenizer_(&tokenizer), special_(special), shown_(std::move(shown)) {}
    std::string add(Token token);  // text that is complete now; may be empty
    std::string finish();          // what was held back, broken sequences as U+FFFD

  private:
    const Tokenizer* tokenizer_;
    bool special_;
    std::vector<Token> shown_;
    std::string held_;
};

}  // namespace stet::text
