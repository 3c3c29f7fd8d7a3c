// A read-only byte trie. Built and walked without recursion, so that a token of a megabyte in a
// hostile file costs memory in proportion and no stack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace stet::text {

class Trie {
  public:
    using Node = std::uint32_t;
    static constexpr Node kRoot = 0;
    static constexpr Node kNone = 0;  // the root is nobody's child
    static constexpr std::int32_t kNoValue = -1;

    Trie() : Trie(std::vector<std::pair<std::string_view, std::int32_t>>{}) {}
    // Values are non-negative. Of equal keys the lowest value stays; empty keys are left out.
    explicit Trie(std::vector<std::pair<std::string_view, std::int32_t>> entries);

    Node child(Node node, char label) const {
        const auto byte = static_cast<unsigned char>(label);
        if (node == kRoot) return root_[byte];
        const Fork& fork = forks_[node];
        for (std::uint32_t i = 0; i < fork.count; ++i) {
            const unsigned char found = labels_[fork.first + i];
            if (found >= byte) return found == byte ? fork.first + i : kNone;
        }
        return kNone;
    }
    bool any_starts_with(char label) const {
        return root_[static_cast<unsigned char>(label)] != kNone;
    }
    std::int32_t value(Node node) const { return values_[node]; }

    // Calls visit(length, value) for every key that `text` begins with, shortest first.
    template <typename Visit>
    void for_each_prefix(std::string_view text, const Visit& visit) const {
        Node node = kRoot;
        for (std::size_t i = 0; i < text.size(); ++i) {
            node = child(node, text[i]);
            if (node == kNone) return;
            if (values_[node] != kNoValue) visit(i + 1, values_[node]);
        }
    }
    struct Match {
        std::size_t length = 0;  // 0: no key fits
        std::int32_t value = kNoValue;
    };
    Match longest_prefix(std::string_view text) const {
        Match best;
        for_each_prefix(text, [&](std::size_t length, std::int32_t value) {
            best = {length, value};
        });
        return best;
    }

  private:
    struct Fork {
        std::uint32_t first = 0;  // children are neighbours, in order of their labels
        std::uint32_t count = 0;
    };
    std::array<Node, 256> root_{};
    std::vector<Fork> forks_;
    std::vector<unsigned char> labels_;  // label on the way into a node
    std::vector<std::int32_t> values_;
};

}  // namespace stet::text
