#include "text/tokenizers/vocabulary.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace stet::text {
namespace {

// Far beyond any real vocabulary (262,144 tokens of 7 bytes); they bound what a hostile file costs.
constexpr std::size_t kTokenBytesMax = 64U << 10;
constexpr std::size_t kTextBytesMax = 64U << 20;
constexpr std::size_t kTokensMax = 16U << 20;

Status contradiction(const gguf::File& file, std::string what) {
    return {Code::corruption,
            fmt::format("vocabulary of {}: {}; get the file again or convert the model anew",
                        file.path().string(), what)};
}

std::uint8_t attribute_of(std::int64_t token_type) {
    switch (token_type) {
        case 1:
            return kNormal;
        case 2:
            return kUnknown;
        case 3:
            return kControl;
        case 4:
            return kUserDefined;
        case 5:
            return kUnused;
        case 6:
            return kByte;
        default:
            return 0;
    }
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

int Vocabulary::byte_value(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
    const int high = hex_digit(text[3]);
    const int low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Token Vocabulary::find(std::string_view text, std::uint64_t hash) const {
    if (text.empty() || text.size() > longest_text_bytes_) return kNoToken;
    const std::uint32_t index =
        index_.find(text, hash, [this](std::uint32_t i) { return view(i); });
    return index == TextIndex::kNone ? kNoToken : static_cast<Token>(index);
}

bool Vocabulary::is_end_of_generation(Token token) const {
    return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), token);
}

Result<Vocabulary> Vocabulary::load(const gguf::File& file, const SpecialTokens& default_specials,
                                    const VocabularyFlags& default_flags) {
    Vocabulary made;
    made.specials_ = default_specials;
    made.flags_ = default_flags;
    STET_TRY(made.read_tokens(file));
    STET_TRY(made.read_attributes(file));
    STET_TRY(made.read_scores(file));
    STET_TRY(made.read_specials(file));
    made.read_flags(file);
    made.detect_specials();
    made.mark_unused();
    made.collect_end_of_generation();
    made.fix_end_of_generation();
    for (std::size_t i = 0; i < made.size(); ++i) {
        const auto token = static_cast<Token>(i);
        if (made.is(token, kControl | kUserDefined | kUnknown))
            made.special_tokens_.push_back(token);
    }
    made.set_strip_rules(file);
    return made;
}

Status Vocabulary::read_tokens(const gguf::File& file) {
    const auto* tokens = file.get_strings("tokenizer.ggml.tokens");
    if (tokens == nullptr) {
        return contradiction(file, "tokenizer.ggml.tokens is missing or not a list of strings");
    }
    if (tokens->empty() || tokens->size() > kTokensMax) {
        return contradiction(
            file, fmt::format("{} tokens, expected 1 to {}", tokens->size(), kTokensMax));
    }
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tokens->size(); ++i) {
        const std::size_t length = (*tokens)[i].size();
        bytes += length;
        if (length > kTokenBytesMax || bytes > kTextBytesMax) {
            return contradiction(file,
                                 fmt::format("token {} of {} bytes, {} bytes so far; expected "
                                             "at most {} a token and {} in all",
                                             i, length, bytes, kTokenBytesMax, kTextBytesMax));
        }
    }
    arena_.reserve(bytes);
    begins_.reserve(tokens->size() + 1);
    begins_.push_back(0);
    index_.reset(tokens->size());
    for (std::size_t i = 0; i < tokens->size(); ++i) {
        if ((*tokens)[i].empty()) {
            fmt::format_to(std::back_inserter(arena_), "[EMPTY_{}]", i);  // ids need distinct texts
        } else {
            arena_.append((*tokens)[i]);
        }
        begins_.push_back(static_cast<std::uint32_t>(arena_.size()));
        longest_text_bytes_ =
            std::max<std::size_t>(longest_text_bytes_, begins_[i + 1] - begins_[i]);
    }
    for (std::uint32_t i = 0; i < tokens->size(); ++i) {
        index_.insert(view(i), i, [this](std::uint32_t held) { return view(held); });
    }
    return {};
}

