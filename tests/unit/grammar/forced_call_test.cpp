// Calls that must come: every family's form is what its parser reads back.
#include "grammar/forced_call.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "text/chat_format/format.h"
#include "unit/grammar/grammar_support.h"

namespace stet::grammar {
namespace {

#define STET_BAR "\xEF\xBD\x9C"
#define STET_LOW "\xE2\x96\x81"
#define STET_NS "]<]minimax[>["
#define STET_DSML STET_BAR "DSML" STET_BAR

constexpr std::string_view kTools = R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "now"}}])";
constexpr std::string_view kArguments = R"({"city": "Paris", "days": 3})";

struct Example {
    std::string format;
    std::string chat_template;  // what of it decides
    std::string text;           // a call of get_weather
    std::string prompt;         // its end
};

std::string with_arguments(std::string_view before, std::string_view after) {
    return std::string(before) + std::string(kArguments) + std::string(after);
}

std::vector<Example> examples() {
    const std::string named = R"({"name": "get_weather", "arguments": )";
    const std::string call = with_arguments(named, "}");
    const std::string deepseek = "<" STET_BAR "tool" STET_LOW "calls" STET_LOW "begin" STET_BAR
                                 "><" STET_BAR "tool" STET_LOW "call" STET_LOW "begin" STET_BAR ">";
    const std::string separator = "<" STET_BAR "tool" STET_LOW "sep" STET_BAR ">";
    const std::string deepseek_end =
        "<" STET_BAR "tool" STET_LOW "call" STET_LOW "end" STET_BAR "><" STET_BAR "tool" STET_LOW
        "calls" STET_LOW "end" STET_BAR ">";
    const std::string function_tag =
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>";
    return {
        {"hermes", "", "<tool_call>\n" + call + "\n</tool_call>", ""},
        {"hermes", "<function=", "<tool_call>\n" + function_tag + "\n</tool_call>", ""},
        {"any", "", "<tool_call>\n" + call + "\n</tool_call>", ""},
        {"llama3", "", with_arguments(R"({"name": "get_weather", "parameters": )", "}"), ""},
        {"mistral", "", "[TOOL_CALLS][" + call + "]", ""},
        {"mistral", "[ARGS]", with_arguments("[TOOL_CALLS]get_weather[ARGS]", ""), ""},
        {"nemotron", "", "<TOOLCALL>[" + call + "]</TOOLCALL>", ""},
        {"firefunction", "", "functools[" + call + "]", ""},
        {"tool-calls-tag", "", "<tool_calls>[" + call + "]</tool_calls>", ""},
        {"granite", "", "<|tool_call|>[" + call + "]", ""},
        {"command-r7b", "",
         with_arguments("<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
                        "\"get_weather\", \"parameters\": ",
                        "}\n]<|END_ACTION|>"),
         ""},
        {"command-r", "",
         with_arguments("Action: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n"
                        "        \"parameters\": ",
                        "\n    }\n]```"),
         ""},
        {"kimi-k2", "",
         with_arguments("<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
                        "<|tool_call_argument_begin|>",
                        "<|tool_call_end|><|tool_calls_section_end|>"),
         ""},
        {"kimi-k3", "",
         "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>"
         "<|open|>argument key=\"city\" type=\"string\"<|sep|>Paris<|close|>argument<|sep|>"
         "<|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>"
         "<|close|>call<|sep|><|close|>tools<|sep|>",
         ""},
        {"deepseek", "function" + separator,
         with_arguments(deepseek + "function" + separator + "get_weather\n```json\n",
                        "\n```" + deepseek_end),
         ""},
        {"deepseek", "", with_arguments(deepseek + "get_weather" + separator, deepseek_end), ""},
        {"deepseek-dsml", "function_calls",
         "<" STET_DSML "function_calls>\n<" STET_DSML "invoke name=\"get_weather\">\n<" STET_DSML
         "parameter name=\"city\" string=\"true\">Paris</" STET_DSML "parameter>\n<" STET_DSML
         "parameter name=\"days\" string=\"false\">3</" STET_DSML "parameter>\n</" STET_DSML
         "invoke>\n</" STET_DSML "function_calls>",
         ""},
        {"minimax-m3", "",
         STET_NS "<tool_call>\n" STET_NS "<invoke name=\"get_weather\">" STET_NS
                 "<city>Paris" STET_NS "</city>" STET_NS "<days>3" STET_NS "</days>" STET_NS
                 "</invoke>\n" STET_NS "</tool_call>",
         ""},
        {"minimax-m2", "",
         "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris"
         "</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
         ""},
        {"apertus", "", with_arguments("<|tools_prefix|>[{\"get_weather\": ", "}]<|tools_suffix|>"),
         ""},
        {"gigachat3", "", "<|message_sep|>\n\nfunction call<|role_sep|>\n" + call, ""},
        {"glm", "",
         "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
         "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
         ""},
        {"seed-oss", "", "<seed:tool_call>\n" + function_tag + "\n</seed:tool_call>", ""},
        {"functionary-3.1", "", with_arguments("<function=get_weather>", "</function>"), ""},
        {"functionary-3.2", "", with_arguments("get_weather\n", ""), ">>>"},
        {"gpt-oss", "",
         with_arguments("<|channel|>commentary to=functions.get_weather <|constrain|>json"
                        "<|message|>",
                        ""),
         "<|start|>assistant"},
    };
}

