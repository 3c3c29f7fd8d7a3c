// The merging loop that byte pair encoding and SentencePiece share: of all neighbouring pairs, the
// one with the lowest rank is joined first, the leftmost of equals.
//
// A long word is merged in windows that overlap, so that its time per byte and its memory traffic
// are those of a short one. This is exact: symbols are what the whole word merges to if and only if
// each two neighbours, merged alone, stay what they are. (A first join across a border of theirs
// would be the first in those two alone as well.) Two windows are therefore put together at a
// symbol that both have; each pair of neighbours is then one of some window. Where two windows
// share none, which takes a vocabulary made for it, the word is merged whole, in O(n log n).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "text/tokenizers/flat_map.h"

namespace stet::text {

// Keys (rank << 32 | place), lowest first. Those that a word begins with are sorted once; only what
// comes later goes through a heap, which then stays small.
class MergeQueue {
  public:
    void clear() {
        sorted_.clear();
        late_.clear();
        next_ = 0;
    }
    void add(std::uint64_t key) { sorted_.push_back(key); }
    void start() {
        if (!std::is_sorted(sorted_.begin(), sorted_.end())) {
            std::sort(sorted_.begin(), sorted_.end());
        }
    }
    void push(std::uint64_t key) {
        late_.push_back(key);
        std::push_heap(late_.begin(), late_.end(), std::greater<>());
    }
    bool pop(std::uint64_t& key) {
        if (next_ < sorted_.size() && (late_.empty() || sorted_[next_] < late_.front())) {
            key = sorted_[next_++];
            return true;
        }
        if (late_.empty()) return false;
        std::pop_heap(late_.begin(), late_.end(), std::greater<>());
        key = late_.back();
        late_.pop_back();
        return true;
    }

  private:
    std::vector<std::uint64_t> sorted_;
    std::size_t next_ = 0;
    std::vector<std::uint64_t> late_;
};

class Merger {
  public:
    // One of the symbols that a word begins as.
    struct First {
        std::uint32_t bytes;
        std::uint32_t id;
    };
    // One of those that are left; it ends where the next begins.
    struct Left {
        std::uint32_t start;  // offset in the word
        std::uint32_t id;
    };
    struct Symbol {
        std::uint32_t start;
        std::uint32_t id;
        std::uint32_t prev;
        std::uint32_t next;
        Join join;  // with the next symbol; rank kNoRank once the symbol is gone
    };

    // Sizes for tests; the window is longer than any token of a usual vocabulary.
    explicit Merger(std::uint32_t window_bytes = 8192, std::uint32_t overlap_bytes = 512)
        : window_bytes_(window_bytes), overlap_bytes_(overlap_bytes) {}

    // What a word of `end` bytes merges to; valid until the next call. first_at(start) -> First;
    // join(left, right, end of right) -> Join, of these alone.
    template <typename FirstAt, typename JoinOf>
    std::span<const Left> merge(std::uint32_t end, const FirstAt& first_at, const JoinOf& join) {
        left_.clear();
        if (end > window_bytes_ && merge_windows(end, first_at, join)) return left_;
        merge_part(0, end, end, first_at, join);
        left_.swap(part_);
        return left_;
    }

  private:
    template <typename FirstAt, typename JoinOf>
    bool merge_windows(std::uint32_t end, const FirstAt& first_at, const JoinOf& join) {
        std::size_t shared = 0;  // the symbol of left_ that the window begins with
        for (std::uint32_t begin = 0, last_stop = 0;;) {
            const std::uint32_t stop = merge_part(begin, window_bytes_, end, first_at, join);
            if (!append_part(shared, last_stop, stop)) return false;
            if (stop == end) return true;
            shared = left_.size() - 1;
            while (left_[shared].start > begin && left_[shared].start + overlap_bytes_ > stop) {
                --shared;
            }
            if (left_[shared].start <= begin) return false;
            begin = left_[shared].start;
            last_stop = stop;
        }
    }

