#include "server/answer_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "grammar/forced_call.h"
#include "server/grammars.h"

namespace stet::server {
namespace {

Status is_not(std::string_view name, std::string_view expected) {
    return Status(Code::invalid_argument, fmt::format("'{}' must be {}", name, expected));
}

Status set_schema(const Json& schema, std::string_view name, AnswerForm& form) {
    if (!schema.is_object() && !schema.is_boolean()) return is_not(name, "a JSON schema");
    form = grammar::Source{grammar::Kind::json_schema, dump(schema)};
    return {};
}

std::string text_at(const Json& object, const char* key) {
    const auto at = object.find(key);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

Status read_format(const Json& format, std::string_view name, AnswerForm& form) {
    const std::string type = format.is_object() ? text_at(format, "type") : std::string();
    if (type == "text") return {};
    if (type == "json_object") {
        if (format.contains("schema")) return set_schema(format["schema"], name, form);
        form = grammar::any_json_object();
        return {};
    }
    if (type == "json_schema") {
        const auto inner = format.find("json_schema");
        const Json& holder = inner != format.end() && inner->is_object() ? *inner : format;
        if (holder.contains("schema")) {
            return set_schema(holder["schema"], fmt::format("{}.schema", name), form);
        }
        return Status(Code::invalid_argument, fmt::format("'{}' has no schema", name));
    }
    return is_not(fmt::format("{}.type", name), "\"text\", \"json_object\" or \"json_schema\"");
}

Status read_answer_form(Fields& fields, AnswerForm& form) {
    int count = 0;
    if (const Json* format = fields.find("response_format")) {
        STET_TRY(read_format(*format, "response_format", form));
        if (form) ++count;
    }
    if (const Json* schema = fields.find("json_schema")) {
        STET_TRY(set_schema(*schema, "json_schema", form));
        ++count;
    }
    std::string grammar;
    fields.text("grammar", grammar);
    STET_TRY(fields.status());
    if (!grammar.empty()) {
        form = grammar::Source{grammar::Kind::gbnf, grammar};
        ++count;
    }
    if (count > 1) {
        return Status(Code::invalid_argument,
                      "'response_format', 'json_schema' and 'grammar' exclude each other");
    }
    return {};
}

Status read_tool_choice(const Json& choice, ToolChoice& tool_choice) {
    using Kind = ToolChoice::Kind;
    const std::string type = choice.is_string()   ? choice.get<std::string>()
                             : choice.is_object() ? text_at(choice, "type")
                                                  : std::string();
    if (type == "auto") return {};
    if (type == "none") {
        tool_choice.kind = Kind::none;
        return {};
    }
    if (type == "required" || type == "any") {
        tool_choice.kind = Kind::required;
        return {};
    }
    if ((type == "function" || type == "tool") && choice.is_object()) {
        const auto function = choice.find("function");
        const bool is_inside = function != choice.end() && function->is_object();
        tool_choice.kind = Kind::required;
        tool_choice.tool = text_at(is_inside ? *function : choice, "name");
        if (!tool_choice.tool.empty()) return {};
        return Status(Code::invalid_argument, "'tool_choice' names no tool");
    }
    return is_not("tool_choice",
                  "\"auto\", \"none\", \"required\", or an object that names a tool");
}

Result<AnswerForm> form_with_tools(const Context& context, const Json& tools,
                                   const ToolChoice& choice, const AnswerForm& form) {
    const bool is_forced = choice.kind == ToolChoice::Kind::required;
    const bool has_tools = tools.is_array() && !tools.empty();
    if (!is_forced && (!form || !has_tools)) return form;
    STET_ASSIGN(auto list, grammar::tools_of(has_tools ? dump(tools) : std::string("[]")));
    if (!choice.tool.empty()) {
        std::erase_if(list, [&](const grammar::Tool& tool) { return tool.name != choice.tool; });
        if (list.empty()) {
            return Status(Code::invalid_argument,
                          "'tool_choice' names a tool that is not among 'tools'");
        }
    }
    const std::string chat_template(context.chat_template->source());
    const grammar::CallForm call{context.chat_format, chat_template, &context.tokenizer()};
    if (is_forced) {
        STET_ASSIGN(auto forced, grammar::forced_call(call, list));
        return AnswerForm(std::move(forced));
    }
    if (context.chat_format->shape == text::Shape::messages) {
        return Status(Code::invalid_argument,
                      "answers of this model's chat format are either calls or hold to a format; "
                      "set 'tool_choice' to \"none\" or \"required\"");
    }
    STET_ASSIGN(auto either, grammar::forced_call(call, list, form));
    return AnswerForm(std::move(either));
}

Status deliver_in_form(Call& call, const AnswerForm& form, std::vector<std::shared_ptr<Job>> jobs,
                       std::unique_ptr<AnswerFormat> format, bool is_stream) {
    if (!form) return deliver(call, std::move(jobs), std::move(format), is_stream);
    // A std::function wants what can be copied.
    auto held = std::make_shared<std::unique_ptr<AnswerFormat>>(std::move(format));
    return call.context.grammars->compile(
        call, *form,
        [jobs = std::move(jobs), held, is_stream](Call& later, Grammars::GrammarPtr grammar) {
            for (const auto& job : jobs) job->options.constraint.grammar = grammar;
            return deliver(later, jobs, std::move(*held), is_stream);
        });
}

}  // namespace stet::server
