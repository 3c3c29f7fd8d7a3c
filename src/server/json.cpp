#include "server/json.h"

#include "base/json_brackets.h"

#include <fmt/format.h>

#include <cmath>

namespace stet::server {
namespace {

// Depth of nesting, looking only at brackets outside of strings: what nests too deep is refused
// before any parser recurses into it.
bool is_too_deep(std::string_view text) {
    JsonBrackets brackets;
    std::uint32_t depth = 0;
    for (const char c : text) {
        const int step = brackets.add(c);
        if (step > 0 && ++depth > kJsonDepthMax) return true;
        if (step < 0 && depth > 0) --depth;
    }
    return false;
}

std::string shown(const Json& value) {
    constexpr std::size_t kShownMax = 40;
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    // What a string says may be somebody's prompt: never repeated.
    if (value.is_string()) return "a string";
    std::string text = dump(value);
    return text.size() <= kShownMax ? text : text.substr(0, kShownMax) + "...";
}

}  // namespace

Result<Json> parse_object(std::string_view text) {
    if (is_too_deep(text)) {
        return Status(Code::invalid_argument,
                      fmt::format("the body nests deeper than {} levels", kJsonDepthMax));
    }
    try {
        Json json = Json::parse(text);
        if (json.is_object()) return json;
        return Status(Code::invalid_argument, "the body is not a JSON object");
    } catch (const Json::parse_error& error) {
        return Status(Code::invalid_argument,
                      fmt::format("the body is not valid JSON (at byte {})", error.byte));
    } catch (const Json::exception&) {
        return Status(Code::invalid_argument, "the body is not valid JSON (a number is too large)");
    }
}

std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

const Json* Fields::find(std::string_view name) const {
    const auto at = object_.find(std::string(name));
    return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void Fields::fail(std::string_view name, std::string_view expected) {
    if (!status_) return;
    const Json* value = find(name);
    status_ = Status(Code::invalid_argument,
                     fmt::format("'{}{}' must be {}, found {}", where_, name, expected,
                                 value == nullptr ? "nothing" : shown(*value)));
}

void Fields::require(std::string_view name) {
    if (find(name) == nullptr && status_) {
        status_ = Status(Code::invalid_argument, fmt::format("'{}{}' is missing", where_, name));
    }
}

void Fields::number(std::string_view name, float& value, float min, float max) {
    const Json* found = find(name);
    if (found == nullptr) return;
    const double number = found->is_number() ? found->get<double>() : std::nan("");
    if (std::isfinite(number) && number >= min && number <= max) {
        value = static_cast<float>(number);
    } else {
        fail(name, fmt::format("a number between {} and {}", min, max));
    }
}

void Fields::integer(std::string_view name, std::int64_t& value, std::int64_t min,
                     std::int64_t max) {
    const Json* found = find(name);
    if (found == nullptr) return;
    std::optional<std::int64_t> number;
    if (found->is_number_unsigned()) {
        const auto wide = found->get<std::uint64_t>();
        if (wide <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            number = static_cast<std::int64_t>(wide);
        }
    } else if (found->is_number_integer()) {
        number = found->get<std::int64_t>();
    } else if (found->is_number_float()) {
        // Some clients send 16.0.
        constexpr double kExactMax = 9007199254740992.0;  // 2^53
        const double real = found->get<double>();
        if (std::abs(real) <= kExactMax && std::trunc(real) == real) {
            number = static_cast<std::int64_t>(real);
        }
    }
    if (number && *number >= min && *number <= max) {
        value = *number;
    } else {
        fail(name, fmt::format("a whole number between {} and {}", min, max));
    }
}

void Fields::flag(std::string_view name, bool& value) {
    const Json* found = find(name);
    if (found == nullptr) return;
    if (found->is_boolean()) {
        value = found->get<bool>();
    } else {
        fail(name, "true or false");
    }
}

void Fields::text(std::string_view name, std::string& value) {
    const Json* found = find(name);
    if (found == nullptr) return;
    if (found->is_string()) {
        value = found->get<std::string>();
    } else {
        fail(name, "a string");
    }
}

void Fields::texts(std::string_view name, std::vector<std::string>& value, std::size_t count_max) {
    const Json* found = find(name);
    if (found == nullptr) return;
    std::vector<std::string> list;
    if (found->is_string()) {
        list.push_back(found->get<std::string>());
    } else if (found->is_array() && found->size() <= count_max) {
        for (const Json& item : *found) {
            if (!item.is_string()) return fail(name, "a string or a list of strings");
            list.push_back(item.get<std::string>());
        }
    } else {
        return fail(name, fmt::format("a string or a list of at most {} strings", count_max));
    }
    value = std::move(list);
}

}  // namespace stet::server
