// A chat template and what it renders: SOURCE, a zero byte, JSON. Without a zero byte the JSON is a
// usual conversation.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "text/chat_template.h"

namespace stet::fuzz {
namespace {

constexpr std::string_view kUsual =
    R"({"messages": [{"role": "system", "content": "Be <brief>."},
    {"role": "user", "content": "Hi\n"}, {"role": "assistant", "content": null, "tool_calls":
    [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1.5}}}]},
    {"role": "tool", "content": "[1, 2]"}], "tools": [{"type": "function", "function":
    {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties":
    {"a": {"type": "number"}}, "required": ["a"]}}}], "add_generation_prompt": true,
    "bos_token": "<s>", "eos_token": "</s>", "n": 7, "x": -0.25, "empty": [], "none": null})";

constexpr text::RenderLimits kLimits = {
    .steps = 20'000, .output_bytes = 1U << 16, .depth = 64, .memory_bytes = 4U << 20};

bool is_plain(std::string_view source) {
    return source.find("{{") == std::string_view::npos &&
           source.find("{%") == std::string_view::npos &&
           source.find("{#") == std::string_view::npos &&
           source.find('\r') == std::string_view::npos;
}

void check(std::string_view source, std::string_view json, text::Dialect dialect) {
    const auto compiled = text::ChatTemplate::compile(source, dialect);
    require_honest(compiled.status());
    if (!compiled) {
        require(compiled.status().code() == Code::invalid_argument ||
                    compiled.status().code() == Code::resource_exhausted,
                "a template is refused for what it is", compiled.status().to_string());
        return;
    }
    require(compiled->source() == source, "the source is kept");
    const auto first = compiled->render(json, {}, kLimits);
    const auto second = compiled->render(json, {}, kLimits);
    // What raise_exception() says is the template's own, line breaks and all.
    if (first.status().code() != Code::invalid_argument) require_honest(first.status());
    require(first.is_ok() == second.is_ok(), "the same outcome again");
    if (!first) {
        require(first.status().code() == Code::invalid_argument ||
                    first.status().code() == Code::resource_exhausted,
                "rendering ends with a template's own error or a limit",
                first.status().to_string());
        require(first.status().code() == second.status().code(), "the same failure again");
        return;
    }
    require(*first == *second, "the same text again");
    require(first->size() <= kLimits.output_bytes, "the output is bounded");
    if (is_plain(source)) {
        source.remove_suffix(source.ends_with('\n') ? 1 : 0);
        require(*first == source, "text without tags stays as it is", *first);
    }
}

}  // namespace
}  // namespace stet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace stet;
    const std::string_view all(reinterpret_cast<const char*>(data), size);
    const std::size_t end = all.find('\0');
    const std::string_view source = all.substr(0, end);
    const std::string_view json =
        end == std::string_view::npos ? fuzz::kUsual : all.substr(end + 1);
    fuzz::check(source, json, text::Dialect::reference);
    fuzz::check(source, json, text::Dialect::extended);
    return 0;
}
