// Iteration, length, attributes, items and slices.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

Values characters(Runtime& runtime, std::string_view text) {
    Values out;
    runtime.charge_steps(text.size() / 4);
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t begin = i;
        decode_at(text, i);
        out.push_back(runtime.string(text.substr(begin, i - begin)));
    }
    return out;
}

Values view_items(Runtime& runtime, const View& view) {
    Values out;
    out.reserve(view.dict->size());
    for (const auto& [key, value] : view.dict->entries()) {
        switch (view.part) {
            case View::Part::keys:
                out.push_back(key);
                break;
            case View::Part::values:
                out.push_back(value);
                break;
            case View::Part::items:
                out.push_back(runtime.pair(key, value));
                break;
        }
    }
    return out;
}

Value missing_attribute(const Value& object, const Value& name) {
    if (name.is_string()) {
        return Value::undefined(
            fmt::format("{} has no attribute '{}'", type_name(object), name.str().substr(0, 128)));
    }
    return Value::undefined(fmt::format("{} has no such element", type_name(object)));
}

// The method, or own attribute, or nullopt. Private names exist on everything and are refused when
// used.
std::optional<Value> find_attribute(Runtime& runtime, const Value& object, const Value& name) {
    const std::string& text = name.str();
    if (const auto* space = object.as<Namespace>()) {
        const Value* found = space->attributes->find(runtime, name);
        return found == nullptr ? std::nullopt : std::optional<Value>(*found);
    }
    if (text.size() > 4 && text.starts_with("__") && text.ends_with("__")) {
        if (text == "__class__" || text == "__init__" || text == "__doc__" || text == "__dict__") {
            return Value::undefined(
                fmt::format("access to attribute '{}' of {} is unsafe", text, type_name(object)));
        }
        return std::nullopt;
    }
    if (const MethodEntry* method = find_method(object, text)) {
        if (method->mutates && runtime.dialect() == Dialect::reference) {
            return Value::undefined(
                fmt::format("access to attribute '{}' of {} is unsafe", text, type_name(object)));
        }
        return Value::object(runtime.make<Method>(object, method));
    }
    if (const auto* tuple = object.as<Tuple>(); tuple != nullptr && tuple->is_group) {
        if (text == "grouper") return tuple->items[0];
        if (text == "list") return tuple->items[1];
    }
    if (Object* held = object.as_object()) return held->attribute(runtime, text);
    return std::nullopt;
}

// The item at an index that may be negative; nullopt when out of range.
std::optional<std::size_t> resolve_index(std::int64_t index, std::size_t size) {
    const auto length = static_cast<std::int64_t>(size);
    if (index < -length || index >= length) return std::nullopt;
    return static_cast<std::size_t>(index < 0 ? index + length : index);
}

std::optional<Value> find_item(Runtime& runtime, const Value& object, const Value& key) {
    if (const auto* dict = object.as<Dict>()) {
        // Python answers an unhashable key with a TypeError, which a subscript takes as "missing".
        if (key.as<List>() != nullptr || key.as<Dict>() != nullptr) return std::nullopt;
        const Value* found = dict->find(runtime, key);
        return found == nullptr ? std::nullopt : std::optional<Value>(*found);
    }
    if (!key.is_integer()) return std::nullopt;
    const std::int64_t index = key.as_integer();
    if (const Values* items = sequence_items(object)) {
        const auto at = resolve_index(index, items->size());
        return at ? std::optional<Value>((*items)[*at]) : std::nullopt;
    }
    if (object.is_string()) {
        const Text& text = object.text();
        const auto at = resolve_index(index, text.length);
        if (!at) return std::nullopt;
        if (text.ascii()) return runtime.string(text.bytes.substr(*at, 1));
        runtime.charge_work(text.bytes.size());
        const std::size_t begin = byte_offset(text.bytes, *at);
        std::size_t end = begin;
        decode_at(text.bytes, end);
        return runtime.string(text.bytes.substr(begin, end - begin));
    }
    if (const auto* range = object.as<Range>()) {
        const auto at = resolve_index(index, static_cast<std::size_t>(range->size));
        if (!at) return std::nullopt;
        return Value::integer(range->begin + static_cast<std::int64_t>(*at) * range->step);
    }
    return std::nullopt;
}

// Beyond any length, and sums of it can't overflow.
constexpr std::int64_t kFar = std::int64_t{1} << 48;

struct SliceBounds {
    std::int64_t begin, step, count;
};

// Python's rules for slices of a sequence of `size` items.
SliceBounds resolve_slice(std::size_t size, const Value& begin, const Value& end,
                          const Value& step) {
    const auto clamp = [](const Value& v, std::string_view what) {
        return std::clamp(require_integer(v, what), -kFar, kFar);
    };
    const auto length = static_cast<std::int64_t>(size);
    const std::int64_t stride = step.is_none() ? 1 : clamp(step, "a slice's step");
    if (stride == 0) fail("a slice's step can't be 0");
    const std::int64_t low = stride > 0 ? 0 : -1;
    const std::int64_t high = stride > 0 ? length : length - 1;
    const auto bound = [&](const Value& v, std::int64_t otherwise) {
        if (v.is_none()) return otherwise;
        const std::int64_t at = clamp(v, "a slice's bound");
        return std::clamp(at < 0 ? at + length : at, low, high);
    };
    const std::int64_t first = bound(begin, stride > 0 ? low : high);
    const std::int64_t last = bound(end, stride > 0 ? high : low);
    const std::int64_t span = stride > 0 ? last - first : first - last;
    const std::int64_t size_step = stride > 0 ? stride : -stride;
    return {first, stride, span <= 0 ? 0 : (span + size_step - 1) / size_step};
}

