// Every family's form, whole and cut at every byte.
#include "text/chat_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/chat_format/format.h"
#include "unit/text/tokenizer_support.h"

namespace stet::text {
namespace {

using Call = std::pair<std::string, std::string>;  // name, arguments

constexpr std::string_view kTools = R"([
    {"type": "function", "function": {"name": "add", "parameters": {"properties": {
        "a": {"type": "integer"}, "b": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "sub", "parameters": {}}}])";

#define STET_BAR "\xEF\xBD\x9C"
#define STET_LOW "\xE2\x96\x81"
#define STET_NS "]<]minimax[>["

struct Parts {
    std::string reasoning, content;
    std::vector<ToolCall> calls;
};

void append(Parts& parts, const ChatDelta& delta) {
    parts.reasoning += delta.reasoning;
    parts.content += delta.content;
    parts.calls.insert(parts.calls.end(), delta.calls.begin(), delta.calls.end());
}

struct Example {
    std::string_view format;
    std::string text;
    std::string reasoning;
    std::string content;
    std::vector<Call> calls;
    std::string prompt;  // its end
    bool has_tools = true;
};

ChatOptions options_of(const Example& example) {
    const ChatFormat* format = find_chat_format(example.format);
    EXPECT_NE(format, nullptr) << example.format;
    return chat_options_of(*format, example.prompt, example.has_tools ? kTools : "");
}

void expect_parts(const Example& example, const ChatParser& parser, const Parts& parts,
                  const std::string& where) {
    EXPECT_EQ(parts.reasoning, example.reasoning) << where;
    EXPECT_EQ(parts.content, example.content) << where;
    EXPECT_EQ(parser.reasoning(), parts.reasoning) << where;
    EXPECT_EQ(parser.content(), parts.content) << where;
    EXPECT_EQ(parser.calls().size(), parts.calls.size()) << where;
    ASSERT_EQ(parts.calls.size(), example.calls.size()) << where;
    for (std::size_t i = 0; i < example.calls.size(); ++i) {
        EXPECT_EQ(parts.calls[i].name, example.calls[i].first) << where;
        EXPECT_EQ(parts.calls[i].arguments, example.calls[i].second) << where;
    }
}

// Whole, in equal pieces of every length, and in two pieces at every place.
void check(const Example& example) {
    const ChatOptions options = options_of(example);
    const std::string& text = example.text;
    const auto stream = [&](const std::vector<std::string>& pieces, const std::string& how) {
        ChatParser parser(options);
        Parts parts;
        for (const std::string& piece : pieces) append(parts, parser.add(piece));
        append(parts, parser.finish());
        expect_parts(example, parser, parts, std::string(example.format) + " " + how + ": " + text);
    };
    for (std::size_t step = 1; step <= text.size() + 1; ++step) {
        std::vector<std::string> pieces;
        for (std::size_t i = 0; i < text.size(); i += step) pieces.push_back(text.substr(i, step));
        stream(pieces, "by " + std::to_string(step));
    }
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        stream({text.substr(0, cut), text.substr(cut)}, "cut at " + std::to_string(cut));
    }
}

void check_content(std::string_view format, const std::string& text, bool has_tools = true) {
    check({format, text, "", text, {}, "", has_tools});
}

const std::vector<Call> kOne = {{"add", R"({"a":1})"}};
const std::vector<Call> kTwo = {{"add", R"({"a":1})"}, {"sub", "{}"}};
const std::string kJson = R"({"name": "add", "arguments": {"a": 1}})";
const std::string kSubJson = R"({"name": "sub", "arguments": {}})";

std::vector<Example> of_json_families() {
    return {
        {"hermes", "<tool_call>\n" + kJson + "\n</tool_call>", "", "", kOne, ""},
        {"hermes",
         "<think>\nHm.\n</think>\n\nI add. <tool_call>" + kJson + "</tool_call>\n<tool_call>" +
             kSubJson + "</tool_call>\nDone.",
         "Hm.", "I add. Done.", kTwo, ""},
        {"llama3", R"({"name": "add", "parameters": {"a": 1}})", "", "", kOne, ""},
        {"llama3", R"({"name": "add", "parameters": {"a": 1}}; )" + kSubJson, "", "", kTwo, ""},
        {"llama3", "<|python_tag|>" + kJson, "", "", kOne, ""},
        {"llama3",
         R"j(<|python_tag|>brave_search.call(query="a \"b\"", n=2))j",
         "",
         "",
         {{"brave_search", R"({"query":"a \"b\"","n":2})"}},
         ""},
        {"llama3",
         "Look: <|python_tag|>print(\"x\")\nprint(2)",
         "",
         "Look: ",
         {{"python", R"j({"code":"print(\"x\")\nprint(2)"})j"}},
         ""},
        {"mistral", R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "123456789"}])",
         "", "", kOne, ""},
        {"mistral", "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]sub[ARGS]{}", "", "", kTwo, ""},
        {"mistral", "[THINK]Hm.[/THINK]Yes.[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{\"a\": 1}",
         "Hm.", "Yes.", kOne, ""},
        {"command-r",
         "Action: ```json\n[\n    {\n        \"tool_name\": \"add\",\n        \"parameters\": "
         "{\"a\": 1}\n    }\n]```",
         "", "", kOne, ""},
        {"command-r",
         "Action:\n```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]\n```Hi",
         "",
         "Hi",
         {},
         ""},
        {"command-r7b",
         "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
         "\"tool_name\": \"add\", \"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", "
         "\"tool_name\": \"sub\", \"parameters\": {}}\n]<|END_ACTION|>",
         "Hm.", "", kTwo, ""},
        {"command-r7b",
         "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
         "Hm.",
         "Yes.",
         {},
         "",
         false},
        {"tool-calls-tag", "<tool_calls>\n" + kJson + "\n" + kSubJson + "\n</tool_calls>", "", "",
         kTwo, ""},
        {"nemotron", "<TOOLCALL>[" + kJson + ", " + kSubJson + "]</TOOLCALL>", "", "", kTwo, ""},
        {"firefunction", " functools[" + kJson + "]", "", " ", kOne, ""},
        {"granite", "<|tool_call|>[" + kJson + "]", "", "", kOne, ""},
        {"any", "[" + kJson + "," + kSubJson + "]", "", "", kTwo, ""},
        {"any", R"([TOOL_CALLS][{"name": "add", "arguments": "{\"a\":1}"}])", "", "", kOne, ""},
    };
}

