// The table of formats. To add a family: one row in kFormats, before those that are less specific;
// an example in tests/unit/text/chat_parser_test.cpp.
//
// Facts are from the models' published chat templates.
#include "text/chat_format/format.h"

namespace stet::text {
namespace {

// U+FF5C and U+2581 of DeepSeek's tokens.
#define STET_BAR "\xEF\xBD\x9C"
#define STET_LOW "\xE2\x96\x81"
#define STET_MINIMAX "]<]minimax[>["

using View = std::string_view;

constexpr CallSyntax kJson{};
constexpr CallSyntax kFunctionTag{.body = CallBody::arguments,
                                  .open = "<function=",
                                  .close = "</function>",
                                  .name_close = ">",
                                  .key_open = "<parameter=",
                                  .key_close = ">",
                                  .value_close = "</parameter>",
                                  .has_value_lines = true};
constexpr CallSyntax kPythonTag{.body = CallBody::code, .open = "<|python_tag|>"};
constexpr CallSyntax kMistralNamed{.body = CallBody::arguments, .arguments_open = "[ARGS]"};

constexpr Pair kThink[] = {{"<think>", "</think>"}};
constexpr Pair kToolCall[] = {{"<tool_call>", "</tool_call>"}};

// --- gpt-oss ---
constexpr View kHarmonyHas[] = {"<|channel|>"};
constexpr View kHarmonyOpens[] = {"<|start|>", "<|channel|>"};
constexpr View kHarmonyCloses[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};

// --- Functionary ---
constexpr View kFunctionary32Has[] = {">>>all", ">>>${recipient}"};
constexpr View kFunctionary32Opens[] = {">>>"};
constexpr View kFunctionary2Has[] = {"<|recipient|>", "<|from|>"};
constexpr View kFunctionary2Opens[] = {"<|from|>", "<|recipient|>"};
constexpr View kFunctionary2Closes[] = {"\n<|from|>", "<|from|>", "<|stop|>"};
constexpr View kFunctionary31Has[] = {"<function=", "<|python_tag|>"};
constexpr CallSyntax kFunctionary31Calls[] = {kFunctionTag, kPythonTag};

// --- Kimi ---
constexpr View kKimi2Has[] = {"<|tool_calls_section_begin|>"};
constexpr Pair kKimi2Sections[] = {{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}};
constexpr CallSyntax kKimi2Calls[] = {{.body = CallBody::arguments,
                                       .open = "<|tool_call_begin|>",
                                       .close = "<|tool_call_end|>",
                                       .arguments_open = "<|tool_call_argument_begin|>"}};
constexpr View kKimi3Has[] = {"<|open|>", "<|close|>", "<|end_of_msg|>"};
constexpr Pair kKimi3Reasoning[] = {{"<|open|>think<|sep|>", "<|close|>think<|sep|>"}};
constexpr View kKimi3Silent[] = {"<|open|>response<|sep|>", "<|close|>response<|sep|>",
                                 "<|close|>message<|sep|>"};
constexpr Pair kKimi3Sections[] = {{"<|open|>tools<|sep|>", "<|close|>tools<|sep|>"}};
constexpr CallSyntax kKimi3Calls[] = {{.body = CallBody::arguments,
                                       .open = "<|open|>call tool=\"",
                                       .close = "<|close|>call<|sep|>",
                                       .name_close = "\"",
                                       .arguments_open = "<|sep|>",
                                       .key_open = "<|open|>argument key=\"",
                                       .key_close = "\"",
                                       .value_open = "<|sep|>",
                                       .value_close = "<|close|>argument<|sep|>"}};

// --- DeepSeek ---
constexpr View kDeepSeekHas[] = {"<" STET_BAR "tool" STET_LOW "calls" STET_LOW "begin" STET_BAR
                                 ">"};
constexpr Pair kDeepSeekSections[] = {
    {"<" STET_BAR "tool" STET_LOW "calls" STET_LOW "begin" STET_BAR ">",
     "<" STET_BAR "tool" STET_LOW "calls" STET_LOW "end" STET_BAR ">"},
    // Distilled models write these.
    {"<" STET_BAR "tool_calls_begin" STET_BAR ">", "<" STET_BAR "tool_calls_end" STET_BAR ">"},
    {"<" STET_BAR "tool calls begin" STET_BAR ">", "<" STET_BAR "tool calls end" STET_BAR ">"},
    {"<" STET_BAR "tool" STET_LOW "calls" STET_BAR ">",
     "<" STET_BAR "tool" STET_LOW "calls" STET_LOW "end" STET_BAR ">"}};
#define STET_DEEPSEEK_CALL "<" STET_BAR "tool" STET_LOW "call" STET_LOW "begin" STET_BAR ">"
#define STET_DEEPSEEK_SEPARATOR "<" STET_BAR "tool" STET_LOW "sep" STET_BAR ">"
#define STET_DEEPSEEK_CALL_END "<" STET_BAR "tool" STET_LOW "call" STET_LOW "end" STET_BAR ">"
constexpr CallSyntax kDeepSeekCalls[] = {
    {.body = CallBody::arguments,  // V3, R1
     .open = STET_DEEPSEEK_CALL "function" STET_DEEPSEEK_SEPARATOR,
     .close = "```" STET_DEEPSEEK_CALL_END,
     .arguments_open = "```json"},
    {.body = CallBody::arguments,  // V3.1
     .open = STET_DEEPSEEK_CALL,
     .close = STET_DEEPSEEK_CALL_END,
     .arguments_open = STET_DEEPSEEK_SEPARATOR}};
#define STET_DSML STET_BAR "DSML" STET_BAR
constexpr View kDsmlHas[] = {"DSML", "dsml_token"};
constexpr Pair kDsmlSections[] = {
    {"<" STET_DSML "function_calls>", "</" STET_DSML "function_calls>"},
    {"<" STET_DSML "tool_calls>", "</" STET_DSML "tool_calls>"}};
constexpr CallSyntax kDsmlCalls[] = {{.body = CallBody::arguments,
                                      .open = "<" STET_DSML "invoke name=\"",
                                      .close = "</" STET_DSML "invoke>",
                                      .name_close = "\"",
                                      .arguments_open = ">",
                                      .key_open = "<" STET_DSML "parameter name=\"",
                                      .key_close = "\"",
                                      .value_open = ">",
                                      .value_close = "</" STET_DSML "parameter>"}};

// --- MiniMax ---
constexpr View kMiniMax3Has[] = {STET_MINIMAX, "<invoke name="};
constexpr Pair kMiniMax3Reasoning[] = {{"<mm:think>", "</mm:think>"}};
constexpr Pair kMiniMax3Sections[] = {{STET_MINIMAX "<tool_call>", STET_MINIMAX "</tool_call>"}};
constexpr CallSyntax kMiniMax3Calls[] = {{.body = CallBody::arguments,
                                          .open = STET_MINIMAX "<invoke name=\"",
                                          .close = STET_MINIMAX "</invoke>",
                                          .name_close = "\"",
                                          .arguments_open = ">",
                                          .key_open = STET_MINIMAX "<",
                                          .key_close = ">",
                                          .value_close = STET_MINIMAX "</*>"}};
constexpr View kMiniMax2Has[] = {"<minimax:tool_call>"};
constexpr Pair kMiniMax2Sections[] = {{"<minimax:tool_call>", "</minimax:tool_call>"}};
constexpr CallSyntax kMiniMax2Calls[] = {{.body = CallBody::arguments,
                                          .open = "<invoke name=\"",
                                          .close = "</invoke>",
                                          .name_close = "\"",
                                          .arguments_open = ">",
                                          .key_open = "<parameter name=\"",
                                          .key_close = "\"",
                                          .value_open = ">",
                                          .value_close = "</parameter>"}};
// MiniMax M1, Apriel
constexpr View kToolCallsTagHas[] = {"<tool_calls>"};
constexpr Pair kToolCallsTag[] = {{"<tool_calls>", "</tool_calls>"}};

// --- Command-R ---
constexpr View kCommand7Has[] = {"<|START_ACTION|>"};
constexpr Pair kCommand7Reasoning[] = {{"<|START_THINKING|>", "<|END_THINKING|>"}};
constexpr View kCommand7Silent[] = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
                                    "<|END_TEXT|>"};
constexpr Pair kCommand7Sections[] = {{"<|START_ACTION|>", "<|END_ACTION|>"}};
constexpr View kCommandRHas[] = {"Action:", "```json", "tool_name"};
constexpr Pair kCommandRSections[] = {
    {"Action: ```json", "```"}, {"Action:\n```json", "```"}, {"Action:```json", "```"}};

// --- GLM ---
constexpr View kGlmHas[] = {"<arg_key>"};
constexpr CallSyntax kGlmCalls[] = {{.body = CallBody::arguments,
                                     .close = "</tool_call>",
                                     .key_open = "<arg_key>",
                                     .key_close = "</arg_key>",
                                     .value_open = "<arg_value>",
                                     .value_close = "</arg_value>"}};

// --- Mistral ---
constexpr View kMistralHas[] = {"[TOOL_CALLS]"};
constexpr Pair kMistralReasoning[] = {{"[THINK]", "[/THINK]"}, {"<think>", "</think>"}};
constexpr Pair kMistralSections[] = {{"[TOOL_CALLS]", ""}};
constexpr CallSyntax kMistralCalls[] = {kJson, kMistralNamed};

// --- Llama 3 ---
constexpr View kLlama3Has[] = {"<|start_header_id|>", "\"parameters\": "};
constexpr View kLlama3PythonHas[] = {"<|start_header_id|>", "<|python_tag|>"};
constexpr CallSyntax kLlama3Calls[] = {kPythonTag};

// --- one marker pair around JSON, or around function tags ---
constexpr View kSeedHas[] = {"<seed:tool_call>"};
constexpr Pair kSeedReasoning[] = {{"<seed:think>", "</seed:think>"}};
constexpr Pair kSeedSections[] = {{"<seed:tool_call>", "</seed:tool_call>"}};
constexpr View kNemotronHas[] = {"<TOOLCALL>"};
constexpr Pair kNemotronSections[] = {{"<TOOLCALL>", "</TOOLCALL>"}};
constexpr View kFirefunctionHas[] = {"functools["};
constexpr Pair kFirefunctionSections[] = {{"functools", ""}};
constexpr View kGraniteHas[] = {"<|tool_call|>"};
constexpr Pair kGraniteSections[] = {{"<|tool_call|>", ""}};
constexpr View kHermesHas[] = {"<tool_call>"};
constexpr CallSyntax kHermesCalls[] = {kJson, kFunctionTag};
constexpr CallSyntax kJsonCalls[] = {kJson};
constexpr CallSyntax kFunctionTagCalls[] = {kFunctionTag};

// --- Gemma 4 ---
constexpr View kGemma4Has[] = {"<|tool_call>call:", "<|channel>"};
constexpr Pair kGemma4Reasoning[] = {{"<|channel>thought", "<channel|>"}};
constexpr View kGemma4Silent[] = {"<|tool_response>", "<turn|>"};
constexpr CallSyntax kGemma4Calls[] = {
    {.body = CallBody::marked, .open = "<|tool_call>call:", .close = "<tool_call|>"}};

// --- LFM2: the template of the second form never names its markers ---
constexpr View kLfm2Has[] = {"<|tool_list_start|>"};
constexpr View kLfm25Has[] = {"List of tools: [", "<|im_start|>"};
constexpr Pair kLfm2Sections[] = {{"<|tool_call_start|>", "<|tool_call_end|>"}};
constexpr CallSyntax kPythonCalls[] = {{.body = CallBody::python}};

// --- Apertus ---
constexpr View kApertusHas[] = {"<|tools_prefix|>", "<|inner_prefix|>"};
constexpr Pair kApertusReasoning[] = {{"<|inner_prefix|>", "<|inner_suffix|>"}};
constexpr Pair kApertusSections[] = {{"<|tools_prefix|>", "<|tools_suffix|>"}};
constexpr CallSyntax kKeyedCalls[] = {{.body = CallBody::keyed}};

// --- GigaChat 3: a call is a message of its own ---
constexpr View kGigaChat3Has[] = {"<|role_sep|>", "function call"};
constexpr View kGigaChat3Silent[] = {"<|message_sep|>\n\n", "<|message_sep|>"};
constexpr Pair kGigaChat3Sections[] = {{"function call<|role_sep|>", "<|message_sep|>"}};

// --- Hunyuan 3 ---
#define STET_HY ":opensource>"
constexpr View kHy3Has[] = {"'<tool_sep{}>'", ":opensource"};
constexpr Pair kHy3Reasoning[] = {{"<think" STET_HY, "</think" STET_HY}};
constexpr Pair kHy3Sections[] = {{"<tool_calls" STET_HY, "</tool_calls" STET_HY}};
constexpr CallSyntax kHy3Calls[] = {{.body = CallBody::arguments,
                                     .open = "<tool_call" STET_HY,
                                     .close = "</tool_call" STET_HY,
                                     .name_close = "<tool_sep" STET_HY,
                                     .key_open = "<arg_key" STET_HY,
                                     .key_close = "</arg_key" STET_HY,
                                     .value_open = "<arg_value" STET_HY,
                                     .value_close = "</arg_value" STET_HY}};

// --- Solar ---
constexpr View kSolarHas[] = {"<|tool_call:begin|>"};
constexpr Pair kSolarReasoning[] = {{"<|think|>", "<|end|>"}};
constexpr View kSolarSilent[] = {"<|begin|>assistant", "<|content|>", "<|end|>"};
constexpr Pair kSolarSections[] = {{"<|tool_calls|>", "<|calls|>"}};
constexpr CallSyntax kSolarCalls[] = {{.body = CallBody::arguments,
                                       .open = "<|tool_call:begin|>",
                                       .close = "<|tool_call:end|>",
                                       .id_close = "<|tool_call:name|>",
                                       .name_close = "<|tool_call:args|>"}};

// --- what a model without a known template may write ---
constexpr Pair kAnySections[] = {{"<tool_call>", "</tool_call>"}, {"[TOOL_CALLS]", ""}};
constexpr CallSyntax kAnyCalls[] = {kJson, kFunctionTag, kPythonTag, kMistralNamed};

constexpr ChatFormat kFormats[] = {
    {.name = "gpt-oss",
     .template_has = kHarmonyHas,
     .shape = Shape::messages,
     .header = HeaderKind::channel,
     .header_opens = kHarmonyOpens,
     .header_close = "<|message|>",
     .body_closes = kHarmonyCloses},
    {.name = "functionary-3.2",
     .template_has = kFunctionary32Has,
     .shape = Shape::messages,
     .header = HeaderKind::recipient,
     .header_opens = kFunctionary32Opens,
     .header_close = "\n",
     .body_closes = kFunctionary32Opens},
    {.name = "functionary-2",
     .template_has = kFunctionary2Has,
     .shape = Shape::messages,
     .header = HeaderKind::recipient,
     .header_opens = kFunctionary2Opens,
     .header_close = "<|content|>",
     .body_closes = kFunctionary2Closes},
    {.name = "gemma4",
     .template_has = kGemma4Has,
     .reasoning = kGemma4Reasoning,
     .silent = kGemma4Silent,
     .calls = kGemma4Calls},
    {.name = "lfm2",
     .template_has = kLfm2Has,
     .reasoning = kThink,
     .sections = kLfm2Sections,
     .calls = kPythonCalls},
    {.name = "lfm2",
     .template_has = kLfm25Has,
     .reasoning = kThink,
     .sections = kLfm2Sections,
     .calls = kPythonCalls},
    {.name = "apertus",
     .template_has = kApertusHas,
     .reasoning = kApertusReasoning,
     .sections = kApertusSections,
     .calls = kKeyedCalls},
    {.name = "gigachat3",
     .template_has = kGigaChat3Has,
     .silent = kGigaChat3Silent,
     .sections = kGigaChat3Sections,
     .calls = kJsonCalls},
    {.name = "hunyuan-3",
     .template_has = kHy3Has,
     .reasoning = kHy3Reasoning,
     .sections = kHy3Sections,
     .calls = kHy3Calls},
    {.name = "solar",
     .template_has = kSolarHas,
     .reasoning = kSolarReasoning,
     .silent = kSolarSilent,
     .sections = kSolarSections,
     .calls = kSolarCalls},
    {.name = "kimi-k2",
     .template_has = kKimi2Has,
     .reasoning = kThink,
     .sections = kKimi2Sections,
     .calls = kKimi2Calls,
     .has_numbered_ids = true},
    {.name = "kimi-k3",
     .template_has = kKimi3Has,
     .reasoning = kKimi3Reasoning,
     .silent = kKimi3Silent,
     .sections = kKimi3Sections,
     .calls = kKimi3Calls},
    {.name = "command-r7b",
     .template_has = kCommand7Has,
     .reasoning = kCommand7Reasoning,
     .silent = kCommand7Silent,
     .sections = kCommand7Sections,
     .calls = kJsonCalls},
    {.name = "deepseek-dsml",
     .template_has = kDsmlHas,
     .reasoning = kThink,
     .sections = kDsmlSections,
     .calls = kDsmlCalls},
    {.name = "deepseek",
     .template_has = kDeepSeekHas,
     .reasoning = kThink,
     .sections = kDeepSeekSections,
     .calls = kDeepSeekCalls},
    {.name = "minimax-m3",
     .template_has = kMiniMax3Has,
     .reasoning = kMiniMax3Reasoning,
     .sections = kMiniMax3Sections,
     .calls = kMiniMax3Calls},
    {.name = "minimax-m2",
     .template_has = kMiniMax2Has,
     .reasoning = kThink,
     .sections = kMiniMax2Sections,
     .calls = kMiniMax2Calls},
    {.name = "glm",
     .template_has = kGlmHas,
     .reasoning = kThink,
     .sections = kToolCall,
     .calls = kGlmCalls},
    {.name = "seed-oss",
     .template_has = kSeedHas,
     .reasoning = kSeedReasoning,
     .sections = kSeedSections,
     .calls = kFunctionTagCalls},
    {.name = "mistral",
     .template_has = kMistralHas,
     .reasoning = kMistralReasoning,
     .sections = kMistralSections,
     .calls = kMistralCalls,
     .has_short_ids = true},
    {.name = "functionary-3.1", .template_has = kFunctionary31Has, .calls = kFunctionary31Calls},
    {.name = "nemotron",
     .template_has = kNemotronHas,
     .reasoning = kThink,
     .sections = kNemotronSections,
     .calls = kJsonCalls},
    {.name = "firefunction",
     .template_has = kFirefunctionHas,
     .sections = kFirefunctionSections,
     .calls = kJsonCalls},
    {.name = "tool-calls-tag",
     .template_has = kToolCallsTagHas,
     .reasoning = kThink,
     .sections = kToolCallsTag,
     .calls = kJsonCalls},
    {.name = "hermes",
     .template_has = kHermesHas,
     .reasoning = kThink,
     .sections = kToolCall,
     .calls = kHermesCalls},
    {.name = "granite",
     .template_has = kGraniteHas,
     .reasoning = kThink,
     .sections = kGraniteSections,
     .calls = kJsonCalls},
    {.name = "command-r",
     .template_has = kCommandRHas,
     .sections = kCommandRSections,
     .calls = kJsonCalls},
    {.name = "llama3",
     .template_has = kLlama3Has,
     .reasoning = kThink,
     .calls = kLlama3Calls,
     .has_bare_json = true},
    {.name = "llama3",
     .template_has = kLlama3PythonHas,
     .reasoning = kThink,
     .calls = kLlama3Calls,
     .has_bare_json = true},
    {.name = "any",
     .template_has = {},
     .reasoning = kThink,
     .sections = kAnySections,
     .calls = kAnyCalls,
     .has_bare_json = true},
};

}  // namespace

std::span<const ChatFormat> chat_formats() {
    return kFormats;
}

}  // namespace stet::text
