// Methods of lists, tuples, dicts and cyclers.
#include "text/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/binder.h"
#include "text/jinja/ops.h"

namespace stet::text::jinja {

namespace {

Value sequence_index(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("index()", arguments, Binder::Style::positional);
    const Value what = binder.required("value");
    const Values items = items_of(runtime, self);
    const auto size = static_cast<std::int64_t>(items.size());
    const auto resolve = [&](std::int64_t at) {
        return std::clamp<std::int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
    };
    const std::int64_t first = resolve(binder.integer_or("start", 0));
    const std::int64_t last = resolve(binder.integer_or("stop", size));
    binder.finish();
    for (std::int64_t i = first; i < last; ++i) {
        runtime.charge_steps(1);
        if (equal(runtime, items[static_cast<std::size_t>(i)], what)) return Value::integer(i);
    }
    fail("index(): the value is not in the list");
}

Value sequence_count(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("count()", arguments, Binder::Style::positional);
    const Value what = binder.required("value");
    binder.finish();
    std::int64_t found = 0;
    for (const Value& item : items_of(runtime, self)) {
        runtime.charge_steps(1);
        if (equal(runtime, item, what)) ++found;
    }
    return Value::integer(found);
}

Value append(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("append()", arguments, Binder::Style::positional);
    Value item = binder.required("object");
    binder.finish();
    runtime.charge_memory(sizeof(Value));
    self.as<List>()->items.push_back(std::move(item));
    return Value::none();
}

Value extend(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("extend()", arguments, Binder::Style::positional);
    const Values more = items_of(runtime, binder.required("iterable"));
    binder.finish();
    runtime.charge_memory(more.size() * sizeof(Value));
    Values& items = self.as<List>()->items;
    items.insert(items.end(), more.begin(), more.end());
    return Value::none();
}

Value insert(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("insert()", arguments, Binder::Style::positional);
    std::int64_t at = require_integer(binder.required("index"), "index");
    const Value item = binder.required("object");
    binder.finish();
    Values& items = self.as<List>()->items;
    const auto size = static_cast<std::int64_t>(items.size());
    at = std::clamp<std::int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
    runtime.charge_memory(sizeof(Value));
    runtime.charge_steps(items.size() / 8);
    items.insert(items.begin() + at, item);
    return Value::none();
}

Value list_pop(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("pop()", arguments, Binder::Style::positional);
    std::int64_t at = binder.integer_or("index", -1);
    binder.finish();
    Values& items = self.as<List>()->items;
    const auto size = static_cast<std::int64_t>(items.size());
    if (at < -size || at >= size) fail("pop(): the index is out of range");
    if (at < 0) at += size;
    runtime.charge_steps(items.size() / 8);
    Value item = std::move(items[static_cast<std::size_t>(at)]);
    items.erase(items.begin() + at);
    return item;
}

Value list_remove(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("remove()", arguments, Binder::Style::positional);
    const Value what = binder.required("value");
    binder.finish();
    Values& items = self.as<List>()->items;
    for (std::size_t i = 0; i < items.size(); ++i) {
        runtime.charge_steps(1);
        if (!equal(runtime, items[i], what)) continue;
        items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
        return Value::none();
    }
    fail("remove(): the value is not in the list");
}

Value list_reverse(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("reverse()", arguments).finish();
    Values& items = self.as<List>()->items;
    runtime.charge_steps(items.size() / 8);
    std::reverse(items.begin(), items.end());
    return Value::none();
}

Value list_sort(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("sort()", arguments).finish();
    Values& items = self.as<List>()->items;
    Values sorted = items;
    std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& a, const Value& b) {
        runtime.charge_steps(1);
        return less(runtime, a, b);
    });
    items = std::move(sorted);
    return Value::none();
}

Value list_clear(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    Binder("clear()", arguments).finish();
    self.as<List>()->items.clear();
    return Value::none();
}

Value list_copy(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("copy()", arguments).finish();
    return runtime.list(self.as<List>()->items);
}

template <View::Part kPart>
Value view(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("a dict method", arguments).finish();
    return Value::object(runtime.make<View>(self.as<Dict>(), kPart));
}

Value dict_get(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("get()", arguments, Binder::Style::positional);
    const Value key = binder.required("key");
    const Value otherwise = binder.value_or("default", Value::none());
    binder.finish();
    const Value* found = self.as<Dict>()->find(runtime, key);
    return found == nullptr ? otherwise : *found;
}

Value dict_copy(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("copy()", arguments).finish();
    Dict* copy = runtime.make<Dict>();
    for (const auto& [key, value] : self.as<Dict>()->entries()) copy->set(runtime, key, value);
    return Value::object(copy);
}

