// Filters that order, group and measure sequences.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/attribute_path.h"
#include "text/jinja/binder.h"
#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

std::vector<std::string_view> split_on(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t at = text.find(separator);
        parts.push_back(text.substr(0, at));
        if (at == std::string_view::npos) return parts;
        text.remove_prefix(at + 1);
    }
}

struct Keyed {
    Values key;
    Value item;
};

// A single key is compared as it is. Of several, as in Python's lists, the first that differ are:
// only those need an order.
enum class Keys : std::uint8_t { single, several };

bool less_keys(Runtime& runtime, const Values& a, const Values& b, Keys keys) {
    runtime.charge_steps(1);
    if (keys == Keys::single) return less(runtime, a[0], b[0]);
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        if (!equal(runtime, a[i], b[i])) return less(runtime, a[i], b[i]);
    }
    return false;
}

// Stable in both directions, as Python's sorted() is.
void sort_keyed(Runtime& runtime, std::vector<Keyed>& items, bool reverse, Keys keys) {
    const auto before = [&](const Keyed& a, const Keyed& b) {
        return reverse ? less_keys(runtime, b.key, a.key, keys)
                       : less_keys(runtime, a.key, b.key, keys);
    };
    std::stable_sort(items.begin(), items.end(), before);
}

Value unkeyed(Runtime& runtime, std::vector<Keyed>& items) {
    Values out;
    out.reserve(items.size());
    for (Keyed& keyed : items) out.push_back(std::move(keyed.item));
    return runtime.list(std::move(out));
}

Value sort(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("sort", arguments);
    const bool reverse = binder.flag(runtime, "reverse", false);
    const bool case_sensitive = binder.flag(runtime, "case_sensitive", false);
    const Value attribute = binder.value_or("attribute", Value::none());
    binder.finish();
    std::vector<AttributePath> paths;
    if (attribute.is_string()) {
        for (const std::string_view part : split_on(attribute.str(), ',')) {
            paths.emplace_back(runtime, runtime.string(part));
        }
    } else {
        paths.emplace_back(runtime, attribute);
    }
    std::vector<Keyed> items;
    for (const Value& item : items_of(runtime, input)) {
        Keyed keyed{{}, item};
        for (const AttributePath& path : paths) {
            const Value key = path.get(runtime, item);
            keyed.key.push_back(case_sensitive ? key : ignore_case(runtime, key));
        }
        items.push_back(std::move(keyed));
    }
    sort_keyed(runtime, items, reverse, Keys::several);
    return unkeyed(runtime, items);
}

Value dictsort(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("dictsort", arguments);
    const bool case_sensitive = binder.flag(runtime, "case_sensitive", false);
    const Value by = binder.value_or("by", runtime.string("key"));
    const bool reverse = binder.flag(runtime, "reverse", false);
    binder.finish();
    require_defined(input);
    const auto* dict = input.as<Dict>();
    if (dict == nullptr) fail(fmt::format("dictsort needs a mapping, not {}", type_name(input)));
    const std::string& part = require_string(by, "by");
    if (part != "key" && part != "value") fail("dictsort sorts by 'key' or 'value'");
    std::vector<Keyed> items;
    for (const auto& [key, value] : dict->entries()) {
        const Value& chosen = part == "key" ? key : value;
        items.push_back(
            {{case_sensitive ? chosen : ignore_case(runtime, chosen)}, runtime.pair(key, value)});
    }
    sort_keyed(runtime, items, reverse, Keys::single);
    return unkeyed(runtime, items);
}

