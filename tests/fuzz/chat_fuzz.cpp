// An answer of a model taken apart while it grows: FORMAT, OPTIONS, SEED, then the text. However it
// is cut into pieces, the parts must be those of the whole, and nothing may be made up.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "text/chat_format/format.h"
#include "text/chat_parser.h"

namespace stet::fuzz {
namespace {

constexpr std::string_view kTools = R"([
    {"type": "function", "function": {"name": "add", "parameters": {"properties": {
        "a": {"type": "integer"}, "b": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "sub", "parameters": {}}}])";

struct Parts {
    std::string reasoning, content;
    std::vector<text::ToolCall> calls;

    void add(const text::ChatDelta& delta) {
        reasoning += delta.reasoning;
        content += delta.content;
        calls.insert(calls.end(), delta.calls.begin(), delta.calls.end());
    }
    std::string described() const {
        std::string all = "reasoning [" + reasoning + "] content [" + content + "]";
        for (const auto& call : calls) all += " " + call.id + " " + call.name + call.arguments;
        return all;
    }
};

Parts parse(const text::ChatOptions& options, const std::vector<std::string_view>& pieces) {
    text::ChatParser parser(options);
    Parts parts;
    for (const std::string_view piece : pieces) parts.add(parser.add(piece));
    parts.add(parser.finish());
    require(parser.content() == parts.content && parser.reasoning() == parts.reasoning &&
                parser.calls().size() == parts.calls.size(),
            "the parser remembers what it gave away");
    return parts;
}

std::vector<std::string_view> cut(std::string_view text, std::uint32_t seed) {
    std::vector<std::string_view> pieces;
    std::uint32_t state = seed;
    while (!text.empty()) {
        state = state * 1664525 + 1013904223;
        const std::size_t length = std::min<std::size_t>(text.size(), 1 + (state >> 24) % 7);
        pieces.push_back(text.substr(0, length));
        text.remove_prefix(length);
    }
    return pieces;
}

void check(const Parts& parts, const text::ChatOptions& options, std::string_view text) {
    require(parts.content.size() + parts.reasoning.size() <= text.size(), "no text is made up",
            parts.described());
    require(options.has_tools || parts.calls.empty(), "no tools, no calls", parts.described());
    for (const text::ToolCall& call : parts.calls) {
        const auto json = nlohmann::json::parse(call.arguments, nullptr, false);
        require(json.is_object(), "arguments are a JSON object", call.arguments);
        require(!call.name.empty(), "a call has a name");
    }
}

}  // namespace
}  // namespace stet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace stet;
    fuzz::Input input(data, size);
    const auto formats = text::chat_formats();
    const text::ChatFormat& format = formats[input.byte() % formats.size()];
    const std::uint8_t choice = input.byte();
    const std::uint8_t seed = input.byte();
    std::string prompt;
    if ((choice & 2U) != 0 && !format.reasoning.empty()) prompt = format.reasoning.front().open;
    if ((choice & 4U) != 0 && !format.header_opens.empty()) prompt = format.header_opens.front();
    const auto options =
        text::chat_options_of(format, prompt, (choice & 1U) != 0 ? fuzz::kTools : "");
    const std::string_view text = input.text();
    const fuzz::Parts whole = fuzz::parse(options, {text});
    fuzz::check(whole, options, text);
    const fuzz::Parts streamed = fuzz::parse(options, fuzz::cut(text, seed));
    fuzz::require(streamed.described() == whole.described(), "pieces give what the whole gives",
                  streamed.described() + " / " + whole.described());
    return 0;
}
