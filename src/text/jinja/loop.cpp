// The attributes of `loop` and of macros.
#include <fmt/format.h>

#include "text/jinja/interpreter_impl.h"

namespace stet::text::jinja {

namespace {

Value cycle(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    const auto* loop = self.as<Loop>();
    if (arguments.positional.empty()) fail("loop.cycle() needs values");
    const auto count = static_cast<std::int64_t>(arguments.positional.size());
    return arguments.positional[static_cast<std::size_t>(loop->index0 % count)];
}

Value changed(Runtime& runtime, const Value& self, Arguments& arguments) {
    auto* loop = self.as<Loop>();
    const Values& now = arguments.positional;
    bool same = loop->last_changed && loop->last_changed->size() == now.size();
    for (std::size_t i = 0; same && i < now.size(); ++i) {
        same = equal(runtime, (*loop->last_changed)[i], now[i]);
    }
    if (!same) loop->last_changed = now;
    return Value::boolean(!same);
}

constexpr MethodEntry kCycle = {"cycle", cycle, false};
constexpr MethodEntry kChanged = {"changed", changed, false};

}  // namespace

std::optional<Value> Loop::fetch() {
    while (next < items.size()) {
        const Value item = items[next++];
        if (condition == nullptr || interpreter->passes(*this, item)) return item;
    }
    return std::nullopt;
}

const std::optional<Value>& Loop::peek() {
    if (!peeked) {
        after = fetch();
        peeked = true;
    }
    return after;
}

bool Loop::step() {
    std::optional<Value> item = peek();
    peeked = false;
    after.reset();
    if (!item) return false;
    ++index0;
    before = std::move(current);
    current = std::move(item);
    return true;
}

std::int64_t Loop::length() {
    if (known_length >= 0) return known_length;
    if (condition == nullptr) {
        known_length = static_cast<std::int64_t>(items.size());
        return known_length;
    }
    const bool has_after = peek().has_value();
    Values rest;
    while (auto item = fetch()) rest.push_back(std::move(*item));
    known_length = index0 + 1 + (has_after ? 1 : 0) + static_cast<std::int64_t>(rest.size());
    // Already tested items replace the untested ones.
    interpreter->runtime().release_memory(items.size() * sizeof(Value));
    interpreter->runtime().charge_memory(rest.size() * sizeof(Value));
    items = std::move(rest);
    next = 0;
    condition = nullptr;
    return known_length;
}

std::optional<Value> Loop::attribute(Runtime& runtime, std::string_view name) {
    if (name == "index") return Value::integer(index0 + 1);
    if (name == "index0") return Value::integer(index0);
    if (name == "first") return Value::boolean(index0 == 0);
    if (name == "last") return Value::boolean(!peek().has_value());
    if (name == "length") return Value::integer(length());
    if (name == "revindex") return Value::integer(length() - index0);
    if (name == "revindex0") return Value::integer(length() - index0 - 1);
    if (name == "depth") return Value::integer(depth0 + 1);
    if (name == "depth0") return Value::integer(depth0);
    if (name == "previtem") {
        return index0 == 0 || !before ? Value::undefined("there is no previous item") : *before;
    }
    if (name == "nextitem") {
        return peek() ? *peek() : Value::undefined("there is no next item");
    }
    if (name == "cycle") return Value::object(runtime.make<Method>(Value::object(this), &kCycle));
    if (name == "changed") {
        return Value::object(runtime.make<Method>(Value::object(this), &kChanged));
    }
    return std::nullopt;
}

std::optional<Value> Macro::attribute(Runtime& runtime, std::string_view name) {
    const Signature& signature = stmt->signature;
    if (name == "name") return runtime.string(signature.name_text);
    if (name == "arguments") {
        Values names;
        for (const auto& parameter : signature.parameters) {
            names.push_back(runtime.string(parameter.second));
        }
        return runtime.tuple(std::move(names));
    }
    if (name == "catch_kwargs") return Value::boolean(signature.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(signature.uses_varargs);
    if (name == "caller") return Value::boolean(signature.uses_caller);
    return std::nullopt;
}

}  // namespace stet::text::jinja
