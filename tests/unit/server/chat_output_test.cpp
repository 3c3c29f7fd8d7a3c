#include "server/chat_output.h"

#include <gtest/gtest.h>

namespace stet::server {
namespace {

struct Parts {
    std::string reasoning, content;
    std::vector<ToolCall> calls;
};

// The parts when the text arrives in pieces of `step` bytes, as a stream would show them.
Parts stream(std::string_view text, std::size_t step, const ChatOutput::Options& options) {
    ChatOutput output(options);
    Parts parts;
    const auto add = [&](const ChatDelta& delta) {
        parts.reasoning += delta.reasoning;
        parts.content += delta.content;
        parts.calls.insert(parts.calls.end(), delta.calls.begin(), delta.calls.end());
    };
    for (std::size_t i = 0; i < text.size(); i += step) add(output.add(text.substr(i, step)));
    add(output.finish());
    EXPECT_EQ(parts.content, output.content());
    EXPECT_EQ(parts.reasoning, output.reasoning());
    return parts;
}

void expect(std::string_view text, const ChatOutput::Options& options, std::string_view reasoning,
            std::string_view content,
            const std::vector<std::pair<std::string, std::string>>& calls) {
    for (std::size_t step = 1; step <= text.size() + 1; ++step) {
        const Parts parts = stream(text, step, options);
        EXPECT_EQ(parts.reasoning, reasoning) << text << " by " << step;
        EXPECT_EQ(parts.content, content) << text << " by " << step;
        ASSERT_EQ(parts.calls.size(), calls.size()) << text << " by " << step;
        for (std::size_t i = 0; i < calls.size(); ++i) {
            EXPECT_EQ(parts.calls[i].name, calls[i].first);
            EXPECT_EQ(parts.calls[i].arguments, calls[i].second);
        }
    }
}

constexpr ChatOutput::Options kPlain{};
constexpr ChatOutput::Options kTools{.has_tools = true};

TEST(ChatOutput, PlainTextPasses) {
    expect("Hello <b>you</b>", kPlain, "", "Hello <b>you</b>", {});
    expect("{\"a\": 1}", kPlain, "", "{\"a\": 1}", {});
    expect("<tool_call>", kPlain, "", "<tool_call>", {});
    expect(" <thin air", kPlain, "", " <thin air", {});
}

TEST(ChatOutput, ReasoningIsTakenApart) {
    expect("<think>\nHm.</think>\n\nYes.", kPlain, "Hm.", "Yes.", {});
    expect("<think>Hm", kPlain, "Hm", "", {});
    expect("Hm.</think>Yes", {.starts_in_reasoning = true}, "Hm.", "Yes", {});
    expect("a <think>b</think>", kPlain, "", "a <think>b</think>", {});
}

TEST(ChatOutput, CallsOfAllForms) {
    const std::vector<std::pair<std::string, std::string>> one = {{"add", R"({"a":1})"}};
    expect(R"(<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)", kTools, "", "", one);
    expect(R"(I add. <tool_call>
{"name": "add", "arguments": {"a": 1}}
</tool_call><tool_call>{"name": "sub", "arguments": {}}</tool_call>)",
           kTools, "", "I add. ", {{"add", R"({"a":1})"}, {"sub", "{}"}});
    expect(R"({"name": "add", "parameters": {"a": 1}})", kTools, "", "", one);
    expect(R"([{"name": "add", "arguments": {"a": 1}}])", kTools, "", "", one);
    expect(R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}])", kTools, "", "", one);
    expect(R"(<|python_tag|>{"name": "add", "arguments": "{\"a\":1}"})", kTools, "", "", one);
    expect("<tool_call><function=add><parameter=a>\n1\n</parameter></function></tool_call>", kTools,
           "", "", one);
    expect(R"(<think>x</think><tool_call>{"name":"add","arguments":{"a":1}}</tool_call>)", kTools,
           "x", "", one);
}

TEST(ChatOutput, WhatIsNoCallStaysText) {
    for (const std::string_view text :
         {"{\"a\": 1}", "<tool_call>nothing", "<tool_call>{\"name\": 3}</tool_call>", "[1, 2]",
          "<function=add", "{", "<tool_call>{\"name\":\"x\"}", "<tool_cal"}) {
        expect(text, kTools, "", text, {});
    }
}

}  // namespace
}  // namespace stet::server
