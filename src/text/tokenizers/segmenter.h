// Cuts a text where merging can't reach across: between two characters that stand side by side in
// no token. The pieces merge exactly as the whole would, but are short, so they can be cached.
//
// Built once, then only read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/unicode.h"

namespace stet::text {

class Segmenter {
  public:
    // All neighbours in this text may merge.
    void allow(std::string_view text) {
        char32_t last = 0;
        for (std::size_t at = 0; at < text.size();) {
            const Utf8Step step = utf8_step(text, at);
            if (at > 0) allow(last, step.codepoint);
            last = step.codepoint;
            at += step.length;
        }
    }
    // The end of `left` and the begin of `right` may merge.
    void allow_across(std::string_view left, std::string_view right) {
        if (left.empty() || right.empty()) return;
        std::size_t at = left.size() - 1;
        while (at > 0 && (static_cast<unsigned char>(left[at]) & 0xC0) == 0x80) --at;
        allow(utf8_step(left, at).codepoint, utf8_step(right, 0).codepoint);
    }

    // take(piece) for each piece of valid UTF-8, in order.
    template <typename Take>
    void for_each(std::string_view text, const Take& take) const {
        std::size_t begin = 0;
        char32_t last = 0;
        for (std::size_t at = 0; at < text.size();) {
            const Utf8Step step = utf8_step(text, at);
            if (at > begin && !allowed(last, step.codepoint)) {
                take(text.substr(begin, at - begin));
                begin = at;
            }
            last = step.codepoint;
            at += step.length;
        }
        if (begin < text.size()) take(text.substr(begin));
    }

  private:
    // Hashed: two pairs on one bit only make a cut less.
    static constexpr std::uint64_t kHashedBits = std::uint64_t{1} << 22;
    // ASCII and the escaped space have bits of their own, because most text is made of them.
    static constexpr std::uint64_t kPlain = 128;

    static char32_t plain(char32_t c) { return c == 0x2581 ? 127 : c; }
    static std::uint64_t bit_of(char32_t left, char32_t right) {
        const std::uint64_t a = plain(left);
        const std::uint64_t b = plain(right);
        if (a < kPlain && b < kPlain) return a * kPlain + b;
        const std::uint64_t mixed = (a << 32 | b) * 0x9E3779B97F4A7C15ULL;
        return kPlain * kPlain + (mixed >> 40) % kHashedBits;
    }
    void allow(char32_t left, char32_t right) {
        const std::uint64_t bit = bit_of(left, right);
        bits_[bit / 64] |= 1ULL << bit % 64;
    }
    bool allowed(char32_t left, char32_t right) const {
        const std::uint64_t bit = bit_of(left, right);
        return (bits_[bit / 64] >> bit % 64 & 1) != 0;
    }

    std::vector<std::uint64_t> bits_ =
        std::vector<std::uint64_t>((kHashedBits + kPlain * kPlain) / 64);
};

}  // namespace stet::text
