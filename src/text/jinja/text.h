// Operations on text that both methods and filters offer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace stet::text::jinja {

// As std::string_view's find(), but in linear time whatever the text.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);
// Before any number of rfind()s that together pass over `text` once: charges for the worst that
// text made to be slow to search can take.
void charge_reverse_search(Runtime& runtime, std::string_view text, std::string_view what);
// `count` copies; the caller has checked the size.
std::string repeat_text(std::string_view text, std::size_t count);
// str.replace(): at most `limit` times, any number when it is negative.
std::string replace(Runtime& runtime, std::string_view text, std::string_view from,
                    std::string_view to, std::int64_t limit);
// Fills up to `width` code points; `place` is where the text goes: 'l', 'r' or 'c'.
std::string pad_text(Runtime& runtime, std::string_view text, std::int64_t width,
                     std::string_view fill, char place);
// str.isupper() or str.islower().
bool all_cased(std::string_view text, bool upper);

}  // namespace stet::text::jinja