Value groupby(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("groupby", arguments);
    const AttributePath path(runtime, binder.required("attribute"));
    const auto otherwise = binder.optional_not_none("default");
    const bool case_sensitive = binder.flag(runtime, "case_sensitive", false);
    binder.finish();
    std::vector<Keyed> items;
    for (const Value& item : items_of(runtime, input)) {
        const Value key = path.get(runtime, item, otherwise);
        items.push_back({{case_sensitive ? key : ignore_case(runtime, key)}, item});
    }
    sort_keyed(runtime, items, false, Keys::single);
    Values groups;
    for (std::size_t i = 0; i < items.size();) {
        Values members;
        const std::size_t first = i;
        for (; i < items.size() && equal(runtime, items[i].key[0], items[first].key[0]); ++i) {
            members.push_back(items[i].item);
        }
        // The key as it is written in the first member.
        const Value key = path.get(runtime, members[0], otherwise);
        const Value group = runtime.pair(key, runtime.list(std::move(members)));
        group.as<Tuple>()->is_group = true;
        groups.push_back(group);
    }
    return runtime.list(std::move(groups));
}

Value unique(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("unique", arguments);
    const bool case_sensitive = binder.flag(runtime, "case_sensitive", false);
    const AttributePath path(runtime, binder.value_or("attribute", Value::none()));
    binder.finish();
    Dict seen;
    Values out;
    for (const Value& item : items_of(runtime, input)) {
        Value key = path.get(runtime, item);
        if (!case_sensitive) key = ignore_case(runtime, key);
        if (seen.find(runtime, key) != nullptr) continue;
        seen.set(runtime, key, Value::none());
        out.push_back(item);
    }
    return runtime.generator(std::move(out));
}

template <bool kMax>
Value extreme(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder(kMax ? "max" : "min", arguments);
    const bool case_sensitive = binder.flag(runtime, "case_sensitive", false);
    const AttributePath path(runtime, binder.value_or("attribute", Value::none()));
    binder.finish();
    std::optional<Keyed> best;
    for (const Value& item : items_of(runtime, input)) {
        const Value part = path.get(runtime, item);
        Keyed keyed{{case_sensitive ? part : ignore_case(runtime, part)}, item};
        if (!best) {
            best = std::move(keyed);
            continue;
        }
        const bool better = kMax ? less(runtime, best->key[0], keyed.key[0])
                                 : less(runtime, keyed.key[0], best->key[0]);
        if (better) best = std::move(keyed);
    }
    return best ? best->item : Value::undefined("min or max of an empty sequence");
}

Value length(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("length", arguments).finish();
    return Value::integer(length_of(runtime, input));
}

Value first(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("first", arguments).finish();
    if (auto* generator = input.as<Generator>()) {
        if (generator->next < generator->items.size()) return generator->items[generator->next++];
        return Value::undefined("no first item: the sequence is empty");
    }
    if (const Values* items = sequence_items(input); items != nullptr && !items->empty()) {
        return items->front();
    }
    const Values items = items_of(runtime, input);
    return items.empty() ? Value::undefined("no first item: the sequence is empty") : items.front();
}

Value last(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("last", arguments).finish();
    if (input.as<Generator>() != nullptr) fail("last: a generator can't be reversed");
    if (const Values* items = sequence_items(input); items != nullptr && !items->empty()) {
        return items->back();
    }
    const Values items = items_of(runtime, input);
    return items.empty() ? Value::undefined("no last item: the sequence is empty") : items.back();
}

Value list(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("list", arguments).finish();
    return runtime.list(items_of(runtime, input));
}

Value items(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("items", arguments).finish();
    if (input.is_undefined()) return runtime.generator({});
    auto* dict = input.as<Dict>();
    if (dict == nullptr) fail(fmt::format("items needs a mapping, not {}", type_name(input)));
    Values pairs;
    for (const auto& [key, value] : dict->entries()) pairs.push_back(runtime.pair(key, value));
    return runtime.generator(std::move(pairs));
}

Value reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder("reverse", arguments).finish();
    if (input.is_string()) {
        std::u32string text = decode(input.str());
        std::reverse(text.begin(), text.end());
        return runtime.string(encode(text));
    }
    Values reversed = items_of(runtime, input);
    std::reverse(reversed.begin(), reversed.end());
    return runtime.generator(std::move(reversed));
}

