#include "grammar/forced_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "grammar/schema.h"
#include "grammar/source.h"
#include "text/chat_format/format.h"

namespace stet::grammar {
namespace {

using Json = nlohmann::ordered_json;
using View = std::string_view;

// A call is open NAME middle ARGUMENTS close.
struct FormRow {
    View format;        // name of the ChatFormat
    View template_has;  // only if the template's source has this; empty: always
    View open;
    View middle;
    View close;
    View style = "json";  // of the arguments, in xgrammar's words
};

// U+FF5C and U+2581 of DeepSeek's tokens.
#define STET_BAR "\xEF\xBD\x9C"
#define STET_LOW "\xE2\x96\x81"
#define STET_DEEPSEEK(name) "<" STET_BAR "tool" STET_LOW name STET_BAR ">"
#define STET_DSML STET_BAR "DSML" STET_BAR
#define STET_MINIMAX "]<]minimax[>["

// From the models' published chat templates, as text/chat_format/formats.cpp. Of a format's rows
// the first that fits is taken.
constexpr FormRow kForms[] = {
    {"hermes", "<function=", "<tool_call>\n<function=", ">\n", "\n</function>\n</tool_call>",
     "qwen_xml"},
    {"hermes", "", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>"},
    {"any", "", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>"},
    {"llama3", "", "{\"name\": \"", "\", \"parameters\": ", "}"},
    {"mistral", "[ARGS]", "[TOOL_CALLS]", "[ARGS]", ""},
    {"mistral", "", "[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": ", "}]"},
    {"nemotron", "", "<TOOLCALL>[{\"name\": \"", "\", \"arguments\": ", "}]</TOOLCALL>"},
    {"firefunction", "", "functools[{\"name\": \"", "\", \"arguments\": ", "}]"},
    {"tool-calls-tag", "", "<tool_calls>[{\"name\": \"", "\", \"arguments\": ", "}]</tool_calls>"},
    {"granite", "", "<|tool_call|>[{\"name\": \"", "\", \"arguments\": ", "}]"},
    {"command-r7b", "", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"",
     "\", \"parameters\": ", "}\n]<|END_ACTION|>"},
    {"command-r", "", "Action: ```json\n[\n    {\n        \"tool_name\": \"",
     "\",\n        \"parameters\": ", "\n    }\n]```"},
    {"kimi-k2", "", "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
     ":0<|tool_call_argument_begin|>", "<|tool_call_end|><|tool_calls_section_end|>"},
    {"kimi-k3", "", "<|open|>tools<|sep|><|open|>call tool=\"", "\" index=\"1\"<|sep|>",
     "<|close|>call<|sep|><|close|>tools<|sep|>", "kimi_k3_xml"},
    {"deepseek", "function" STET_DEEPSEEK("sep"),
     STET_DEEPSEEK("calls" STET_LOW "begin")
         STET_DEEPSEEK("call" STET_LOW "begin") "function" STET_DEEPSEEK("sep"),
     "\n```json\n",
     "\n```" STET_DEEPSEEK("call" STET_LOW "end") STET_DEEPSEEK("calls" STET_LOW "end")},
    {"deepseek", "", STET_DEEPSEEK("calls" STET_LOW "begin") STET_DEEPSEEK("call" STET_LOW "begin"),
     STET_DEEPSEEK("sep"),
     STET_DEEPSEEK("call" STET_LOW "end") STET_DEEPSEEK("calls" STET_LOW "end")},
    {"deepseek-dsml", "function_calls",
     "<" STET_DSML "function_calls>\n<" STET_DSML "invoke name=\"", "\">\n",
     "</" STET_DSML "invoke>\n</" STET_DSML "function_calls>", "deepseek_xml"},
    {"deepseek-dsml", "", "<" STET_DSML "tool_calls>\n<" STET_DSML "invoke name=\"", "\">\n",
     "</" STET_DSML "invoke>\n</" STET_DSML "tool_calls>", "deepseek_xml"},
    {"minimax-m3", "", STET_MINIMAX "<tool_call>\n" STET_MINIMAX "<invoke name=\"", "\">",
     STET_MINIMAX "</invoke>\n" STET_MINIMAX "</tool_call>", "minimax_m3_xml"},
    {"minimax-m2", "", "<minimax:tool_call>\n<invoke name=\"", "\">\n",
     "</invoke>\n</minimax:tool_call>", "minimax_xml"},
    {"apertus", "", "<|tools_prefix|>[{\"", "\": ", "}]<|tools_suffix|>"},
    // Its end is also the end of the answer.
    {"gigachat3", "", "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"",
     "\", \"arguments\": ", "}"},
    {"glm", "", "<tool_call>", "\n", "</tool_call>", "glm_xml"},
    {"seed-oss", "", "<seed:tool_call>\n<function=", ">\n", "\n</function>\n</seed:tool_call>",
     "qwen_xml"},
    {"functionary-3.1", "", "<function=", ">", "</function>"},
    {"functionary-3.2", "", "", "\n", ""},
    {"gpt-oss", "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", ""},
};

// Bytes of the control token that `text` begins with; 0: none.
std::size_t control_length(View text, const text::Tokenizer& tokenizer, Token& token) {
    constexpr std::size_t kTokenBytesMax = 64;
    for (std::size_t n = std::min(text.size(), kTokenBytesMax); n > 1; --n) {
        token = tokenizer.find(text.substr(0, n));
        if (token != text::kNoToken && tokenizer.is_control(token)) return n;
    }
    return 0;
}

// Control tokens come as such; the rest is text.
void add_text(Json& elements, View text, const text::Tokenizer& tokenizer) {
    std::string plain;
    const auto flush = [&] {
        if (!plain.empty()) elements.push_back({{"type", "const_string"}, {"value", plain}});
        plain.clear();
    };
    while (!text.empty()) {
        Token token = text::kNoToken;
        const std::size_t length = control_length(text, tokenizer, token);
        if (length == 0) {
            plain += text.front();
            text.remove_prefix(1);
            continue;
        }
        flush();
        elements.push_back({{"type", "token"}, {"token", token}});
        text.remove_prefix(length);
    }
    flush();
}

Result<Json> schema_element(View schema, View style) {
    STET_TRY(check_size({Kind::json_schema, std::string(schema)}, {}));
    STET_ASSIGN(const std::string strict, strict_schema(schema));
    return Json{{"type", "json_schema"},
                {"json_schema", Json::parse(strict)},
                {"style", style},
                {"max_whitespace_cnt", kBlanksMax}};
}

Result<Json> call_element(const FormRow& row, const Tool& tool, const text::Tokenizer& tokenizer) {
    constexpr View kNone = R"({"type": "object", "properties": {}})";
    Json elements = Json::array();
    add_text(elements, fmt::format("{}{}{}", row.open, tool.name, row.middle), tokenizer);
    STET_ASSIGN(Json arguments,
                schema_element(tool.parameters.empty() ? kNone : View(tool.parameters), row.style));
    elements.push_back(std::move(arguments));
    add_text(elements, row.close, tokenizer);
    return Json{{"type", "sequence"}, {"elements", std::move(elements)}};
}

bool is_tool_name(View name) {
    constexpr std::size_t kNameMax = 128;
    return !name.empty() && name.size() <= kNameMax &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-' || c == '.';
           });
}

// Whether a schema says what kind of value it is about. One of arguments that does not means
// objects.
bool has_shape(const Json& schema) {
    constexpr std::array<const char*, 5> kNames = {"type", "$ref", "anyOf", "oneOf", "allOf"};
    return std::any_of(kNames.begin(), kNames.end(),
                       [&](const char* name) { return schema.contains(name); });
}

const FormRow* form_row(const CallForm& form) {
    for (const FormRow& row : kForms) {
        if (row.format == form.format->name &&
            form.chat_template.find(row.template_has) != View::npos) {
            return &row;
        }
    }
    return nullptr;
}

}  // namespace

