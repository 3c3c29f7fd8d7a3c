// Vocabularies small enough to be made in a moment, one of every kind and one for every family of
// pre-tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace stet::fuzz {

// What a vocabulary promises of texts that are valid UTF-8 and have no U+2581.
enum class Keeps : std::uint8_t { bytes, text, nothing };

inline constexpr std::string_view kSpecial = "<|s|>";

struct SmallVocabulary {
    std::string name;
    Keeps keeps = Keeps::nothing;  // bytes: of any text; text: of valid UTF-8
    std::unique_ptr<text::Tokenizer> tokenizer;
    text::Token special = text::kNoToken;  // kSpecial, a control token
};

// Made at the first call; aborts when one can't be loaded.
const std::vector<SmallVocabulary>& small_vocabularies();

}  // namespace stet::fuzz
