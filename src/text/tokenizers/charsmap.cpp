#include "text/tokenizers/charsmap.h"

#include <fmt/format.h>

#include <algorithm>

namespace stet::text {
namespace {

// The real map has keys of 10 bytes and replacements of 33 at most. A made-up one must neither walk
// the same units over and over nor make a text a thousand times as long.
constexpr std::size_t kKeyBytesMax = 64;
constexpr std::size_t kReplacementBytesMax = 64;

// A unit: bits 0-7 label and bit 31 together must equal the label walked; bit 8 says that a value
// follows; bits 10-30 are the offset, in steps of 256 if bit 9 is set.
std::uint32_t offset_of(std::uint32_t unit) {
    return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
std::uint32_t label_of(std::uint32_t unit) {
    return unit & ((1U << 31) | 0xFFU);
}
bool has_value(std::uint32_t unit) {
    return (unit >> 8 & 1) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
    return unit & ((1U << 31) - 1);
}

}  // namespace

Result<Charsmap> Charsmap::load(const gguf::File& file) {
    constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
    Charsmap map;
    if (!file.has(kKey)) return map;
    const auto* values = file.get_ints(kKey);
    const std::size_t found = values == nullptr ? 0 : values->size();
    const auto corrupt = [&](std::string_view what) {
        return Status(Code::corruption, fmt::format("{} of {}: {}; convert the model anew", kKey,
                                                    file.path().string(), what));
    };
    if (found < 4) return corrupt(fmt::format("{} bytes, expected at least 4", found));
    const auto byte_at = [values](std::size_t i) {
        return static_cast<std::uint32_t>((*values)[i]) & 0xFFU;
    };
    const auto unit_at = [&](std::size_t i) {
        return byte_at(i) | byte_at(i + 1) << 8 | byte_at(i + 2) << 16 | byte_at(i + 3) << 24;
    };
    const std::size_t trie_bytes = unit_at(0);
    if (trie_bytes > found - 4 || trie_bytes % 4 != 0) {
        return corrupt(fmt::format("a trie of {} bytes in {} bytes", trie_bytes, found - 4));
    }
    map.units_.reserve(trie_bytes / 4);
    for (std::size_t i = 4; i < 4 + trie_bytes; i += 4) map.units_.push_back(unit_at(i));
    map.replacements_.reserve(found - 4 - trie_bytes);
    for (std::size_t i = 4 + trie_bytes; i < found; ++i) {
        map.replacements_.push_back(static_cast<char>(byte_at(i)));
    }
    return map;
}

Charsmap::Replacement Charsmap::find(std::string_view text) const {
    if (units_.empty()) return {};
    Replacement found;
    std::size_t node = offset_of(units_[0]);
    for (std::size_t i = 0; i < std::min(text.size(), kKeyBytesMax); ++i) {
        const auto label = static_cast<unsigned char>(text[i]);
        if (label == 0) break;
        node ^= label;
        if (node >= units_.size() || label_of(units_[node]) != label) break;
        const bool ends = has_value(units_[node]);
        node ^= offset_of(units_[node]);
        if (node >= units_.size()) break;
        if (!ends) continue;
        const std::size_t begin = value_of(units_[node]);
        if (begin >= replacements_.size()) continue;
        const std::string_view by =
            std::string_view(replacements_).substr(begin, kReplacementBytesMax + 1);
        const std::size_t end = by.find('\0');
        if (end == std::string_view::npos) continue;
        found = {i + 1, by.substr(0, end)};
    }
    return found;
}

}  // namespace stet::text
