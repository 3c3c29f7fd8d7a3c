// Filters that apply other filters and tests to the items of a sequence; look-up in the tables.
#include <fmt/format.h>

#include <array>

#include "text/jinja/attribute_path.h"
#include "text/jinja/binder.h"
#include "text/jinja/filters.h"
#include "text/jinja/ops.h"

namespace stet::text::jinja {

namespace {

// Removes and returns the first positional argument.
std::optional<Value> take_first(Arguments& arguments) {
    if (arguments.positional.empty()) return std::nullopt;
    Value first = arguments.positional.front();
    arguments.positional.erase(arguments.positional.begin());
    return first;
}

Value map_attribute(Runtime& runtime, const Value& input, Arguments& arguments) {
    std::optional<Value> attribute;
    std::optional<Value> otherwise;
    for (auto& [name, value] : arguments.named) {
        if (name == "attribute") {
            attribute = value;
        } else if (name == "default") {
            if (!value.is_none()) otherwise = value;
        } else {
            fail(fmt::format("map has no argument '{}'", name));
        }
    }
    const AttributePath path(runtime, *attribute);
    Values out;
    for (const Value& item : items_of(runtime, input)) {
        out.push_back(path.get(runtime, item, otherwise));
    }
    return runtime.generator(std::move(out));
}

Value map(Runtime& runtime, const Value& input, Arguments& arguments) {
    const Runtime::Level level(runtime);
    if (!truthy(runtime, input)) return runtime.generator({});
    if (arguments.positional.empty()) {
        for (const auto& entry : arguments.named) {
            if (entry.first == "attribute") return map_attribute(runtime, input, arguments);
        }
        fail("map needs the name of a filter, or attribute=");
    }
    const Value name = *take_first(arguments);
    const FilterEntry* filter = find_filter(require_string(name, "the filter of map"));
    if (filter == nullptr) fail(fmt::format("unknown filter '{}'", name.str().substr(0, 64)));
    Values out;
    for (const Value& item : items_of(runtime, input)) {
        runtime.charge_steps(1);
        Arguments copy = arguments;
        out.push_back(filter->call(runtime, item, copy));
    }
    return runtime.generator(std::move(out));
}

template <bool kSelect, bool kAttribute>
Value select(Runtime& runtime, const Value& input, Arguments& arguments) {
    if (!truthy(runtime, input)) return runtime.generator({});
    Value attribute;
    if (kAttribute) {
        const auto given = take_first(arguments);
        if (!given) fail("selectattr and rejectattr need the name of an attribute");
        attribute = *given;
    }
    const AttributePath path(runtime, attribute);
    const TestEntry* test = nullptr;
    if (const auto name = take_first(arguments)) {
        const std::string& text = require_string(*name, "the test of select or reject");
        test = find_test(text);
        if (test == nullptr) fail(fmt::format("unknown test '{}'", text.substr(0, 64)));
    }
    Values out;
    for (const Value& item : items_of(runtime, input)) {
        runtime.charge_steps(1);
        const Value part = path.get(runtime, item);
        Arguments copy = arguments;
        const bool passes =
            test == nullptr ? truthy(runtime, part) : test->call(runtime, part, copy);
        if (passes == kSelect) out.push_back(item);
    }
    return runtime.generator(std::move(out));
}

Value default_value(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("default", arguments);
    const Value otherwise = binder.value_or("default_value", runtime.string(""));
    const bool boolean = binder.flag(runtime, "boolean", false);
    binder.finish();
    return input.is_undefined() || (boolean && !truthy(runtime, input)) ? otherwise : input;
}

Value attribute(Runtime& runtime, const Value& input, Arguments& arguments) {
    Binder binder("attr", arguments);
    const Value name = binder.required("name");
    binder.finish();
    require_string(name, "name");
    // A dict's keys are not attributes.
    if (const auto* dict = input.as<Dict>(); dict != nullptr && dict->find(runtime, name)) {
        return Value::undefined(fmt::format("dict has no attribute '{}'", name.str()));
    }
    return get_attribute(runtime, input, name);
}

constexpr auto kFilters = std::to_array<FilterEntry>({
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"default", default_value},
    {"d", default_value},
    {"attr", attribute},
});

}  // namespace

std::span<const FilterEntry> selection_filters() {
    return kFilters;
}

const FilterEntry* find_filter(std::string_view name) {
    for (const auto table :
         {text_filters(), sequence_filters(), selection_filters(), number_filters()}) {
        for (const FilterEntry& entry : table) {
            if (entry.name == name) return &entry;
        }
    }
    return nullptr;
}

const TestEntry* find_test(std::string_view name) {
    for (const TestEntry& entry : tests()) {
        if (entry.name == name) return &entry;
    }
    return nullptr;
}

}  // namespace stet::text::jinja
