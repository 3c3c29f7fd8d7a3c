// Searching a growing text for markers, and for where JSON ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/json_brackets.h"

namespace stet::text {

inline constexpr std::string_view kBlanks = " \t\r\n";

inline std::size_t skip_blanks(std::string_view text, std::size_t at,
                               std::string_view blanks = kBlanks) {
    const std::size_t found = text.find_first_not_of(blanks, at);
    return found == std::string_view::npos ? text.size() : found;
}

inline std::string_view without_blanks(std::string_view text) {
    const std::size_t begin = skip_blanks(text, 0);
    if (begin == text.size()) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Of the names of tools and of recipients.
inline bool is_word_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

enum class Match : std::uint8_t { no, partial, yes };

// Whether `text` begins with `marker`; partial: the text ends inside of it.
inline Match match(std::string_view text, std::string_view marker) {
    if (text.starts_with(marker)) return Match::yes;
    return marker.starts_with(text) ? Match::partial : Match::no;
}

// Where `marker` is at or after `from`; npos: nowhere, and `*hold` is where the text could be the
// begin of one (its size if nowhere).
inline std::size_t find_marker(std::string_view text, std::size_t from, std::string_view marker,
                               std::size_t* hold) {
    const std::size_t found = text.find(marker, from);
    if (found != std::string_view::npos) return found;
    const std::size_t longest = marker.empty() ? 0 : marker.size() - 1;
    std::size_t at = text.size() - from > longest ? text.size() - longest : from;
    while (at < text.size() && !marker.starts_with(text.substr(at))) ++at;
    *hold = at;
    return std::string_view::npos;
}

struct MarkerFound {
    std::size_t at = std::string_view::npos;
    std::string_view marker;
};

// The first of several markers at or after `from`, the longest where more than one begins; none:
// `*hold` as above. One pass, however many there are.
inline MarkerFound find_first_marker(std::string_view text, std::size_t from,
                                     std::span<const std::string_view> markers, std::size_t* hold) {
    *hold = text.size();
    for (std::size_t at = from; at < text.size(); ++at) {
        MarkerFound best;
        for (const std::string_view marker : markers) {
            if (marker.front() != text[at]) continue;
            const Match found = match(text.substr(at), marker);
            if (found == Match::partial) *hold = at;
            if (found != Match::yes || marker.size() <= best.marker.size()) continue;
            best = {at, marker};
        }
        if (best.at != std::string_view::npos) return best;
        if (*hold == at) return {};
    }
    return {};
}

inline constexpr int kBracketsDepthMax = 64;  // of brackets in the arguments of a call

// Follows one JSON object or list, character after character.
class JsonScanner {
  public:
    enum class Step : std::uint8_t { more, end, bad };
    // end: `c` closes the value. bad: too deep, or no object or list begins here.
    Step add(char c) {
        const int change = brackets_.add(c);
        if (depth_ == 0 && change != 1) return Step::bad;
        depth_ += change;
        if (depth_ > kBracketsDepthMax) return Step::bad;
        return depth_ == 0 ? Step::end : Step::more;
    }

  private:
    int depth_ = 0;
    JsonBrackets brackets_;
};

}  // namespace stet::text