std::vector<Example> of_deepseek() {
    const std::string section = "<" STET_BAR "tool" STET_LOW "calls" STET_LOW "begin" STET_BAR ">";
    const std::string section_end =
        "<" STET_BAR "tool" STET_LOW "calls" STET_LOW "end" STET_BAR ">";
    const std::string call = "<" STET_BAR "tool" STET_LOW "call" STET_LOW "begin" STET_BAR ">";
    const std::string call_end = "<" STET_BAR "tool" STET_LOW "call" STET_LOW "end" STET_BAR ">";
    const std::string separator = "<" STET_BAR "tool" STET_LOW "sep" STET_BAR ">";
    const std::string dsml = STET_BAR "DSML" STET_BAR;
    return {
        {"deepseek",
         "<think>Hm</think>" + section + call + "function" + separator +
             "add\n```json\n{\"a\": 1}\n```" + call_end + "\n" + call + "function" + separator +
             "sub\n```json\n{}\n```" + call_end + section_end,
         "Hm", "", kTwo, ""},
        {"deepseek",
         "Yes. " + section + call + "add" + separator + "{\"a\": 1}" + call_end + call + "sub" +
             separator + "{}" + call_end + section_end,
         "", "Yes. ", kTwo, ""},
        {"deepseek-dsml",
         "<" + dsml + "function_calls>\n<" + dsml + "invoke name=\"add\">\n<" + dsml +
             "parameter name=\"a\" string=\"false\">1</" + dsml + "parameter>\n<" + dsml +
             "parameter name=\"c\" string=\"true\">2</" + dsml + "parameter>\n</" + dsml +
             "invoke>\n<" + dsml + "invoke name=\"sub\">\n</" + dsml + "invoke>\n</" + dsml +
             "function_calls>",
         "",
         "",
         {{"add", R"({"a":1,"c":"2"})"}, {"sub", "{}"}},
         ""},
    };
}

