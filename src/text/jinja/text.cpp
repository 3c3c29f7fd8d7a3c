#include "text/jinja/text.h"

#include <cstring>

#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

// "" occurs before every code point and at the end.
std::string replace_nothing(Runtime& runtime, std::string_view text, std::string_view to,
                            std::int64_t limit) {
    std::string out;
    std::int64_t done = 0;
    for (std::size_t i = 0; i <= text.size();) {
        if (limit < 0 || done < limit) out += to;
        ++done;
        if (i == text.size()) break;
        const std::size_t begin = i;
        decode_at(text, i);
        out += text.substr(begin, i - begin);
        runtime.check_size(1, out.size());
    }
    return out;
}

}  // namespace

std::size_t find_text(std::string_view text, std::string_view what, std::size_t from) {
    if (from > text.size()) return std::string_view::npos;
    if (what.empty()) return from;
    const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
    if (found == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

void charge_reverse_search(Runtime& runtime, std::string_view text, std::string_view what) {
    constexpr std::uint64_t kComparesPerStep = 16384;
    runtime.charge_steps(text.size() * what.size() / kComparesPerStep);
}

std::string repeat_text(std::string_view text, std::size_t count) {
    std::string out;
    const std::size_t size = text.size() * count;
    if (size == 0) return out;
    out.reserve(size);
    out += text;
    while (out.size() < size) out.append(out, 0, size - out.size());
    return out;
}

std::string replace(Runtime& runtime, std::string_view text, std::string_view from,
                    std::string_view to, std::int64_t limit) {
    runtime.charge_work(text.size());
    if (from.empty()) return replace_nothing(runtime, text, to, limit);
    std::string out;
    std::size_t begin = 0;
    for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
        const std::size_t at = find_text(text, from, begin);
        if (at == std::string_view::npos) break;
        out += text.substr(begin, at - begin);
        out += to;
        begin = at + from.size();
        runtime.check_size(1, out.size());
    }
    out += text.substr(begin);
    return out;
}

std::string pad_text(Runtime& runtime, std::string_view text, std::int64_t width,
                     std::string_view fill, char place) {
    const auto length = static_cast<std::int64_t>(count_code_points(text));
    if (width <= length) return std::string(text);
    const auto missing = static_cast<std::uint64_t>(width - length);
    runtime.check_size(missing, fill.size());
    runtime.charge_work(missing * fill.size());
    // Python puts the odd one on the left when the width is odd.
    const std::uint64_t left =
        place == 'l'   ? 0
        : place == 'r' ? missing
                       : missing / 2 + (missing & static_cast<std::uint64_t>(width) & 1U);
    std::string out = repeat_text(fill, left);
    out += text;
    return out + repeat_text(fill, missing - left);
}

bool all_cased(std::string_view text, bool upper) {
    bool any = false;
    for (std::size_t i = 0; i < text.size();) {
        const char32_t c = decode_at(text, i);
        if (upper ? is_lower(c) : is_upper(c)) return false;
        any |= upper ? is_upper(c) : is_lower(c);
    }
    return any;
}

}  // namespace stet::text::jinja
