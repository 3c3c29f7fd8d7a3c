// Two open-addressing maps for the hot paths of tokenizers. Both are built once and then only
// read; they keep their load at or below two thirds.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace stet::text {

std::uint64_t hash_bytes(std::string_view bytes);

// Text -> index of a caller's table, which also keeps the texts.
class TextIndex {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    explicit TextIndex(std::size_t expected = 0) { reset(expected); }
    void reset(std::size_t expected) {
        slots_.assign(std::bit_ceil(expected + expected / 2 + 8), Slot{});
        size_ = 0;
    }
    // Brings the slot of a text into the cache, for those who look up many.
    void prefetch(std::uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask()]); }
    // text_of(index) -> std::string_view of an index that was inserted.
    template <typename TextOf>
    std::uint32_t find(std::string_view text, std::uint64_t hash, const TextOf& text_of) const {
        for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
            const Slot& slot = slots_[at];
            if (slot.index == kNone) return kNone;
            if (slot.tag == tag_of(hash) && text_of(slot.index) == text) return slot.index;
        }
    }
    // Keeps the first index when the text is there already.
    template <typename TextOf>
    void insert(std::string_view text, std::uint32_t index, const TextOf& text_of) {
        if (size_ + 1 > slots_.size() / 3 * 2) grow(text_of);
        const std::uint64_t hash = hash_bytes(text);
        std::size_t at = hash & mask();
        for (; slots_[at].index != kNone; at = (at + 1) & mask()) {
            if (slots_[at].tag == tag_of(hash) && text_of(slots_[at].index) == text) return;
        }
        slots_[at] = {index, tag_of(hash)};
        ++size_;
    }

  private:
    struct Slot {
        std::uint32_t index = kNone;
        std::uint32_t tag = 0;
    };
    static std::uint32_t tag_of(std::uint64_t hash) {
        return static_cast<std::uint32_t>(hash >> 32);
    }
    std::size_t mask() const { return slots_.size() - 1; }
    template <typename TextOf>
    void grow(const TextOf& text_of) {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.index == kNone) continue;
            std::size_t at = hash_bytes(text_of(slot.index)) & mask();
            while (slots_[at].index != kNone) at = (at + 1) & mask();
            slots_[at] = slot;
        }
    }
    std::vector<Slot> slots_;
    std::size_t size_ = 0;
};

// What two neighbouring symbols become, and how soon: the lowest rank goes first.
struct Join {
    static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
    std::uint32_t rank = kNoRank;
    std::uint32_t merged = 0;
};

// Pair of symbol ids -> Join. The pair (0xFFFFFFFF, 0xFFFFFFFF) can't be a key.
class PairMap {
  public:
    explicit PairMap(std::size_t expected = 0)
        : slots_(std::bit_ceil(expected + expected / 2 + 8)) {}

    // Keeps the first; ignores what is beyond the expected number.
    void insert(std::uint32_t left, std::uint32_t right, Join join) {
        if (size_ + 1 > slots_.size() / 3 * 2) return;
        const std::uint64_t key = key_of(left, right);
        std::size_t at = start(key);
        for (; slots_[at].key != kEmpty; at = (at + 1) & mask()) {
            if (slots_[at].key == key) return;
        }
        slots_[at] = {key, join};
        ++size_;
    }
    void prefetch(std::uint32_t left, std::uint32_t right) const {
        __builtin_prefetch(&slots_[start(key_of(left, right))]);
    }
    Join find(std::uint32_t left, std::uint32_t right) const {
        const std::uint64_t key = key_of(left, right);
        for (std::size_t at = start(key);; at = (at + 1) & mask()) {
            if (slots_[at].key == key) return slots_[at].join;
            if (slots_[at].key == kEmpty) return {};
        }
    }

  private:
    static constexpr std::uint64_t kEmpty = ~0ULL;
    struct Slot {
        std::uint64_t key = kEmpty;
        Join join;
    };
    static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) {
        return std::uint64_t{left} << 32 | right;
    }
    std::size_t start(std::uint64_t key) const {
        key *= 0x9E3779B97F4A7C15ULL;  // Fibonacci hashing; the high bits are the mixed ones
        return (key ^ key >> 29) >> 20 & mask();
    }
    std::size_t mask() const { return slots_.size() - 1; }
    std::vector<Slot> slots_;
    std::size_t size_ = 0;
};

}  // namespace stet::text
