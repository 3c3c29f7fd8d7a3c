// Cuts a text at the special tokens written in it: longest texts first, then leftmost.
//
// Immutable; any thread may use it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocabulary.h"

namespace stet::text {

struct Fragment {
    std::string_view text;   // ordinary text, or empty
    Token token = kNoToken;  // else this special token
};

class SpecialCutter {
  public:
    SpecialCutter() = default;
    explicit SpecialCutter(const Vocabulary& vocabulary);

    // User-defined tokens are always cut out; control and unknown ones only with parse_special.
    // The fragments point into `text`.
    std::vector<Fragment> cut(const Vocabulary& vocabulary, std::string_view text,
                              bool parse_special) const;

  private:
    Trie all_;
    Trie user_defined_;
    bool strips_ = false;  // some token swallows white space beside it
};

}  // namespace stet::text