Status Vocabulary::read_attributes(const gguf::File& file) {
    const std::size_t count = begins_.size() - 1;
    attributes_.assign(count, kNormal);
    if (!file.has("tokenizer.ggml.token_type")) return {};
    const auto* types = file.get_ints("tokenizer.ggml.token_type");
    if (types == nullptr || types->size() != count) {
        return contradiction(file, fmt::format("tokenizer.ggml.token_type has {} integers for {} "
                                               "tokens",
                                               types == nullptr ? 0 : types->size(), count));
    }
    std::transform(types->begin(), types->end(), attributes_.begin(), attribute_of);
    return {};
}

Status Vocabulary::read_scores(const gguf::File& file) {
    if (!file.has("tokenizer.ggml.scores")) return {};
    const auto* floats = file.get_floats("tokenizer.ggml.scores");
    const auto* ints = file.get_ints("tokenizer.ggml.scores");
    const std::size_t found = floats != nullptr ? floats->size()
                              : ints != nullptr ? ints->size()
                                                : 0;
    if (found != size()) {
        return contradiction(
            file, fmt::format("tokenizer.ggml.scores has {} numbers for {} tokens", found, size()));
    }
    scores_.resize(found);
    for (std::size_t i = 0; i < found; ++i) {
        scores_[i] =
            floats != nullptr ? static_cast<float>((*floats)[i]) : static_cast<float>((*ints)[i]);
        if (std::isnan(scores_[i])) {
            return contradiction(file, fmt::format("the score of token {} is not a number", i));
        }
    }
    return {};
}

Status Vocabulary::read_specials(const gguf::File& file) {
    struct Key {
        const char* name;
        Token* token;
        bool must_fit;  // a model that can't name its own begin and end is broken
    };
    SpecialTokens& s = specials_;
    const Key keys[] = {
        {"bos_token_id", &s.bos, true},          {"eos_token_id", &s.eos, true},
        {"eot_token_id", &s.eot, false},         {"eom_token_id", &s.eom, false},
        {"unknown_token_id", &s.unk, false},     {"seperator_token_id", &s.sep, false},
        {"padding_token_id", &s.pad, false},     {"mask_token_id", &s.mask, false},
        {"prefix_token_id", &s.fim_pre, false},  {"suffix_token_id", &s.fim_suf, false},
        {"middle_token_id", &s.fim_mid, false},  {"fim_pre_token_id", &s.fim_pre, false},
        {"fim_suf_token_id", &s.fim_suf, false}, {"fim_mid_token_id", &s.fim_mid, false},
        {"fim_pad_token_id", &s.fim_pad, false}, {"fim_rep_token_id", &s.fim_rep, false},
        {"fim_sep_token_id", &s.fim_sep, false},
    };
    for (const Key& key : keys) {
        if (!contains(*key.token)) *key.token = kNoToken;
        const std::string name = fmt::format("tokenizer.ggml.{}", key.name);
        const auto id = file.get_int(name);
        if (!id) continue;
        if (*id >= 0 && *id < static_cast<std::int64_t>(size())) {
            *key.token = static_cast<Token>(*id);
        } else if (*id == -1 || *id == 0xFFFFFFFF) {
            *key.token = kNoToken;  // how converters write "none"
        } else if (key.must_fit) {
            return contradiction(
                file, fmt::format("{} is {}, but there are {} tokens", name, *id, size()));
        }
    }
    return {};
}

void Vocabulary::read_flags(const gguf::File& file) {
    const auto read = [&file](const char* key, bool& flag) {
        if (const auto value = file.get_bool(key)) flag = *value;
    };
    read("tokenizer.ggml.add_bos_token", flags_.add_bos);
    read("tokenizer.ggml.add_eos_token", flags_.add_eos);
    read("tokenizer.ggml.add_space_prefix", flags_.add_space_prefix);
    read("tokenizer.ggml.remove_extra_whitespaces", flags_.remove_extra_whitespaces);
    if (file.get_bool("tokenizer.ggml.normalizer.lowercase")) {
        read("tokenizer.ggml.normalizer.lowercase", flags_.lowercase);
        flags_.strip_accents = flags_.lowercase;
    }
    read("tokenizer.ggml.normalizer.strip_accents", flags_.strip_accents);
    flags_.add_bos = flags_.add_bos || flags_.force_add_bos;
}

}  // namespace stet::text