Value dict_update(Runtime& runtime, const Value& self, Arguments& arguments) {
    Dict* dict = self.as<Dict>();
    for (const Value& source : arguments.positional) {
        if (const auto* other = source.as<Dict>()) {
            const std::vector<Dict::Entry> entries = other->entries();
            for (const auto& [key, value] : entries) dict->set(runtime, key, value);
            continue;
        }
        require_defined(source);
        for (const Value& pair : items_of(runtime, source)) {
            const Values parts = items_of(runtime, pair);
            if (parts.size() != 2) fail("update() needs a mapping or pairs");
            dict->set(runtime, parts[0], parts[1]);
        }
    }
    for (const auto& [name, value] : arguments.named) {
        dict->set(runtime, runtime.string(name), value);
    }
    return Value::none();
}

Value dict_pop(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("pop()", arguments, Binder::Style::positional);
    const Value key = binder.required("key");
    const auto otherwise = binder.optional("default");
    binder.finish();
    Dict* dict = self.as<Dict>();
    const Value* found = dict->find(runtime, key);
    if (found == nullptr) {
        if (!otherwise) fail("pop(): the key is not in the dict");
        return *otherwise;
    }
    Value value = *found;
    dict->erase(runtime, key);
    return value;
}

Value dict_popitem(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder("popitem()", arguments).finish();
    Dict* dict = self.as<Dict>();
    if (dict->size() == 0) fail("popitem(): the dict is empty");
    const auto [key, value] = dict->entries().back();
    dict->erase(runtime, key);
    return runtime.pair(key, value);
}

Value dict_setdefault(Runtime& runtime, const Value& self, Arguments& arguments) {
    Binder binder("setdefault()", arguments, Binder::Style::positional);
    const Value key = binder.required("key");
    const Value otherwise = binder.value_or("default", Value::none());
    binder.finish();
    Dict* dict = self.as<Dict>();
    if (const Value* found = dict->find(runtime, key)) return *found;
    dict->set(runtime, key, otherwise);
    return otherwise;
}

Value dict_clear(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    Binder("clear()", arguments).finish();
    self.as<Dict>()->clear();
    return Value::none();
}

Value cycler_next(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    Binder("next()", arguments).finish();
    auto* cycler = self.as<Cycler>();
    const Value item = cycler->items[cycler->position];
    cycler->position = (cycler->position + 1) % cycler->items.size();
    return item;
}

Value cycler_reset(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    Binder("reset()", arguments).finish();
    self.as<Cycler>()->position = 0;
    return Value::none();
}

constexpr auto kListMethods = std::to_array<MethodEntry>({
    {"index", sequence_index},
    {"count", sequence_count},
    {"copy", list_copy},
    {"append", append, true},
    {"extend", extend, true},
    {"insert", insert, true},
    {"pop", list_pop, true},
    {"remove", list_remove, true},
    {"reverse", list_reverse, true},
    {"sort", list_sort, true},
    {"clear", list_clear, true},
});

constexpr auto kTupleMethods = std::to_array<MethodEntry>({
    {"index", sequence_index},
    {"count", sequence_count},
});

constexpr auto kDictMethods = std::to_array<MethodEntry>({
    {"get", dict_get},
    {"items", view<View::Part::items>},
    {"keys", view<View::Part::keys>},
    {"values", view<View::Part::values>},
    {"copy", dict_copy},
    {"update", dict_update, true},
    {"pop", dict_pop, true},
    {"popitem", dict_popitem, true},
    {"setdefault", dict_setdefault, true},
    {"clear", dict_clear, true},
});

constexpr auto kCyclerMethods = std::to_array<MethodEntry>({
    {"next", cycler_next},
    {"reset", cycler_reset},
});

const MethodEntry* find(std::span<const MethodEntry> table, std::string_view name) {
    for (const MethodEntry& entry : table) {
        if (entry.name == name) return &entry;
    }
    return nullptr;
}

}  // namespace

const MethodEntry* find_method(const Value& self, std::string_view name) {
    if (self.is_string()) {
        const MethodEntry* method = find(string_methods(), name);
        return method != nullptr ? method : find(string_predicates(), name);
    }
    if (self.as<Dict>() != nullptr) return find(kDictMethods, name);
    if (self.as<List>() != nullptr) return find(kListMethods, name);
    if (self.as<Tuple>() != nullptr || self.as<Range>() != nullptr) {
        return find(kTupleMethods, name);
    }
    if (self.as<Cycler>() != nullptr) return find(kCyclerMethods, name);
    return nullptr;
}

std::optional<Value> Cycler::attribute(Runtime& /*runtime*/, std::string_view name) {
    if (name == "current") return items[position];
    return std::nullopt;
}

}  // namespace stet::text::jinja
