// Filters on text.
#include <fmt/format.h>

#include <array>

#include "text/jinja/binder.h"
#include "text/jinja/filters.h"
#include "text/jinja/json.h"
#include "text/jinja/ops.h"
#include "text/jinja/strformat.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

using Case = std::string (*)(std::string_view);

template <Case kCase>
Value change_case(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("a text filter", arguments).finish();
    const std::string text = to_string(runtime, input);
    runtime.charge_work(4 * text.size());
    return runtime.string(kCase(text));
}

// Unlike str.title(), only these characters start a word.
std::string title_words(std::string_view text) {
    constexpr std::string_view kStarters = "-({[<";
    std::string out;
    bool starts = true;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t begin = i;
        const char32_t c = decode_at(text, i);
        const std::string_view one = text.substr(begin, i - begin);
        const bool starter =
            is_space(c) || (c < 0x80 && kStarters.find(static_cast<char>(c)) != kStarters.npos);
        out += starts && !starter ? to_upper(one) : to_lower(one);
        starts = starter;
    }
    return out;
}

Value trim(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("trim", arguments);
    const auto chars = binder.optional_not_none("chars");
    binder.finish();
    const std::string text = to_string(runtime, input);
    if (!chars) return runtime.string(strip(text, Side::both));
    return runtime.string(strip(text, Side::both, require_string(*chars, "chars")));
}

Value replace_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("replace", arguments);
    const Value from = binder.required("old");
    const Value to = binder.required("new");
    const auto count = binder.optional_not_none("count");
    binder.finish();
    return runtime.string(replace(runtime, to_string(runtime, input), to_string(runtime, from),
                                  to_string(runtime, to),
                                  count ? require_integer(*count, "count") : -1));
}

Value indent(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("indent", arguments);
    const Value width = binder.value_or("width", Value::integer(4));
    const bool first = binder.flag(runtime, "first", false);
    const bool blank = binder.flag(runtime, "blank", false);
    binder.finish();
    const std::string prefix =
        width.is_string() ? width.str()
                          : pad_text(runtime, "", require_integer(width, "width"), " ", 'l');
    const std::string text = require_string(input, "what indent works on") + "\n";
    runtime.charge_work(text.size());
    std::string out = first ? prefix : "";
    bool is_first = true;
    for (const std::string_view line : split_lines(text, false)) {
        if (!is_first) {
            out += "\n";
            if (blank || !line.empty()) out += prefix;
        }
        is_first = false;
        out += line;
        runtime.check_size(1, out.size());
    }
    return runtime.string(std::move(out));
}

Value truncate(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("truncate", arguments);
    const std::int64_t length = binder.integer_or("length", 255);
    const bool kill_words = binder.flag(runtime, "killwords", false);
    const Value end = binder.value_or("end", runtime.string("..."));
    const auto leeway = binder.optional_not_none("leeway");
    binder.finish();
    require_string(end, "end");
    const auto end_length = static_cast<std::int64_t>(end.text().length);
    const std::int64_t extra = leeway ? require_integer(*leeway, "leeway") : 5;
    if (length < end_length || extra < 0) fail("truncate: the length is too small");
    if (length_of(runtime, input) - extra <= length) return input;
    const std::string& text = require_string(input, "what truncate works on");
    std::string_view kept = std::string_view(text).substr(
        0, byte_offset(text, static_cast<std::size_t>(length - end_length)));
    if (!kill_words) kept = kept.substr(0, kept.rfind(' '));
    return runtime.string(std::string(kept) + end.str());
}

Value word_count(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("wordcount", arguments).finish();
    const std::string text = to_string(runtime, input);
    std::int64_t words = 0;
    bool in_word = false;
    for (std::size_t i = 0; i < text.size();) {
        const char32_t c = decode_at(text, i);
        const bool word = c == '_' || is_alpha(c) || is_numeric(c);
        if (word && !in_word) ++words;
        in_word = word;
    }
    return Value::integer(words);
}