Result<std::vector<Tool>> tools_of(View tools_json) {
    const Json json = Json::parse(tools_json, nullptr, false);
    std::vector<Tool> tools;
    if (!json.is_array()) return tools;
    for (const Json& item : json) {
        const auto function = item.is_object() ? item.find("function") : item.end();
        Tool tool;
        if (function != item.end() && function->is_object()) {
            const auto name = function->find("name");
            if (name != function->end() && name->is_string()) tool.name = name->get<std::string>();
            const auto parameters = function->find("parameters");
            const bool has_parameters =
                parameters != function->end() && parameters->is_object() && !parameters->empty();
            if (has_parameters) {
                Json schema = *parameters;
                if (!has_shape(schema)) schema["type"] = "object";
                tool.parameters = schema.dump(-1, ' ', false, Json::error_handler_t::replace);
            }
        }
        if (!is_tool_name(tool.name)) {
            return Status(Code::invalid_argument,
                          "each of 'tools' must be a function with a name of letters, digits, "
                          "\"_\", \"-\" and \".\"");
        }
        tools.push_back(std::move(tool));
    }
    return tools;
}

Result<Source> forced_call(const CallForm& form, const std::vector<Tool>& tools,
                           const std::optional<Source>& or_else) {
    const FormRow* row = form_row(form);
    if (row == nullptr) {
        return Status(Code::invalid_argument,
                      fmt::format("a call can't be forced: how models of this chat format ({}) "
                                  "write calls is not known as a grammar",
                                  form.format->name));
    }
    Json choices = Json::array();
    for (const Tool& tool : tools) {
        STET_ASSIGN(Json element, call_element(*row, tool, *form.tokenizer));
        choices.push_back(std::move(element));
    }
    if (or_else) {
        if (or_else->kind != Kind::json_schema) {
            return Status(Code::invalid_argument,
                          "a grammar and tools that may be called exclude each other; set "
                          "'tool_choice' to \"none\"");
        }
        STET_ASSIGN(Json element, schema_element(or_else->text, "json"));
        choices.push_back(std::move(element));
    }
    if (choices.empty()) {
        return Status(Code::invalid_argument, "a call is wanted, but there are no 'tools'");
    }
    Json format = choices.size() == 1 ? choices.front()
                                      : Json{{"type", "or"}, {"elements", std::move(choices)}};
    const Json tag = {{"type", "structural_tag"}, {"format", std::move(format)}};
    return Source{Kind::tags, tag.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace stet::grammar
