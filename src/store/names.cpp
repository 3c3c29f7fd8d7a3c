#include "store/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace stet::store {
namespace {

constexpr std::size_t kSuggestions = 3;

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

// What a message may repeat of a name that can hold anything.
std::string printable(std::string_view name) {
    std::string text(name.substr(0, kLongestName));
    std::ranges::replace_if(
        text, [](char c) { return c < 0x20 || c > 0x7e; }, '?');
    return name.size() > kLongestName ? text + "..." : text;
}

}  // namespace

Status check_name(std::string_view name) {
    const bool fits = !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
                      std::ranges::all_of(name, is_name_character);
    if (fits) return {};
    return Status(Code::invalid_argument,
                  fmt::format("'{}' can't name a session: use 1 to {} letters, digits, '.', '_' or "
                              "'-', not beginning with '.'",
                              printable(name), kLongestName));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    a = a.substr(0, kLongestName);
    b = b.substr(0, kLongestName);
    std::array<std::size_t, kLongestName + 1> row{};  // distances from a's first i to b's first j
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

std::vector<std::string> close_names(std::string_view name, const std::vector<std::string>& names) {
    struct Candidate {
        std::size_t distance;
        const std::string* name;
    };
    const std::size_t allowed = std::max<std::size_t>(1, name.size() / 3);
    std::vector<Candidate> candidates;
    for (const std::string& other : names) {
        const std::size_t longer = std::max(name.size(), other.size());
        const std::size_t shorter = std::min(name.size(), other.size());
        const bool is_start = !name.empty() && other.starts_with(name);
        if (!is_start && longer - shorter > allowed) continue;
        const std::size_t distance = is_start ? 0 : edit_distance(name, other);
        if (distance <= allowed) candidates.push_back({distance, &other});
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::distance);
    std::vector<std::string> close;
    for (const Candidate& candidate : candidates) {
        if (close.size() == kSuggestions) break;
        close.push_back(*candidate.name);
    }
    return close;
}

}  // namespace stet::store