Value slice_string(Runtime& runtime, const Text& text, const SliceBounds& bounds) {
    runtime.charge_work(text.bytes.size());
    if (bounds.count == 0) return runtime.string("");
    if (bounds.step == 1) {
        const auto first = static_cast<std::size_t>(bounds.begin);
        const auto count = static_cast<std::size_t>(bounds.count);
        if (text.ascii()) return runtime.string(text.bytes.substr(first, count));
        const std::size_t begin = byte_offset(text.bytes, first);
        const std::string_view rest = std::string_view(text.bytes).substr(begin);
        return runtime.string(rest.substr(0, byte_offset(rest, count)));
    }
    const std::u32string all = decode(text.bytes);
    std::u32string picked;
    for (std::int64_t i = 0; i < bounds.count; ++i) {
        picked.push_back(all[static_cast<std::size_t>(bounds.begin + i * bounds.step)]);
    }
    return runtime.string(encode(picked));
}

Value slice_range(Runtime& runtime, const Range& range, const SliceBounds& bounds) {
    std::int64_t first = 0;
    std::int64_t stride = 0;
    std::int64_t end = 0;
    if (__builtin_mul_overflow(range.step, bounds.step, &stride) ||
        __builtin_mul_overflow(range.step, bounds.begin, &first) ||
        __builtin_add_overflow(range.begin, first, &first) ||
        __builtin_mul_overflow(bounds.count, stride, &end) ||
        __builtin_add_overflow(first, end, &end)) {
        fail("a slice of a range is beyond 64-bit integers");
    }
    return Value::object(runtime.make<Range>(first, end, stride, bounds.count));
}

}  // namespace

Values items_of(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return {};
    if (value.is_string()) return characters(runtime, value.str());
    if (!is_iterable(value)) {
        fail(fmt::format("{} can't be iterated over", type_name(value)));
    }
    if (auto* generator = value.as<Generator>()) {
        runtime.charge_steps(generator->items.size() / 8);
        Values rest(generator->items.begin() + static_cast<std::ptrdiff_t>(generator->next),
                    generator->items.end());
        generator->next = generator->items.size();
        return rest;
    }
    runtime.charge_steps(static_cast<std::uint64_t>(length_of(runtime, value)) / 8);
    if (const Values* items = sequence_items(value)) return *items;
    if (const auto* view = value.as<View>()) return view_items(runtime, *view);
    Values out;
    if (const auto* dict = value.as<Dict>()) {
        for (const auto& entry : dict->entries()) out.push_back(entry.first);
    } else if (const auto* range = value.as<Range>()) {
        for (std::int64_t i = 0; i < range->size; ++i) {
            out.push_back(Value::integer(range->begin + i * range->step));
        }
    }
    return out;
}

bool has_length(const Value& value) {
    if (value.is_undefined() || value.is_string()) return true;
    return value.as<List>() != nullptr || value.as<Tuple>() != nullptr ||
           value.as<Dict>() != nullptr || value.as<View>() != nullptr ||
           value.as<Range>() != nullptr;
}

bool is_iterable(const Value& value) {
    return has_length(value) || value.as<Generator>() != nullptr;
}

std::int64_t length_of(Runtime& /*runtime*/, const Value& value) {
    if (value.is_undefined()) return 0;
    if (value.is_string()) return static_cast<std::int64_t>(value.text().length);
    if (const Values* items = sequence_items(value)) {
        return static_cast<std::int64_t>(items->size());
    }
    if (const auto* dict = value.as<Dict>()) return static_cast<std::int64_t>(dict->size());
    if (const auto* view = value.as<View>()) return static_cast<std::int64_t>(view->dict->size());
    if (const auto* range = value.as<Range>()) return range->size;
    fail(fmt::format("{} has no length", type_name(value)));
}

Value get_attribute(Runtime& runtime, const Value& object, const Value& name) {
    require_defined(object);
    if (auto found = find_attribute(runtime, object, name)) return *found;
    if (auto found = find_item(runtime, object, name)) return *found;
    return missing_attribute(object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
    require_defined(object);
    if (auto found = find_item(runtime, object, key)) return *found;
    if (key.is_string()) {
        if (auto found = find_attribute(runtime, object, key)) return *found;
    }
    return missing_attribute(object, key);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& begin, const Value& end,
                const Value& step) {
    require_defined(object);
    if (object.is_string()) {
        const Text& text = object.text();
        return slice_string(runtime, text, resolve_slice(text.length, begin, end, step));
    }
    const auto* range = object.as<Range>();
    if (sequence_items(object) == nullptr && range == nullptr) {
        fail(fmt::format("{} can't be sliced", type_name(object)));
    }
    const auto size = static_cast<std::size_t>(length_of(runtime, object));
    const SliceBounds bounds = resolve_slice(size, begin, end, step);
    if (range != nullptr) return slice_range(runtime, *range, bounds);
    runtime.charge_steps(static_cast<std::uint64_t>(bounds.count) / 8);
    const Values& items = *sequence_items(object);
    Values out;
    out.reserve(static_cast<std::size_t>(bounds.count));
    for (std::int64_t i = 0; i < bounds.count; ++i) {
        out.push_back(items[static_cast<std::size_t>(bounds.begin + i * bounds.step)]);
    }
    return object.as<List>() != nullptr ? runtime.list(std::move(out))
                                        : runtime.tuple(std::move(out));
}

}  // namespace stet::text::jinja