std::vector<Example> of_messages() {
    return {
        {"gpt-oss",
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
         "Yes.",
         "Hm.",
         "Yes.",
         {},
         "<|start|>assistant"},
        {"gpt-oss",
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
         "<|message|>I add.<|end|><|start|>assistant<|channel|>commentary to=functions.add "
         "<|constrain|>json<|message|>{\"a\": 1}",
         "Hm.", "I add.", kOne, "<|start|>assistant"},
        {"gpt-oss", " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}<|call|>", "",
         "", kOne, "<|start|>assistant"},
        {"gpt-oss", "<|start|>assistant<|channel|>final<|message|>a<|end|>", "", "a", {}, ""},
        {"functionary-3.2", "all\nI add.>>>add\n{\"a\": 1}>>>sub\n{}", "", "I add.", kTwo,
         "<|end_header_id|>\n\n>>>"},
        {"functionary-3.2",
         "python\nx = 1\nprint(x)",
         "",
         "",
         {{"python", R"j({"code":"x = 1\nprint(x)"})j"}},
         ">>>"},
        {"functionary-3.2", "all\n>>> 1 + 1\n2", "", ">>> 1 + 1\n2", {}, ">>>"},
        {"functionary-2",
         "all\n<|content|>I add.\n<|from|>assistant\n<|recipient|>add\n<|content|>{\"a\": 1}"
         "<|from|>assistant\n<|recipient|>sub\n<|content|>{}<|stop|>",
         "", "I add.", kTwo, "<|from|>assistant\n<|recipient|>"},
    };
}

std::vector<Example> of_tagged_families() {
    return {
        {"hermes",
         "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n"
         "  x\n</function> 2\n</parameter>\n</function>\n</tool_call>",
         "",
         "",
         {{"add", R"({"a":1,"b":"  x\n</function> 2"})"}},
         ""},
        {"hermes",
         "<tool_call><function=add><parameter=b>7</parameter></function></tool_call>",
         "",
         "",
         {{"add", R"({"b":"7"})"}},
         ""},
        {"seed-oss",
         "<seed:think>Hm</seed:think><seed:tool_call>\n<function=add>\n<parameter=a>1</parameter>\n"
         "</function>\n</seed:tool_call>",
         "Hm", "", kOne, ""},
        {"functionary-3.1", "I add. <function=add>{\"a\": 1}</function><function=sub>{}</function>",
         "", "I add. ", kTwo, ""},
        {"functionary-3.1",
         "<|python_tag|>print(1)",
         "",
         "",
         {{"python", R"j({"code":"print(1)"})j"}},
         ""},
        {"glm",
         "\n<think>Hm.</think>\nI add.\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1"
         "</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
         "<tool_call>sub\n</tool_call>",
         "Hm.",
         "I add.\n",
         {{"add", R"({"a":1,"b":"2"})"}, {"sub", "{}"}},
         ""},
        {"glm", "Hm.</think><tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
         "Hm.", "", kOne, "<|assistant|><think>"},
        {"kimi-k2",
         "I add.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
         "<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.sub:1"
         "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
         "", "I add.", kTwo, ""},
        {"kimi-k3",
         "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|><|open|>tools"
         "<|sep|><|open|>call tool=\"add\" index=\"0\"<|sep|><|open|>argument key=\"a\" type="
         "\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
         "<|close|>message<|sep|>",
         "Hm.", "Yes.", kOne, "<|open|>think<|sep|>"},
        {"minimax-m2",
         "Hm.\n</think>\n\n<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"a\">1"
         "</parameter>\n</invoke>\n<invoke name=\"sub\">\n</invoke>\n</minimax:tool_call>",
         "Hm.", "", kTwo, "]~b]ai\n<think>\n"},
        {"minimax-m3",
         "<mm:think>Hm.</mm:think>" STET_NS "<tool_call>\n" STET_NS "<invoke name=\"add\">" STET_NS
         "<a>1" STET_NS "</a>" STET_NS "<l>" STET_NS "<item>" STET_NS "<k>x" STET_NS "</k>" STET_NS
         "</item>" STET_NS "<item>2" STET_NS "</item>" STET_NS "</l>" STET_NS "</invoke>\n" STET_NS
         "</tool_call>",
         "Hm.",
         "",
         {{"add", R"({"a":1,"l":[{"k":"x"},2]})"}},
         ""},
    };
}

