// Methods of strings.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "text/jinja/binder.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/strformat.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

using Case = std::string (*)(std::string_view);

template <Case kCase>
Value change_case(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("a string method", arguments).finish();
    runtime.charge_work(4 * self.str().size());
    return runtime.string(kCase(self.str()));
}

template <Side kSide>
Value strip_method(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("strip()", arguments, Binder::Style::positional);
    const auto chars = binder.optional_not_none("chars");
    binder.finish();
    runtime.charge_work(self.str().size());
    if (!chars) return runtime.string(strip(self.str(), kSide));
    return runtime.string(strip(self.str(), kSide, require_string(*chars, "chars")));
}

Value string_list(Runtime& runtime, const std::vector<std::string_view>& parts) {
    Values items;
    items.reserve(parts.size());
    for (const std::string_view part : parts) items.push_back(runtime.string(part));
    return runtime.list(std::move(items));
}

// str.split() without a separator; at most `limit` splits, from the right when `reverse`.
std::vector<std::string_view> split_space(std::string_view text, std::uint64_t limit,
                                          bool reverse) {
    std::vector<std::string_view> words;
    std::size_t begin = std::string_view::npos;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        if (is_space(decode_at(text, i))) {
            if (begin != std::string_view::npos) words.push_back(text.substr(begin, at - begin));
            begin = std::string_view::npos;
        } else if (begin == std::string_view::npos) {
            begin = at;
        }
    }
    if (begin != std::string_view::npos) words.push_back(text.substr(begin));
    if (words.size() <= limit) return words;
    if (reverse) {
        const std::size_t merged = words.size() - limit;
        const std::string_view last = words[merged - 1];
        const auto end = static_cast<std::size_t>(last.data() + last.size() - text.data());
        std::vector<std::string_view> out = {text.substr(0, end)};
        out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(merged), words.end());
        return out;
    }
    const auto rest = static_cast<std::size_t>(words[limit].data() - text.data());
    words.resize(limit);
    words.push_back(text.substr(rest));
    return words;
}

std::vector<std::string_view> split_at(Runtime& runtime, std::string_view text,
                                       std::string_view separator, std::uint64_t limit,
                                       bool reverse) {
    if (separator.empty()) fail("split() can't split at an empty separator");
    std::vector<std::string_view> parts;
    if (!reverse) {
        while (parts.size() < limit) {
            const std::size_t at = find_text(text, separator);
            if (at == std::string_view::npos) break;
            parts.push_back(text.substr(0, at));
            text.remove_prefix(at + separator.size());
        }
        parts.push_back(text);
        return parts;
    }
    charge_reverse_search(runtime, text, separator);
    while (parts.size() < limit) {
        const std::size_t at = text.rfind(separator);
        if (at == std::string_view::npos) break;
        parts.push_back(text.substr(at + separator.size()));
        text = text.substr(0, at);
    }
    parts.push_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
}

template <bool kReverse>
Value split_method(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("split()", arguments);
    const auto separator = binder.optional_not_none("sep");
    const std::int64_t limit = binder.integer_or("maxsplit", -1);
    binder.finish();
    runtime.charge_work(self.str().size());
    const std::uint64_t most =
        limit < 0 ? std::numeric_limits<std::uint64_t>::max() : static_cast<std::uint64_t>(limit);
    if (!separator) return string_list(runtime, split_space(self.str(), most, kReverse));
    return string_list(
        runtime, split_at(runtime, self.str(), require_string(*separator, "sep"), most, kReverse));
}

Value splitlines(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("splitlines()", arguments);
    const bool keep_ends = binder.flag(runtime, "keepends", false);
    binder.finish();
    runtime.charge_work(self.str().size());
    return string_list(runtime, split_lines(self.str(), keep_ends));
}

template <bool kReverse>
Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("partition()", arguments, Binder::Style::positional);
    const Value separator = binder.required("sep");
    binder.finish();
    const std::string& text = self.str();
    const std::string& what = require_string(separator, "sep");
    if (what.empty()) fail("partition() can't split at an empty separator");
    runtime.charge_work(text.size());
    if (kReverse) charge_reverse_search(runtime, text, what);
    const std::size_t at = kReverse ? text.rfind(what) : find_text(text, what);
    if (at == std::string::npos) {
        const Value empty = runtime.string("");
        return kReverse ? runtime.tuple({empty, empty, self}) : runtime.tuple({self, empty, empty});
    }
    return runtime.tuple({runtime.string(text.substr(0, at)), separator,
                          runtime.string(text.substr(at + what.size()))});
}

