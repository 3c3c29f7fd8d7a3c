// A model without a vocabulary: ids only.
#include <fmt/format.h>

#include "base/quote.h"
#include "text/tokenizers/tokenizer_base.h"

namespace stet::text {
namespace {

constexpr std::uint64_t kSizeMax = 64U << 20;

class NoTokenizer final : public Tokenizer {
  public:
    explicit NoTokenizer(std::size_t size) : size_(size) {}

    Result<std::vector<Token>> encode(std::string_view text, const EncodeOptions&) const override {
        if (text.empty()) return std::vector<Token>();
        return Status(Code::unimplemented,
                      "the model has no vocabulary (tokenizer.ggml.model is none); give token ids");
    }
    std::string piece(Token, bool) const override { return {}; }
    std::string decode(std::span<const Token>, bool) const override { return {}; }
    std::size_t size() const override { return size_; }
    Token bos() const override { return kNoToken; }
    Token eos() const override { return kNoToken; }
    bool adds_bos() const override { return false; }
    bool adds_eos() const override { return false; }
    bool is_end_of_generation(Token) const override { return false; }
    bool is_control(Token) const override { return false; }
    Token find(std::string_view) const override { return kNoToken; }
    std::string_view kind() const override { return "none"; }

  private:
    std::size_t size_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_none(const gguf::File& file) {
    const std::string_view architecture = file.get_string("general.architecture").value_or("");
    const auto size = file.get_uint(fmt::format("{}.vocab_size", architecture)).value_or(0);
    if (size > kSizeMax) {
        return Status(Code::corruption,
                      fmt::format("{}.vocab_size of {} is {}, expected at most {}",
                                  quote_name(architecture), file.path().string(), size, kSizeMax));
    }
    return std::unique_ptr<Tokenizer>(
        std::make_unique<NoTokenizer>(static_cast<std::size_t>(size)));
}

}  // namespace stet::text