std::vector<Example> of_literal_families() {
    const std::string mark = "<|\"|>";
    return {
        {"gemma4",
         "<|channel>thought\nHm.\n<channel|>I add. <|tool_call>call:add{a:1,b:" + mark + "x, }\"" +
             mark + ",c:[true," + mark + mark +
             ",null],d:{e:-2.5}}<tool_call|>"
             "<|tool_call>call:sub{}<tool_call|><|tool_response>",
         "Hm.",
         "I add. ",
         {{"add", R"({"a":1,"b":"x, }\"","c":[true,"",null],"d":{"e":-2.5}})"}, {"sub", "{}"}},
         ""},
        {"gemma4", "Hm.<channel|>Yes.", "Hm.", "Yes.", {}, "<|turn>model\n<|channel>thought\n"},
        {"lfm2",
         "<think>Hm.</think>I add.<|tool_call_start|>[add(a=1, b='it\\'s', c=[True, None, (1.5,)], "
         "d={\"e\": \"\\u00e9]\"}), sub()]<|tool_call_end|>Done.",
         "Hm.",
         "I add.Done.",
         {{"add", "{\"a\":1,\"b\":\"it's\",\"c\":[true,null,[1.5]],\"d\":{\"e\":\"\xC3\xA9]\"}}"},
          {"sub", "{}"}},
         ""},
        {"lfm2", "<|tool_call_start|>[" + kJson + "]<|tool_call_end|>", "", "", kOne, ""},
        {"apertus",
         "<|inner_prefix|>Hm.<|inner_suffix|>I add.<|tools_prefix|>[{\"add\": {\"a\": 1}}, "
         "{\"sub\": "
         "{}}]<|tools_suffix|>",
         "Hm.", "I add.", kTwo, ""},
        {"gigachat3",
         "I add.<|message_sep|>\n\nfunction call<|role_sep|>\n" + kJson + "<|message_sep|>\n\n", "",
         "I add.", kOne, ""},
        {"hunyuan-3",
         "<think:opensource>Hm.</think:opensource>I add.<tool_calls:opensource>\n"
         "<tool_call:opensource>add<tool_sep:opensource>\n<arg_key:opensource>a"
         "</arg_key:opensource>\n<arg_value:opensource>1</arg_value:opensource>\n"
         "</tool_call:opensource>\n<tool_call:opensource>sub<tool_sep:opensource>\n"
         "</tool_call:opensource>\n</tool_calls:opensource>",
         "Hm.", "I add.", kTwo, ""},
        {"solar",
         "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5"
         "<|tool_call:name|>add<|tool_call:args|>{\"a\": 1}<|tool_call:end|><|tool_call:begin|>x"
         "<|tool_call:name|>sub<|tool_call:args|>{}<|tool_call:end|><|calls|>",
         "Hm.", "", kTwo, "<|begin|>assistant"},
        {"solar", "<|content|>Yes.<|end|>", "", "Yes.", {}, "<|begin|>assistant"},
    };
}