// The part of a string that optional `start` and `end` arguments name, by code points.
struct Window {
    std::string_view text;
    std::int64_t first = 0;  // index of its first code point in the whole string
    bool valid = true;       // false: start lies behind end, and nothing is found, not even ""
};

Window window_of(Runtime& runtime, const Value& self, Binder& binder) {
    const auto start = binder.optional_not_none("start");
    const auto end = binder.optional_not_none("end");
    binder.finish();
    runtime.charge_work(self.str().size());
    const auto length = static_cast<std::int64_t>(self.text().length);
    if (!start && !end) return {self.str()};
    const auto resolve = [&](const std::optional<Value>& v, std::int64_t otherwise) {
        if (!v) return otherwise;
        const std::int64_t at = require_integer(*v, "start or end");
        if (at >= 0) return at;
        return at < -length ? 0 : at + length;
    };
    const std::int64_t first = resolve(start, 0);
    const std::int64_t last = std::min(resolve(end, length), length);
    if (first > last) return {{}, first, false};
    const std::string_view text = self.str();
    const std::size_t begin = byte_offset(text, static_cast<std::size_t>(first));
    const std::string_view rest = text.substr(begin);
    return {rest.substr(0, byte_offset(rest, static_cast<std::size_t>(last - first))), first};
}

template <bool kReverse>
std::int64_t find_index(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("find()", arguments, Binder::Style::positional);
    const Value what = binder.required("sub");
    require_string(what, "sub");
    const Window window = window_of(runtime, self, binder);
    if (!window.valid) return -1;
    if (kReverse) charge_reverse_search(runtime, window.text, what.str());
    const std::size_t at =
        kReverse ? window.text.rfind(what.str()) : find_text(window.text, what.str());
    if (at == std::string_view::npos) return -1;
    return window.first + static_cast<std::int64_t>(count_code_points(window.text.substr(0, at)));
}

template <bool kReverse>
Value find_method_of_string(Runtime& runtime, const Value& self, Arguments& arguments) {
    return Value::integer(find_index<kReverse>(runtime, self, arguments));
}

template <bool kReverse>
Value index(Runtime& runtime, const Value& self, Arguments& arguments) {
    const std::int64_t at = find_index<kReverse>(runtime, self, arguments);
    if (at < 0) fail("index(): the text was not found");
    return Value::integer(at);
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("count()", arguments, Binder::Style::positional);
    const Value what = binder.required("sub");
    const std::string& text = require_string(what, "sub");
    const Window window = window_of(runtime, self, binder);
    if (!window.valid) return Value::integer(0);
    if (text.empty()) {
        return Value::integer(static_cast<std::int64_t>(count_code_points(window.text)) + 1);
    }
    std::int64_t found = 0;
    for (std::size_t at = find_text(window.text, text); at != std::string_view::npos;
         at = find_text(window.text, text, at + text.size())) {
        ++found;
    }
    return Value::integer(found);
}

template <bool kEnd>
Value starts_or_ends(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder(kEnd ? "endswith()" : "startswith()", arguments, Binder::Style::positional);
    const Value what = binder.required("prefix");
    const Window window = window_of(runtime, self, binder);
    const auto matches = [&](const Value& v) {
        const std::string& text = require_string(v, "the argument of startswith() or endswith()");
        return window.valid && (kEnd ? window.text.ends_with(text) : window.text.starts_with(text));
    };
    if (const auto* tuple = what.as<Tuple>()) {
        for (const Value& item : tuple->items) {
            runtime.charge_steps(1);
            if (matches(item)) return Value::boolean(true);
        }
        return Value::boolean(false);
    }
    return Value::boolean(matches(what));
}

Value replace_method(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("replace()", arguments, Binder::Style::positional);
    const Value from = binder.required("old");
    const Value to = binder.required("new");
    const std::int64_t limit = binder.integer_or("count", -1);
    binder.finish();
    return runtime.string(replace(runtime, self.str(), require_string(from, "old"),
                                  require_string(to, "new"), limit));
}

template <bool kEnd>
Value remove_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder(kEnd ? "removesuffix()" : "removeprefix()", arguments, Binder::Style::positional);
    const Value affix = binder.required("affix");
    binder.finish();
    std::string_view text = self.str();
    const std::string& what = require_string(affix, "the argument");
    if (kEnd && text.ends_with(what)) text.remove_suffix(what.size());
    if (!kEnd && text.starts_with(what)) text.remove_prefix(what.size());
    return runtime.string(text);
}