Result<Source> forced(const Example& example, const std::optional<Source>& or_else = {}) {
    const text::ChatFormat* format = text::find_chat_format(example.format);
    const auto tools = tools_of(kTools);
    EXPECT_TRUE(tools) << tools.status().to_string();
    return forced_call({format, example.chat_template, tokenizer()}, *tools, or_else);
}

TEST(ForcedCall, EveryFamilyWritesWhatItsParserReads) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    for (const Example& example : examples()) {
        const auto source = forced(example);
        ASSERT_TRUE(source) << example.format << ": " << source.status().to_string();
        const auto matcher = matcher_of(compiler, *source);
        ASSERT_NE(matcher, nullptr) << example.format;
        EXPECT_TRUE(passes(*matcher, example.text)) << example.format << ": " << example.text;
        EXPECT_TRUE(matcher->is_complete()) << example.format;
        EXPECT_FALSE(allows(compiler, *source, "It is sunny.")) << example.format;

        const text::ChatFormat& format = *text::find_chat_format(example.format);
        text::ChatParser parser(text::chat_options_of(format, example.prompt, kTools));
        parser.add(example.text);
        parser.finish();
        ASSERT_EQ(parser.calls().size(), 1U) << example.format << ": " << parser.content();
        EXPECT_EQ(parser.calls()[0].name, "get_weather") << example.format;
        EXPECT_EQ(nlohmann::json::parse(parser.calls()[0].arguments),
                  nlohmann::json::parse(kArguments))
            << example.format << ": " << parser.calls()[0].arguments;
    }
}

TEST(ForcedCall, EveryFormatIsForcedOrRefusedByName) {
    STET_NEED_TOKENIZER();
    const std::set<std::string_view> refused = {"functionary-2", "gemma4", "lfm2", "hunyuan-3",
                                                "solar"};
    for (const text::ChatFormat& format : text::chat_formats()) {
        const auto source = forced({std::string(format.name), "", "", ""});
        if (refused.contains(format.name)) {
            ASSERT_FALSE(source) << format.name;
            EXPECT_EQ(source.status().code(), Code::invalid_argument);
            EXPECT_NE(source.status().to_string().find(format.name), std::string::npos);
        } else {
            EXPECT_TRUE(source) << format.name << ": " << source.status().to_string();
        }
    }
}

TEST(ForcedCall, AnAnswerOfAFormInstead) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    const Example hermes = examples().front();
    const auto source = forced(hermes, Source{Kind::json_schema, R"({"const": {"a": 1}})"});
    ASSERT_TRUE(source);
    EXPECT_TRUE(allows(compiler, *source, hermes.text));
    EXPECT_TRUE(allows(compiler, *source, R"({"a":1})"));
    EXPECT_FALSE(allows(compiler, *source, R"({"a": 2})"));
    EXPECT_EQ(forced(hermes, Source{Kind::gbnf, "root ::= \"a\""}).status().code(),
              Code::invalid_argument);
}

TEST(ForcedCall, ToolsWithoutUsableNamesAreRefused) {
    EXPECT_FALSE(tools_of(R"([{"type": "function", "function": {}}])"));
    EXPECT_FALSE(tools_of(R"([{"function": {"name": "a\"b"}}])"));
    EXPECT_FALSE(tools_of("[1]"));
    EXPECT_TRUE(tools_of("[]")->empty());
}

}  // namespace
}  // namespace stet::grammar
