// The merging loop that byte pair encoding and SentencePiece share: of all neighbouring pairs, the
// one with the lowest rank is joined first, the leftmost of equals. O(n log n) in any word.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "text/tokenizers/flat_map.h"

namespace stet::text {

// A priority queue of keys (rank << 32 | place), lowest first. In a word of megabytes the keys wait
// in buckets by rank, and each bucket is sorted when its turn comes: the memory touched is then
// mostly read in order, where a heap would jump about in all of it.
class MergeQueue {
  public:
    // Takes the keys out of `keys`. Keys pushed later may be any.
    void start(std::vector<std::uint64_t>& keys) {
        late_.clear();
        sorted_.clear();
        next_ = 0;
        current_ = kLastBucket;
        if (keys.size() < kBucketsFrom) {
            late_.swap(keys);
            std::make_heap(late_.begin(), late_.end(), std::greater<>());
            return;
        }
        const std::uint64_t top = *std::max_element(keys.begin(), keys.end());
        shift_ = (std::bit_width(top) <= 52 ? 52 : 64) - kBucketBits;  // merge numbers, or scores
        buckets_.resize(std::size_t{1} << kBucketBits);
        for (const std::uint64_t key : keys) buckets_[bucket_of(key)].push_back(key);
        keys.clear();
        current_ = 0;
        sorted_.swap(buckets_[0]);
        sort();
    }
    void push(std::uint64_t key) {
        if (current_ < kLastBucket && bucket_of(key) > current_) {
            buckets_[bucket_of(key)].push_back(key);
            return;
        }
        late_.push_back(key);
        std::push_heap(late_.begin(), late_.end(), std::greater<>());
    }
    bool pop(std::uint64_t& key) {
        while (next_ == sorted_.size() && late_.empty()) {
            if (current_ == kLastBucket) return false;
            sorted_.clear();
            sorted_.swap(buckets_[++current_]);
            next_ = 0;
            sort();
        }
        if (late_.empty() || (next_ < sorted_.size() && sorted_[next_] < late_.front())) {
            key = sorted_[next_++];
            return true;
        }
        std::pop_heap(late_.begin(), late_.end(), std::greater<>());
        key = late_.back();
        late_.pop_back();
        return true;
    }

  private:
    static constexpr std::size_t kBucketsFrom = 1U << 15;
    static constexpr int kBucketBits = 14;
    static constexpr std::uint64_t kLastBucket = (std::uint64_t{1} << kBucketBits) - 1;

    std::uint64_t bucket_of(std::uint64_t key) const {
        return std::min<std::uint64_t>(key >> shift_, kLastBucket);
    }
    void sort() {
        if (!std::is_sorted(sorted_.begin(), sorted_.end())) {
            std::sort(sorted_.begin(), sorted_.end());
        }
    }

    std::vector<std::vector<std::uint64_t>> buckets_;
    std::uint64_t current_ = kLastBucket;  // its keys are in sorted_ from next_ on, or in late_
    std::vector<std::uint64_t> sorted_;
    std::size_t next_ = 0;
    std::vector<std::uint64_t> late_;  // a heap: came when their bucket had its turn already
    int shift_ = 0;
};

class Merger {
  public:
    struct Symbol {
        std::uint32_t start;  // offset in the word
        std::uint32_t id;
        std::uint32_t prev;
        std::uint32_t next;
        Join join;  // with the next symbol; rank kNoRank once the symbol is gone
    };

    void clear() { symbols_.clear(); }
    void add(std::uint32_t start, std::uint32_t id) {
        const auto at = static_cast<std::uint32_t>(symbols_.size());
        symbols_.push_back({start, id, at - 1, at + 1, {}});
    }

    // join(left, right, end of right) -> Join.
    template <typename JoinOf>
    void run(std::uint32_t word_end, const JoinOf& join) {
        const auto count = static_cast<std::uint32_t>(symbols_.size());
        keys_.clear();
        for (std::uint32_t at = 0; at + 1 < count; ++at) {
            const std::uint32_t end = at + 2 < count ? symbols_[at + 2].start : word_end;
            symbols_[at].join = join(symbols_[at], symbols_[at + 1], end);
            if (symbols_[at].join.rank != Join::kNoRank) keys_.push_back(key(at));
        }
        queue_.start(keys_);
        for (std::uint64_t top = 0; queue_.pop(top);) {
            const auto at = static_cast<std::uint32_t>(top);
            Symbol& symbol = symbols_[at];
            if (symbol.join.rank != static_cast<std::uint32_t>(top >> 32)) continue;  // outdated
            Symbol& gone = symbols_[symbol.next];
            symbol.id = symbol.join.merged;
            symbol.next = gone.next;
            gone.join.rank = Join::kNoRank;
            if (symbol.next < count) symbols_[symbol.next].prev = at;
            update(at, word_end, join);
            if (symbol.prev < count) update(symbol.prev, word_end, join);
        }
    }

    // take(id, start, end) for what is left, in order.
    template <typename Take>
    void for_each(std::uint32_t word_end, const Take& take) const {
        const auto count = static_cast<std::uint32_t>(symbols_.size());
        for (std::uint32_t at = 0; at < count; at = symbols_[at].next) {
            const std::uint32_t next = symbols_[at].next;
            take(symbols_[at].id, symbols_[at].start,
                 next < count ? symbols_[next].start : word_end);
        }
    }

  private:
    std::uint64_t key(std::uint32_t at) const {
        return std::uint64_t{symbols_[at].join.rank} << 32 | at;
    }
    template <typename JoinOf>
    void update(std::uint32_t at, std::uint32_t word_end, const JoinOf& join) {
        const auto count = static_cast<std::uint32_t>(symbols_.size());
        Symbol& symbol = symbols_[at];
        symbol.join = {};
        if (symbol.next >= count) return;
        const Symbol& right = symbols_[symbol.next];
        const std::uint32_t end = right.next < count ? symbols_[right.next].start : word_end;
        symbol.join = join(symbol, right, end);
        if (symbol.join.rank == Join::kNoRank) return;
        queue_.push(key(at));
    }

    std::vector<Symbol> symbols_;
    std::vector<std::uint64_t> keys_;
    MergeQueue queue_;
};

}  // namespace stet::text
