// SentencePiece's precompiled_charsmap: which character sequences a text's normal form replaces.
//
// Layout, little-endian: u32 size of the trie; the trie, a double array of u32 units packed as
// darts-clone does; then the replacements, each ended by a NUL. Every look-up is bounds-checked: a
// damaged map replaces less, and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "stet/status.h"

namespace stet::text {

class Charsmap {
  public:
    // An absent map replaces nothing. corruption when the sizes contradict each other.
    static Result<Charsmap> load(const gguf::File& file);

    struct Replacement {
        std::size_t length = 0;  // bytes of the text that are replaced; 0: none
        std::string_view by;
    };
    // The longest sequence that `text` begins with and that has a replacement. Both have at most
    // 64 bytes.
    Replacement find(std::string_view text) const;

  private:
    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace stet::text
