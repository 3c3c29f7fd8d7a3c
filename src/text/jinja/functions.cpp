// The global functions.
#include <fmt/format.h>

#include <array>
#include <ctime>

#include "text/jinja/binder.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"

namespace stet::text::jinja {

namespace {

// As many items as the reference's sandbox allows a range.
constexpr std::uint64_t kMaxRange = 100'000;

Value range(Runtime& runtime, Arguments& arguments) {
    const Values& given = arguments.positional;
    if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
        fail("range() takes one to three integers");
    }
    const bool has_begin = given.size() > 1;
    const std::int64_t begin = has_begin ? require_integer(given[0], "range()'s start") : 0;
    const std::int64_t end = require_integer(given[has_begin ? 1 : 0], "range()'s end");
    const std::int64_t step = given.size() == 3 ? require_integer(given[2], "range()'s step") : 1;
    if (step == 0) fail("range()'s step can't be 0");
    std::uint64_t size = 0;
    const auto difference = [](std::int64_t a, std::int64_t b) {
        return static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
    };
    if (step > 0 && end > begin) {
        size = (difference(end, begin) - 1) / static_cast<std::uint64_t>(step) + 1;
    } else if (step < 0 && end < begin) {
        size = (difference(begin, end) - 1) / difference(0, step) + 1;
    }
    if (size > kMaxRange) {
        fail_exhausted(fmt::format("range() of {} items: at most {} are allowed", size, kMaxRange));
    }
    return Value::object(runtime.make<Range>(begin, end, step, static_cast<std::int64_t>(size)));
}

Value dict(Runtime& runtime, Arguments& arguments) {
    const Value made = Value::object(runtime.make<Dict>());
    if (arguments.positional.size() > 1) fail("dict() takes one mapping or list of pairs");
    find_method(made, "update")->call(runtime, made, arguments);
    return made;
}

Value make_namespace(Runtime& runtime, Arguments& arguments) {
    const Value attributes = dict(runtime, arguments);
    return Value::object(runtime.make<Namespace>(attributes.as<Dict>()));
}

Value cycler(Runtime& runtime, Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty()) fail("cycler() needs values");
    return Value::object(runtime.make<Cycler>(arguments.positional));
}

Value joiner(Runtime& runtime, Arguments& arguments) {
    Binder binder("joiner()", arguments);
    const Value separator = binder.value_or("sep", runtime.string(", "));
    binder.finish();
    return Value::object(runtime.make<Joiner>(separator));
}

Value raise_exception(Runtime& runtime, Arguments& arguments) {
    Binder binder("raise_exception()", arguments);
    const std::string message = to_string(runtime, binder.required("message"));
    binder.finish();
    throw TemplateError{Code::invalid_argument, message, 0, true};
}

// One conversion, "%Y" or "%-d". Anything else than these letters stays as it is written.
std::string format_time_field(const std::string& field, const std::tm& time) {
    constexpr std::string_view kLetters = "aAbBcdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";
    if (field.back() == 'f') return "000000";
    if (kLetters.find(field.back()) == std::string_view::npos) return field;
    std::array<char, 128> buffer;
    const std::size_t size = std::strftime(buffer.data(), buffer.size(), field.c_str(), &time);
    return std::string(buffer.data(), size);
}

// In the local time zone, as the reference does.
Value strftime_now(Runtime& runtime, Arguments& arguments) {
    Binder binder("strftime_now()", arguments);
    const Value format = binder.required("format");
    binder.finish();
    const std::string& text = require_string(format, "format");
    const std::time_t now = std::chrono::system_clock::to_time_t(runtime.now());
    std::tm local{};
    if (localtime_r(&now, &local) == nullptr) fail("strftime_now(): the time can't be represented");
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out.push_back(text[i]);
            continue;
        }
        std::size_t end = i + 1;
        if (end < text.size() && std::string_view("-_0^#").find(text[end]) != std::string::npos) {
            ++end;
        }
        if (end >= text.size()) {
            out += text.substr(i);
            break;
        }
        runtime.charge_steps(1);
        out += format_time_field(text.substr(i, end - i + 1), local);
        runtime.check_size(1, out.size());
        i = end;
    }
    return runtime.string(std::move(out));
}

constexpr auto kFunctions = std::to_array<FunctionEntry>({
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"cycler", cycler},
    {"joiner", joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
});

}  // namespace

std::span<const FunctionEntry> global_functions() {
    return kFunctions;
}

}  // namespace stet::text::jinja