std::string url_quote(std::string_view text, bool query) {
    std::string out;
    for (const char c : text) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == '~' ||
                           (c == '/' && !query);
        if (plain) {
            out.push_back(c);
        } else if (c == ' ' && query) {
            out.push_back('+');
        } else {
            out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        }
    }
    return out;
}

Value url_encode(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("urlencode", arguments).finish();
    if (input.is_string() || !is_iterable(input)) {
        return runtime.string(url_quote(to_string(runtime, input), false));
    }
    const auto* dict = input.as<Dict>();
    std::string out;
    const auto add = [&](const Value& key, const Value& value) {
        if (!out.empty()) out += "&";
        out += url_quote(to_string(runtime, key), true) + "=" +
               url_quote(to_string(runtime, value), true);
        runtime.check_size(1, out.size());
    };
    if (dict != nullptr) {
        for (const auto& [key, value] : dict->entries()) add(key, value);
        return runtime.string(std::move(out));
    }
    for (const Value& pair : items_of(runtime, input)) {
        const Values parts = items_of(runtime, pair);
        if (parts.size() != 2) fail("urlencode needs a string, a mapping or pairs");
        add(parts[0], parts[1]);
    }
    return runtime.string(std::move(out));
}

Value center(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("center", arguments);
    const std::int64_t width = binder.integer_or("width", 80);
    binder.finish();
    return runtime.string(pad_text(runtime, to_string(runtime, input), width, " ", 'c'));
}

Value format_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
    const std::string text = to_string(runtime, input);
    if (arguments.named.empty()) {
        return format_percent(runtime, text, runtime.tuple(arguments.positional));
    }
    if (!arguments.positional.empty()) fail("format takes values or named values, not both");
    Dict* dict = runtime.make<Dict>();
    for (const auto& [name, value] : arguments.named) {
        dict->set(runtime, runtime.string(name), value);
    }
    return format_percent(runtime, text, Value::object(dict));
}

Value string(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("string", arguments).finish();
    return input.is_string() ? input : runtime.string(to_string(runtime, input));
}

Value safe(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("safe", arguments).finish();
    return runtime.markup(to_string(runtime, input));
}

template <bool kForce>
Value escape(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("escape", arguments).finish();
    if (!kForce && input.is_string() && input.text().markup) return input;
    return runtime.markup(escape_html(to_string(runtime, input)));
}

// "indent" of json.dumps: none, a number of spaces, or a string.
void set_indent(Runtime& runtime, const Value& value, JsonStyle& style) {
    if (value.is_none()) return;
    style.indented = true;
    style.item_separator = ",";
    style.indent = value.is_string()
                       ? value.str()
                       : pad_text(runtime, "", require_integer(value, "indent"), " ", 'l');
}

Value tojson(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("tojson", arguments);
    JsonStyle style;
    style.ascii_only = binder.flag(runtime, "ensure_ascii", false);
    set_indent(runtime, binder.value_or("indent", Value::none()), style);
    const auto separators = binder.optional_not_none("separators");
    style.sort_keys = binder.flag(runtime, "sort_keys", false);
    binder.finish();
    if (separators) {
        const Values parts = items_of(runtime, *separators);
        if (parts.size() != 2) fail("tojson: separators are two strings");
        style.item_separator = require_string(parts[0], "a separator");
        style.key_separator = require_string(parts[1], "a separator");
    }
    return runtime.string(to_json(runtime, input, style));
}

constexpr auto kFilters = std::to_array<FilterEntry>({
    {"upper", change_case<to_upper>},
    {"lower", change_case<to_lower>},
    {"capitalize", change_case<capitalize>},
    {"title", change_case<title_words>},
    {"trim", trim},
    {"replace", replace_filter},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", word_count},
    {"urlencode", url_encode},
    {"center", center},
    {"format", format_filter},
    {"string", string},
    {"safe", safe},
    {"escape", escape<false>},
    {"e", escape<false>},
    {"forceescape", escape<true>},
    {"tojson", tojson},
});

}  // namespace

std::span<const FilterEntry> text_filters() {
    return kFilters;
}

}  // namespace stet::text::jinja
