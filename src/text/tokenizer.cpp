#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <new>

#include "base/quote.h"
#include "base/try.h"
#include "text/tokenizers/tokenizer_base.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;

Result<std::unique_ptr<Tokenizer>> load_kind(const gguf::File& file) {
    const auto model = file.get_string("tokenizer.ggml.model");
    if (!model) {
        return Status(Code::corruption,
                      fmt::format("{} has no tokenizer.ggml.model; convert the model anew",
                                  file.path().string()));
    }
    if (*model == "llama") return load_spm(file);
    if (*model == "gpt2" || *model == "gemma4" || *model == "hybriddna" || *model == "whitespace") {
        return load_bpe(file, *model);
    }
    if (*model == "bert") return load_wpm(file);
    if (*model == "t5") return load_ugm(file);
    if (*model == "rwkv") return load_rwkv(file);
    if (*model == "plamo2") return load_plamo2(file);
    if (*model == "none" || *model == "no_vocab") return load_none(file);
    return Status(
        Code::unimplemented,
        fmt::format("tokenizer.ggml.model {} of {} is not supported; known: llama, gpt2, "
                    "gemma4, hybriddna, whitespace, bert, t5, rwkv, plamo2, none, no_vocab",
                    quote_name(*model), file.path().string()));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const gguf::File& file) {
    try {
        return load_kind(file);
    } catch (const std::bad_alloc&) {
        return Status(Code::resource_exhausted,
                      fmt::format("no memory for the vocabulary of {}", file.path().string()));
    } catch (const std::exception& error) {
        return Status(Code::internal,
                      fmt::format("vocabulary of {}: {}", file.path().string(), error.what()));
    }
}

Result<std::vector<Token>> TokenizerBase::encode(std::string_view text,
                                                 const EncodeOptions& options) const {
    if (text.size() > kTextBytesMax) {
        return Status(Code::invalid_argument,
                      fmt::format("text of {} bytes is too long to tokenize; at most {} fit",
                                  text.size(), kTextBytesMax));
    }
    try {
        std::string sanitized;
        if (!takes_any_bytes() && utf8_valid_prefix(text) != text.size()) {
            sanitized = utf8_sanitize(text);
            text = sanitized;
        }
        const std::vector<Fragment> fragments =
            cutter_.cut(vocabulary_, text, options.parse_special);
        std::vector<Token> output;
        output.reserve(text.size() / 4 + 8);
        if (options.add_special && adds_bos()) output.push_back(bos());
        encode_fragments(fragments, text.size(), output);
        if (options.add_special && last_token() != kNoToken) output.push_back(last_token());
        return output;
    } catch (const std::bad_alloc&) {
        return Status(Code::resource_exhausted,
                      fmt::format("no memory to tokenize {} bytes", text.size()));
    } catch (const std::exception& error) {
        return Status(Code::internal, fmt::format("tokenize: {}", error.what()));
    }
}

std::string TokenizerBase::piece(Token token, bool special) const {
    if (!vocabulary_.contains(token)) return {};
    if (vocabulary_.is(token, kControl | kUnknown)) {
        return special ? std::string(vocabulary_.text(token)) : std::string();
    }
    if (vocabulary_.is(token, kUserDefined)) return std::string(vocabulary_.text(token));
    return normal_piece(token);
}

// The space that encode() put before the text goes again, so that a text comes back as it was.
std::string TokenizerBase::decode(std::span<const Token> tokens, bool special) const {
    bool strip = vocabulary_.flags().add_space_prefix;
    std::string text;
    for (const Token token : tokens) {
        const std::string piece_text = piece(token, special);
        const bool ordinary = vocabulary_.contains(token) &&
                              !vocabulary_.is(token, kControl | kUnknown | kUserDefined);
        text.append(piece_text, strip && ordinary && piece_text.starts_with(' ') ? 1 : 0);
        strip = strip && !ordinary && piece_text.empty();
    }
    return text;
}

void TokenizerBase::fill_byte_tokens() {
    byte_tokens_.resize(256, kNoToken);
    for (int byte = 0; byte < 256; ++byte) {
        Token& token = byte_tokens_[static_cast<std::size_t>(byte)];
        token = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
        if (token == kNoToken && byte < 0x80) {
            token = vocabulary_.find(std::string(1, static_cast<char>(byte)));
        }
    }
}

void TokenizerBase::append_byte_tokens(std::string_view bytes, std::vector<Token>& output) const {
    for (const char byte : bytes) {
        Token token = byte_tokens_[static_cast<unsigned char>(byte)];
        if (token == kNoToken) token = vocabulary_.specials().unk;
        if (token != kNoToken) output.push_back(token);
    }
}

std::string StreamDecoder::add(Token token) {
    const bool is_shown = special_ || std::binary_search(shown_.begin(), shown_.end(), token);
    held_ += tokenizer_->piece(token, is_shown);
    std::string complete;
    std::size_t done = 0;
    while (done < held_.size()) {
        const std::string_view rest = std::string_view(held_).substr(done);
        const std::size_t valid = utf8_valid_prefix(rest);
        complete.append(rest.substr(0, valid));
        done += valid;
        if (valid == rest.size()) break;
        const Utf8Step step = utf8_step(rest, valid);
        if (step.cut_short) break;  // may still become a character
        complete.append(kReplacementUtf8);
        done += step.length;
    }
    held_.erase(0, done);
    return complete;
}

std::string StreamDecoder::finish() {
    std::string rest = utf8_sanitize(held_);
    held_.clear();
    return rest;
}

}  // namespace stet::text
