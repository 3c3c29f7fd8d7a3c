// Matches the arguments of a call with parameters, as Python does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "text/jinja/ops.h"
#include "text/jinja/value.h"

namespace stet::text::jinja {

// Ask for the parameters in their order, then call finish().
class Binder {
  public:
    // Many of Python's own methods take no argument by name.
    enum class Style : std::uint8_t { any, positional };
    Binder(std::string_view function, Arguments& arguments, Style style = Style::any)
        : function_(function), arguments_(arguments) {
        if (style == Style::positional && !arguments.named.empty()) {
            fail(fmt::format("{} takes no argument by name", function));
        }
    }

    std::optional<Value> optional(std::string_view name) {
        auto& named = arguments_.named;
        const auto it = std::find_if(named.begin(), named.end(),
                                     [&](const auto& entry) { return entry.first == name; });
        if (next_ < arguments_.positional.size()) {
            if (it != named.end()) {
                fail(fmt::format("{} got two values for '{}'", function_, name));
            }
            return arguments_.positional[next_++];
        }
        ++next_;
        if (it == named.end()) return std::nullopt;
        Value value = std::move(it->second);
        named.erase(it);
        return value;
    }
    Value required(std::string_view name) {
        if (auto value = optional(name)) return *value;
        fail(fmt::format("{} needs the argument '{}'", function_, name));
    }
    Value value_or(std::string_view name, Value otherwise) {
        auto value = optional(name);
        return value ? *value : otherwise;
    }
    bool flag(Runtime& runtime, std::string_view name, bool otherwise) {
        const auto value = optional(name);
        return value ? truthy(runtime, *value) : otherwise;
    }
    std::int64_t integer_or(std::string_view name, std::int64_t otherwise) {
        const auto value = optional(name);
        return value ? require_integer(*value, name) : otherwise;
    }
    // None counts as not given.
    std::optional<Value> optional_not_none(std::string_view name) {
        auto value = optional(name);
        if (value && value->is_none()) return std::nullopt;
        return value;
    }
    void finish() const {
        if (next_ < arguments_.positional.size()) {
            fail(fmt::format("{} takes at most {} arguments, and {} were given", function_, next_,
                             arguments_.positional.size()));
        }
        if (!arguments_.named.empty()) {
            fail(fmt::format("{} has no argument '{}'", function_, arguments_.named.front().first));
        }
    }

  private:
    std::string_view function_;
    Arguments& arguments_;
    std::size_t next_ = 0;
};

}  // namespace stet::text::jinja
