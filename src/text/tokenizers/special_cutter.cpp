#include "text/tokenizers/special_cutter.h"

#include <algorithm>

#include "text/unicode.h"

namespace stet::text {
namespace {

struct Candidate {
    std::uint32_t length = 0;
    std::uint32_t begin = 0;
    Token token = kNoToken;

    // Heap order: the longest is on top, the leftmost of equals first.
    bool operator<(const Candidate& other) const {
        return length != other.length ? length < other.length : begin > other.begin;
    }
};

// The places taken so far. A new place is never longer than an old one, so that it overlaps one
// exactly when its first or its last byte is taken.
class Places {
  public:
    Places(const Vocabulary& vocabulary, std::string_view text, const Trie& trie)
        : vocabulary_(vocabulary), text_(text), trie_(trie) {}

    // `together` is needed where taking one place can change another that it doesn't touch.
    std::vector<Candidate> choose(bool together) {
        std::size_t cluster_end = 0;  // the candidates held overlap each other up to here
        for (std::uint32_t begin = 0; begin < text_.size(); ++begin) {
            if (!trie_.any_starts_with(text_[begin])) continue;
            if (begin >= cluster_end && !together) resolve();
            if (!offer(begin, text_.size())) continue;
            cluster_end = std::max<std::size_t>(cluster_end, begin + candidates_.back().length);
        }
        resolve();
        return std::move(chosen_);
    }
    bool taken(std::size_t at) const { return taken_[at]; }

  private:
    // Takes the longest candidates first, the leftmost of equals. One whose end is taken is offered
    // again with what fits there.
    void resolve() {
        if (candidates_.empty()) return;
        taken_.resize(text_.size());
        const auto first = static_cast<std::ptrdiff_t>(chosen_.size());
        std::make_heap(candidates_.begin(), candidates_.end());
        while (!candidates_.empty()) {
            std::pop_heap(candidates_.begin(), candidates_.end());
            const Candidate candidate = candidates_.back();
            candidates_.pop_back();
            if (taken_[candidate.begin]) continue;
            if (!taken_[candidate.begin + candidate.length - 1]) {
                take(candidate);
            } else if (offer(candidate.begin, candidate.length - 1)) {
                std::push_heap(candidates_.begin(), candidates_.end());
            }
        }
        std::sort(chosen_.begin() + first, chosen_.end(),
                  [](const Candidate& a, const Candidate& b) { return a.begin < b.begin; });
    }
    bool offer(std::uint32_t begin, std::size_t length_max) {
        const Trie::Match match = trie_.longest_prefix(text_.substr(begin, length_max));
        if (match.length == 0) return false;
        candidates_.push_back({static_cast<std::uint32_t>(match.length), begin, match.value});
        return true;
    }
    void take(const Candidate& candidate) {
        const std::size_t end = candidate.begin + candidate.length;
        std::fill(taken_.begin() + candidate.begin,
                  taken_.begin() + static_cast<std::ptrdiff_t>(end), true);
        chosen_.push_back(candidate);
        if (vocabulary_.is(candidate.token, kStripLeft)) {
            for (std::size_t at = candidate.begin; at > 0 && strip(at - 1); --at) {
            }
        }
        if (vocabulary_.is(candidate.token, kStripRight)) {
            for (std::size_t at = end; at < text_.size() && strip(at); ++at) {
            }
        }
    }
    bool strip(std::size_t at) {
        if (taken_[at] || !is_ascii_space(text_[at])) return false;
        taken_[at] = true;
        return true;
    }

    const Vocabulary& vocabulary_;
    std::string_view text_;
    const Trie& trie_;
    std::vector<Candidate> candidates_;
    std::vector<Candidate> chosen_;
    std::vector<bool> taken_;
};

Trie trie_of(const Vocabulary& vocabulary, unsigned attributes, unsigned without) {
    std::vector<std::pair<std::string_view, Token>> entries;
    for (const Token token : vocabulary.special_tokens()) {
        const std::string_view text = vocabulary.text(token);
        // Part of a character would cut valid text into invalid.
        if (utf8_valid_prefix(text) != text.size()) continue;
        if (vocabulary.is(token, attributes) && !vocabulary.is(token, without)) {
            entries.emplace_back(text, token);
        }
    }
    return Trie(std::move(entries));
}

}  // namespace

SpecialCutter::SpecialCutter(const Vocabulary& vocabulary)
    : all_(trie_of(vocabulary, kControl | kUnknown | kUserDefined, 0)),
      user_defined_(trie_of(vocabulary, kUserDefined, kControl | kUnknown)),
      strips_(std::any_of(
          vocabulary.special_tokens().begin(), vocabulary.special_tokens().end(),
          [&](Token token) { return vocabulary.is(token, kStripLeft | kStripRight); })) {}

std::vector<Fragment> SpecialCutter::cut(const Vocabulary& vocabulary, std::string_view text,
                                         bool parse_special) const {
    std::vector<Fragment> fragments;
    Places places(vocabulary, text, parse_special ? all_ : user_defined_);
    const std::vector<Candidate> chosen = places.choose(strips_);
    if (chosen.empty()) {
        if (!text.empty()) fragments.push_back({text, kNoToken});
        return fragments;
    }
    std::size_t begin = 0;
    const auto add_text = [&](std::size_t end) {
        while (begin < end && places.taken(begin)) ++begin;  // stripped white space
        std::size_t stop = end;
        while (stop > begin && places.taken(stop - 1)) --stop;
        if (stop > begin) fragments.push_back({text.substr(begin, stop - begin), kNoToken});
    };
    for (const Candidate& special : chosen) {
        add_text(special.begin);
        fragments.push_back({{}, special.token});
        begin = special.begin + special.length;
    }
    add_text(text.size());
    return fragments;
}

}  // namespace stet::text