Value join_method(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("join()", arguments, Binder::Style::positional);
    const Value list = binder.required("iterable");
    binder.finish();
    require_defined(list);
    std::string out;
    bool first = true;
    for (const Value& item : items_of(runtime, list)) {
        if (!first) out += self.str();
        first = false;
        out += require_string(item, "an item of join()");
        runtime.check_size(1, out.size());
    }
    return runtime.string(std::move(out));
}

Value format_method(Runtime& runtime, const Value& self, Arguments& arguments) {
    return format_braces(runtime, self.str(), arguments);
}

// ljust, rjust, center: 'l', 'r', 'c' for where the text goes.
template <char kPlace>
Value justify(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("a string method", arguments, Binder::Style::positional);
    const std::int64_t width = require_integer(binder.required("width"), "width");
    const Value fill = binder.value_or("fillchar", runtime.string(" "));
    binder.finish();
    if (require_string(fill, "fillchar").empty() || fill.text().length != 1) {
        fail("fillchar must be one character");
    }
    return runtime.string(pad_text(runtime, self.str(), width, fill.str(), kPlace));
}

Value zfill(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("zfill()", arguments, Binder::Style::positional);
    const std::int64_t width = require_integer(binder.required("width"), "width");
    binder.finish();
    std::string_view text = self.str();
    const bool sign = text.starts_with('-') || text.starts_with('+');
    const std::string head(text.substr(0, sign ? 1 : 0));
    text.remove_prefix(head.size());
    return runtime.string(
        head + pad_text(runtime, text, width - static_cast<std::int64_t>(head.size()), "0", 'r'));
}

constexpr auto kMethods = std::to_array<MethodEntry>({
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", starts_or_ends<false>},
    {"endswith", starts_or_ends<true>},
    {"upper", change_case<to_upper>},
    {"lower", change_case<to_lower>},
    {"casefold", change_case<to_lower>},
    {"capitalize", change_case<capitalize>},
    {"title", change_case<title_case>},
    {"swapcase", change_case<swap_case>},
    {"replace", replace_method},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"find", find_method_of_string<false>},
    {"rfind", find_method_of_string<true>},
    {"index", index<false>},
    {"rindex", index<true>},
    {"count", count},
    {"join", join_method},
    {"format", format_method},
    {"ljust", justify<'l'>},
    {"rjust", justify<'r'>},
    {"center", justify<'c'>},
    {"zfill", zfill},
});

using Predicate = bool (*)(char32_t);

bool is_alnum(char32_t c) {
    return is_alpha(c) || is_numeric(c);
}

template <Predicate kPredicate>
Value all_are(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("a string method", arguments).finish();
    const std::string& text = self.str();
    runtime.charge_work(4 * text.size());
    bool all = !text.empty();
    for (std::size_t i = 0; all && i < text.size();) all = kPredicate(decode_at(text, i));
    return Value::boolean(all);
}

template <bool kUpper>
Value is_cased(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("a string method", arguments).finish();
    runtime.charge_work(4 * self.str().size());
    return Value::boolean(all_cased(self.str(), kUpper));
}

Value is_ascii(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("isascii()", arguments).finish();
    runtime.charge_work(self.str().size());
    return Value::boolean(self.text().ascii());
}

Value is_printable_method(Runtime& runtime, const Value& self, Arguments& arguments) {
    if (self.str().empty()) return Value::boolean(true);
    return all_are<is_printable>(runtime, self, arguments);
}

Value is_identifier(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("isidentifier()", arguments).finish();
    const std::string& text = self.str();
    runtime.charge_work(4 * text.size());
    bool fine = !text.empty();
    for (std::size_t i = 0; fine && i < text.size();) {
        const bool first = i == 0;
        fine = is_identifier_char(decode_at(text, i), first);
    }
    return Value::boolean(fine);
}

constexpr auto kPredicates = std::to_array<MethodEntry>({
    {"isalpha", all_are<is_alpha>},
    {"isdigit", all_are<is_decimal>},
    {"isdecimal", all_are<is_decimal>},
    {"isnumeric", all_are<is_numeric>},
    {"isalnum", all_are<is_alnum>},
    {"isspace", all_are<is_space>},
    {"isupper", is_cased<true>},
    {"islower", is_cased<false>},
    {"isascii", is_ascii},
    {"isprintable", is_printable_method},
    {"isidentifier", is_identifier},
});

}  // namespace

std::span<const MethodEntry> string_methods() {
    return kMethods;
}
std::span<const MethodEntry> string_predicates() {
    return kPredicates;
}

}  // namespace stet::text::jinja
