// Words recur: remembers, within one encode() call, where in the output the tokens of a word lie.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizers/flat_map.h"

namespace stet::text {

// Direct-mapped. The words given must stay where they are for the cache's life, and the output may
// only grow.
class WordCache {
  public:
    // Sized for a text of `text_bytes`; a short text isn't worth a cache.
    explicit WordCache(std::size_t text_bytes) {
        if (text_bytes < 512) return;
        slots_.resize(text_bytes < 16384 ? 512 : 8192);
    }

    // Encodes through encode(word, output), unless the same word was encoded before.
    template <typename Encode>
    void append(std::string_view word, std::vector<Token>& output, const Encode& encode) {
        if (slots_.empty() || word.size() > kWordBytesMax) {
            encode(word, output);
            return;
        }
        Slot& slot = slots_[hash_bytes(word) & (slots_.size() - 1)];
        const std::size_t begin = output.size();
        if (slot.word == word && !slot.word.empty()) {
            output.resize(begin + slot.count);
            for (std::size_t i = 0; i < slot.count; ++i) output[begin + i] = output[slot.begin + i];
            return;
        }
        encode(word, output);
        slot = {word, begin, output.size() - begin};
    }

  private:
    static constexpr std::size_t kWordBytesMax = 128;
    struct Slot {
        std::string_view word;
        std::size_t begin = 0;  // of its tokens in the output
        std::size_t count = 0;
    };
    std::vector<Slot> slots_;
};

}  // namespace stet::text