std::vector<Example> families() {
    std::vector<Example> all;
    for (const auto& some : {of_json_families(), of_deepseek(), of_messages(), of_tagged_families(),
                             of_literal_families()}) {
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

TEST(ChatParser, EveryFamilyWholeAndCutAtEveryByte) {
    for (const Example& example : families()) check(example);
}

TEST(ChatParser, EveryRowOfTheTableHasAnExample) {
    const auto examples = families();
    for (const ChatFormat& format : chat_formats()) {
        EXPECT_TRUE(std::any_of(examples.begin(), examples.end(), [&](const Example& example) {
            return example.format == format.name && !example.calls.empty();
        })) << format.name;
    }
}

TEST(ChatParser, PlainTextPasses) {
    for (const ChatFormat& format : chat_formats()) {
        for (const std::string text :
             {"Hello <b>you</b> [1] {2}", " <thin air", "a <think>b</think>", "1 < 2 and 3 > 2"}) {
            check_content(format.name, text);
        }
    }
    check_content("any", "{\"a\": 1}");
    check_content("any", "<tool_call>", false);
    check_content("functionary-3.2", "a>>>s%is<|recipient|>b");
    for (const std::string inner : {"[1]", "[f]", "[f(1)]", "[f(a=b)]", "[f(a=1]", "[]", "f(a=1)",
                                    "[f(a=1), 2]", "['f'(a=1)]", "[f(a='x)]"}) {
        check_content("lfm2", "<|tool_call_start|>" + inner + "<|tool_call_end|>");
    }
    for (const std::string inner : {"add", "add{a}", "add{a:}", "add{a:1", "{a:1}", "add{a:1,,b:2}",
                                    "add[1]", "add{a:<|\"|>x}"}) {
        check_content("gemma4", "<|tool_call>call:" + inner + "<tool_call|>");
    }
    check_content("apertus", "<|tools_prefix|>[{\"add\": 1}]<|tools_suffix|>");
    check_content("apertus", "<|tools_prefix|>[{\"a\": {}, \"b\": {}}]<|tools_suffix|>");
}

TEST(ChatParser, ReasoningIsTakenApart) {
    check({"any", "<think>\nHm.</think>\n\nYes.", "Hm.", "Yes.", {}, ""});
    check({"any", "<think>Hm", "Hm", "", {}, ""});
    check({"any", "<think>a\n\nb\n</think>\n", "a\n\nb", "", {}, ""});
    check({"any", "Hm.</think>Yes", "Hm.", "Yes", {}, "<think>\n"});
    check({"any", "</think>Yes", "", "Yes", {}, ""});
    check({"any", "<think></think>\n\nYes", "", "Yes", {}, ""});
    check({"mistral", "Hm.[/THINK]Yes", "Hm.", "Yes", {}, "[THINK]"});
}

TEST(ChatParser, WhatIsNoCallStaysText) {
    for (const std::string text :
         {"{\"a\": 1}", "<tool_call>nothing", "<tool_call>{\"name\": 3}</tool_call>", "[1, 2]",
          "<function=add", "{", "<tool_call>{\"name\":\"x\"}", "<tool_cal", "{\"name\"",
          "<tool_call></tool_call>", "[TOOL_CALLS]see you", "{\"name\": \"Ann\", \"age\": 3}",
          "<tool_call>{\"name\":\"x\",\"arguments\":\"no JSON\"}</tool_call>"}) {
        check_content("any", text);
    }
    const std::string call = R"(<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>)";
    check({"any", call + "<tool_call>oh", "", "<tool_call>oh", kOne, ""});
}

// A part that is too long for a name or key is content again from where it began, however the text
// came: what follows it is looked at once more.
TEST(ChatParser, WhatIsTooLongForACallStaysText) {
    const std::string call = R"(<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>)";
    for (const auto& [open, length] : {std::pair<std::string, std::size_t>{"<tool_call>\n", 300},
                                       {"<function=", 300},
                                       {"<tool_call>add\n<arg_key>", 1200},
                                       {"[TOOL_CALLS]add", 400}}) {
        const std::string text = open + std::string(length, 'x');
        check({"any", text + call, "", text, kOne, ""});
    }
}

// A call is given away at its last byte, other text as soon as it can't be a marker.
TEST(ChatParser, NothingWaitsLongerThanItMust) {
    const auto added = [](std::string_view format, const std::string& prompt,
                          std::string_view before, std::string_view last) {
        ChatParser parser(options_of({format, "", "", "", {}, prompt}));
        parser.add(before);
        return parser.add(last);
    };
    EXPECT_EQ(added("hermes", "", "", "Hi!").content, "Hi!");
    EXPECT_EQ(added("hermes", "", "a <", "b").content, "<b");
    EXPECT_EQ(added("llama3", "", "{", "\"x").content, "{\"x");
    EXPECT_EQ(added("hermes", "<think>", "Hm", "m <").reasoning, "m");
    const std::string_view call = "<tool_call>{\"name\":\"add\",\"arguments\":{}";
    EXPECT_EQ(added("hermes", "", call, "}").calls.size(), 1U);
    EXPECT_EQ(added("gpt-oss", "<|start|>assistant", "<|channel|>final<|message|>", "Yes").content,
              "Yes");
}

TEST(ChatParser, IdsOfTheModelStay) {
    const auto id = [](std::string_view format, std::string_view text) -> std::string {
        ChatParser parser(chat_options_of(*find_chat_format(format), "", kTools));
        parser.add(text);
        parser.finish();
        return parser.calls().empty() ? "none" : parser.calls().front().id;
    };
    EXPECT_EQ(id("kimi-k2",
                 "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:3"
                 "<|tool_call_argument_begin|>{}<|tool_call_end|>"),
              "functions.add:3");
    EXPECT_EQ(id("solar",
                 "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>add"
                 "<|tool_call:args|>{}<|tool_call:end|>"),
              "a1b2c3d4e5");
    EXPECT_EQ(id("mistral", "[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{}"), "abcdefghi");
    EXPECT_EQ(id("mistral", R"([TOOL_CALLS][{"name":"add","arguments":{},"id":"123456789"}])"),
              "123456789");
    EXPECT_EQ(id("hermes", R"(<tool_call>{"name":"add","arguments":{}}</tool_call>)"), "");
}

// A megabyte of markers: nothing quadratic, no recursion, arguments are JSON.
TEST(ChatParser, HostileTextIsBounded) {
    const auto repeated = [](const std::string& text, std::size_t bytes) {
        std::string all;
        while (all.size() < bytes) all += text;
        return all;
    };
    constexpr std::size_t kBytes = 1 << 20;
    for (const ChatFormat& format : chat_formats()) {
        std::vector<std::string> units = {"{",
                                          "[",
                                          "<",
                                          "<tool_call>",
                                          "{\"name\":",
                                          ">>>",
                                          "\n",
                                          "<tool_call>{",
                                          "<|channel|>",
                                          "<|end|>",
                                          "[TOOL_CALLS]a",
                                          "[f(",
                                          "(",
                                          "'"};
        for (const CallSyntax& syntax : format.calls) {
            units.push_back(std::string(syntax.open) + "a" + std::string(syntax.name_close));
            units.push_back(units.back() + std::string(syntax.arguments_open) +
                            std::string(syntax.key_open));
        }
        for (const Pair& pair : format.sections) units.emplace_back(pair.open);
        for (const auto open : format.header_opens) units.push_back(std::string(open) + "all");
        for (const std::string& unit : units) {
            ChatParser parser(chat_options_of(format, "", kTools));
            parser.add(repeated(unit, kBytes));
            parser.finish();
            EXPECT_LE(parser.content().size(), kBytes + unit.size()) << format.name << unit;
            for (const ToolCall& call : parser.calls()) {
                EXPECT_TRUE(nlohmann::json::accept(call.arguments)) << call.arguments;
            }
        }
    }
}

// What a call holds is never guessed from brackets without quotes: such code is for the
// interpreter.
TEST(ChatParser, KeywordsOfBuiltInToolsAreNumbersWordsAndTexts) {
    const auto call = [](std::string_view inner) {
        ChatParser parser(chat_options_of(*find_chat_format("llama3"), "", kTools));
        parser.add("<|python_tag|>search.call(" + std::string(inner) + ")");
        parser.finish();
        return parser.calls().at(0).name;
    };
    EXPECT_EQ(call(R"(a="x", b=true, c=1.5, d=null)"), "search");
    EXPECT_EQ(call("a=[1]"), "python");
    EXPECT_EQ(call("a={}"), "python");
    EXPECT_EQ(call("a="), "python");
    EXPECT_EQ(call("a=" + std::string(1 << 20, '[')), "python");
}

TEST(ChatFormats, PublishedTemplatesTeachTheirForm) {
    const std::pair<const char*, const char*> expected[] = {
        {"openai-gpt-oss-120b", "gpt-oss"},
        {"meetkai-functionary-medium-v3.1", "functionary-3.1"},
        {"meetkai-functionary-medium-v3.2", "functionary-3.2"},
        {"Kimi-K2-Instruct", "kimi-k2"},
        {"Kimi-K3", "kimi-k3"},
        {"CohereForAI-c4ai-command-r-plus-tool_use", "command-r"},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r7b"},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek"},
        {"deepseek-ai-DeepSeek-V3.1", "deepseek"},
        {"deepseek-ai-DeepSeek-V3.2", "deepseek-dsml"},
        {"MiniMax-M1", "tool-calls-tag"},
        {"MiniMax-M2", "minimax-m2"},
        {"MiniMax-M3", "minimax-m3"},
        {"GLM-4.6", "glm"},
        {"ByteDance-Seed-OSS", "seed-oss"},
        {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
        {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
        {"NVIDIA-Nemotron-Nano-v2", "nemotron"},
        {"fireworks-ai-llama-3-firefunction-v2", "firefunction"},
        {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
        {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
        {"Qwen-Qwen3-0.6B", "hermes"},
        {"Qwen3-Coder", "hermes"},
        {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
        {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
        {"google-gemma-4-31B-it", "gemma4"},
        {"google-gemma-4-31B-it-interleaved", "gemma4"},
        {"LFM2-8B-A1B", "lfm2"},
        {"LFM2.5-8B-A1B", "lfm2"},
        {"LFM2.5-Instruct", "lfm2"},
        {"Apertus-8B-Instruct", "apertus"},
        {"GigaChat3-10B-A1.8B", "gigachat3"},
        {"GigaChat3.1-10B-A1.8B", "gigachat3"},
        {"tencent-Hy3", "hunyuan-3"},
        {"upstage-Solar-Open-100B", "solar"},
        {"google-gemma-2-2b-it", "any"}};
    for (const auto& [file, format] : expected) {
        const auto path = test_cache() / "templates" / (std::string(file) + ".jinja");
        STET_NEED_FILE(path);
        EXPECT_EQ(chat_format_of(read_text(path)).name, format) << file;
    }
    EXPECT_EQ(chat_format_of("").name, "any");
}

// A control token that is a marker comes as text, others stay hidden.
TEST(ChatFormats, MarkersReachTheParser) {
    SmallVocabulary small("llama");
    small.add("<unk>", kTypeUnknown);
    const Token end = small.add("</s>", kTypeControl);
    small.add_bytes();
    const Token calls = small.add("[TOOL_CALLS]", kTypeControl);
    const Token arguments = small.add("[ARGS]", kTypeControl);
    const auto tokenizer = small.load();
    ASSERT_TRUE(tokenizer) << tokenizer.status().to_string();
    const ChatFormat& format = *find_chat_format("mistral");
    EXPECT_EQ(marker_tokens(format, **tokenizer, false), Tokens{});
    EXPECT_EQ(marker_tokens(format, **tokenizer, true), (Tokens{calls, arguments}));
    StreamDecoder decoder(**tokenizer, false, {calls, arguments});
    EXPECT_EQ(decoder.add(end), "");
    EXPECT_EQ(decoder.add(calls), "[TOOL_CALLS]");
}

}  // namespace
}  // namespace stet::text
