#include "text/tokenizers/trie.h"

#include <algorithm>

namespace stet::text {
namespace {

// Keys [begin, end) of the sorted list share the first `depth` bytes, which lead to one node.
struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
};

}  // namespace

Trie::Trie(std::vector<std::pair<std::string_view, std::int32_t>> entries) {
    std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
    std::sort(entries.begin(), entries.end());
    forks_.emplace_back();
    labels_.push_back(0);
    values_.push_back(kNoValue);
    // Breadth first: node i belongs to ranges[i], and a node's children are made together.
    std::vector<Range> ranges{{0, entries.size(), 0}};
    for (std::size_t node = 0; node < ranges.size(); ++node) {
        auto [begin, end, depth] = ranges[node];
        if (node != kRoot && entries[begin].first.size() == depth) {
            values_[node] = entries[begin].second;
            while (begin < end && entries[begin].first.size() == depth) ++begin;
        }
        forks_[node].first = static_cast<std::uint32_t>(ranges.size());
        while (begin < end) {
            const char label = entries[begin].first[depth];
            std::size_t stop = begin + 1;
            while (stop < end && entries[stop].first[depth] == label) ++stop;
            if (node == kRoot) {
                root_[static_cast<unsigned char>(label)] = static_cast<Node>(ranges.size());
            }
            ranges.push_back({begin, stop, depth + 1});
            forks_.emplace_back();
            labels_.push_back(static_cast<unsigned char>(label));
            values_.push_back(kNoValue);
            ++forks_[node].count;
            begin = stop;
        }
    }
}

}  // namespace stet::text