    // Puts part_ in the place of what left_ has from a symbol on that both have: the same id from
    // the same place to the same place. False if there is none.
    bool append_part(std::size_t at, std::uint32_t left_stop, std::uint32_t part_stop) {
        if (left_.empty()) {
            left_.swap(part_);
            return true;
        }
        const auto stop_of = [](const std::vector<Left>& list, std::size_t i, std::uint32_t stop) {
            return i + 1 < list.size() ? list[i + 1].start : stop;
        };
        for (std::size_t i = 0; at < left_.size() && i < part_.size();) {
            if (left_[at].start == part_[i].start && left_[at].id == part_[i].id &&
                stop_of(left_, at, left_stop) == stop_of(part_, i, part_stop)) {
                left_.resize(at);
                left_.insert(left_.end(), part_.begin() + static_cast<std::ptrdiff_t>(i),
                             part_.end());
                return true;
            }
            ++(left_[at].start < part_[i].start ? at : i);
        }
        return false;
    }

    // Merges at least `bytes` from `begin` on, or up to `end`, into part_; returns where it
    // stopped.
    template <typename FirstAt, typename JoinOf>
    std::uint32_t merge_part(std::uint32_t begin, std::uint32_t bytes, std::uint32_t end,
                             const FirstAt& first_at, const JoinOf& join) {
        const std::uint32_t limit = end - begin > bytes ? begin + bytes : end;
        symbols_.clear();
        std::uint32_t stop = begin;
        while (stop < limit) {
            const First first = first_at(stop);
            const auto at = static_cast<std::uint32_t>(symbols_.size());
            symbols_.push_back({stop, first.id, at - 1, at + 1, {}});
            stop += first.bytes;
        }
        run(stop, join);
        part_.clear();
        for (std::uint32_t at = 0; at < symbols_.size(); at = symbols_[at].next) {
            part_.push_back({symbols_[at].start, symbols_[at].id});
        }
        return stop;
    }

    template <typename JoinOf>
    void run(std::uint32_t stop, const JoinOf& join) {
        const auto count = static_cast<std::uint32_t>(symbols_.size());
        queue_.clear();
        for (std::uint32_t at = 0; at + 1 < count; ++at) {
            const std::uint32_t end = at + 2 < count ? symbols_[at + 2].start : stop;
            symbols_[at].join = join(symbols_[at], symbols_[at + 1], end);
            if (symbols_[at].join.rank != Join::kNoRank) queue_.add(key(at));
        }
        queue_.start();
        for (std::uint64_t top = 0; queue_.pop(top);) {
            const auto at = static_cast<std::uint32_t>(top);
            Symbol& symbol = symbols_[at];
            if (symbol.join.rank != static_cast<std::uint32_t>(top >> 32)) continue;  // outdated
            Symbol& gone = symbols_[symbol.next];
            symbol.id = symbol.join.merged;
            symbol.next = gone.next;
            gone.join.rank = Join::kNoRank;
            if (symbol.next < count) symbols_[symbol.next].prev = at;
            update(at, stop, join);
            if (symbol.prev < count) update(symbol.prev, stop, join);
        }
    }

    std::uint64_t key(std::uint32_t at) const {
        return std::uint64_t{symbols_[at].join.rank} << 32 | at;
    }
    template <typename JoinOf>
    void update(std::uint32_t at, std::uint32_t stop, const JoinOf& join) {
        const auto count = static_cast<std::uint32_t>(symbols_.size());
        Symbol& symbol = symbols_[at];
        symbol.join = {};
        if (symbol.next >= count) return;
        const Symbol& right = symbols_[symbol.next];
        const std::uint32_t end = right.next < count ? symbols_[right.next].start : stop;
        symbol.join = join(symbol, right, end);
        if (symbol.join.rank == Join::kNoRank) return;
        queue_.push(key(at));
    }

    std::uint32_t window_bytes_;
    std::uint32_t overlap_bytes_;
    std::vector<Symbol> symbols_;  // of one window
    MergeQueue queue_;
    std::vector<Left> part_;  // what the window merged to
    std::vector<Left> left_;
};

}  // namespace stet::text