Value sum(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("sum", arguments);
    const AttributePath path(runtime, binder.value_or("attribute", Value::none()));
    Value total = binder.value_or("start", Value::integer(0));
    binder.finish();
    if (total.is_string()) fail("sum can't add strings: use join");
    for (const Value& item : items_of(runtime, input)) {
        total = arithmetic(runtime, TokenKind::add, total, path.get(runtime, item));
    }
    return total;
}

Value batch(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("batch", arguments);
    const std::int64_t size = require_integer(binder.required("linecount"), "linecount");
    const auto fill = binder.optional_not_none("fill_with");
    binder.finish();
    Values out;
    Values row;
    for (const Value& item : items_of(runtime, input)) {
        if (static_cast<std::int64_t>(row.size()) == size) {
            out.push_back(runtime.list(std::exchange(row, {})));
        }
        row.push_back(item);
    }
    if (!row.empty()) {
        if (fill && size > 0) {
            runtime.check_size(static_cast<std::uint64_t>(size), sizeof(Value));
            row.resize(std::max(row.size(), static_cast<std::size_t>(size)), *fill);
        }
        out.push_back(runtime.list(std::move(row)));
    }
    return runtime.generator(std::move(out));
}

Value slice(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("slice", arguments);
    const std::int64_t slices = require_integer(binder.required("slices"), "slices");
    const auto fill = binder.optional_not_none("fill_with");
    binder.finish();
    const Values all = items_of(runtime, input);
    if (slices == 0) fail("slice: division by zero");
    Values out;
    const auto length = static_cast<std::int64_t>(all.size());
    const std::int64_t each = slices > 0 ? length / slices : 0;
    const std::int64_t with_extra = slices > 0 ? length % slices : 0;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < slices; ++i) {
        runtime.charge_steps(1);
        const std::int64_t end = at + each + (i < with_extra ? 1 : 0);
        Values part(all.begin() + at, all.begin() + end);
        if (fill && i >= with_extra) part.push_back(*fill);
        out.push_back(runtime.list(std::move(part)));
        at = end;
    }
    return runtime.generator(std::move(out));
}

Value join(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("join", arguments);
    const std::string separator = to_string(runtime, binder.value_or("d", runtime.string("")));
    const AttributePath path(runtime, binder.value_or("attribute", Value::none()));
    binder.finish();
    std::string out;
    bool is_first = true;
    for (const Value& item : items_of(runtime, input)) {
        if (!is_first) out += separator;
        is_first = false;
        out += to_string(runtime, path.get(runtime, item));
        runtime.check_size(1, out.size());
    }
    return runtime.string(std::move(out));
}

constexpr auto kFilters = std::to_array<FilterEntry>({
    {"sort", sort},
    {"dictsort", dictsort},
    {"groupby", groupby},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"list", list},
    {"items", items},
    {"reverse", reverse},
    {"sum", sum},
    {"batch", batch},
    {"slice", slice},
    {"join", join},
});

}  // namespace

AttributePath::AttributePath(Runtime& runtime, const Value& attribute) {
    if (attribute.is_none()) return;
    if (!attribute.is_string()) {
        parts_.push_back(attribute);
        return;
    }
    for (const std::string_view part : split_on(attribute.str(), '.')) {
        std::int64_t index = 0;
        const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
        const bool number = !part.empty() && part[0] != '-' && read.ec == std::errc() &&
                            read.ptr == part.data() + part.size();
        parts_.push_back(number ? Value::integer(index) : runtime.string(part));
    }
}

Value AttributePath::get(Runtime& runtime, Value item,
                         const std::optional<Value>& otherwise) const {
    runtime.charge_steps(1 + parts_.size());
    for (const Value& part : parts_) {
        item = get_item(runtime, item, part);
        if (otherwise && item.is_undefined()) item = *otherwise;
    }
    return item;
}

Value ignore_case(Runtime& runtime, const Value& value) {
    return value.is_string() ? runtime.string(to_lower(value.str())) : value;
}

std::span<const FilterEntry> sequence_filters() {
    return kFilters;
}

}  // namespace stet::text::jinja
