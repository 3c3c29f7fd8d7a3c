// Anthropic's /v1/messages and its token counter.
#include <fmt/format.h>

#include "base/try.h"
#include "server/answer_json.h"
#include "server/chat.h"
#include "server/http_text.h"
#include "server/sampling.h"

namespace stet::server {
namespace {

constexpr std::size_t kIdBytes = 12;

std::string_view stop_reason(const Answer& answer, bool has_calls) {
    if (has_calls) return "tool_use";
    switch (answer.stop) {
        case engine::StopReason::end:
            return "end_turn";
        case engine::StopReason::stop_text:
            return "stop_sequence";
        default:
            return "max_tokens";
    }
}

Json usage(const Answer& answer) {
    return {{"input_tokens", answer.computed_tokens()},
            {"cache_read_input_tokens", answer.reuse.reused_tokens},
            {"cache_creation_input_tokens", 0},
            {"output_tokens", answer.tokens.size()}};
}

Json stop_sequence(const Answer& answer) {
    return answer.stop == engine::StopReason::stop_text ? Json(answer.stop_text) : Json();
}

// Letters, digits, "-" and "_" only, as the interface promises.
std::string block_id(std::string_view id) {
    if (id.starts_with("call_")) id.remove_prefix(std::string_view("call_").size());
    std::string made = "toolu_";
    for (const char c : id) {
        const bool is_plain =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
        made += is_plain ? c : '_';
    }
    return made;
}

Json call_block(const ToolCall& call) {
    auto input = parse_object(call.arguments);
    return {{"type", "tool_use"},
            {"id", block_id(call.id)},
            {"name", call.name},
            {"input", input ? std::move(*input) : Json::object()}};
}

class MessageFormat : public AnswerFormat {
  public:
    MessageFormat(const Context& context, const text::ChatOptions& output)
        : context_(context), output_(output), id_("msg_" + random_hex(kIdBytes)) {}

    std::string begin() override {
        Json message = head();
        message["content"] = Json::array();
        message["stop_reason"] = nullptr;
        message["stop_sequence"] = nullptr;
        message["usage"] = {{"input_tokens", 0}, {"output_tokens", 0}};
        return event("message_start", {{"type", "message_start"}, {"message", message}});
    }
    std::string piece(std::size_t /*choice*/, const Progress& progress) override {
        return events(output_.add(progress.text));
    }
    std::string finished(std::size_t /*choice*/, const Answer& answer) override {
        std::string text = events(output_.finish());
        text += close_block();
        text += event("message_delta",
                      {{"type", "message_delta"},
                       {"delta",
                        {{"stop_reason", stop_reason(answer, !output_.calls().empty())},
                         {"stop_sequence", stop_sequence(answer)}}},
                       {"usage", usage(answer)},
                       {"stet", reuse_json(answer)}});
        return text;
    }
    std::string end(const std::vector<Answer>& /*answers*/) override {
        return event("message_stop", {{"type", "message_stop"}});
    }
    std::string failed(const Failure& failure) override {
        return event("error", failure_json(failure, Dialect::anthropic));
    }
    Json whole(const std::vector<Answer>& answers) override {
        const Answer& answer = answers.front();
        output_.add(answer.text);
        output_.finish();
        Json json = head();
        Json content = Json::array();
        if (!output_.reasoning().empty()) {
            content.push_back(
                {{"type", "thinking"}, {"thinking", output_.reasoning()}, {"signature", ""}});
        }
        if (!output_.content().empty() || output_.calls().empty()) {
            content.push_back({{"type", "text"}, {"text", output_.content()}});
        }
        for (const ToolCall& call : output_.calls()) content.push_back(call_block(call));
        json["content"] = std::move(content);
        json["stop_reason"] = stop_reason(answer, !output_.calls().empty());
        json["stop_sequence"] = stop_sequence(answer);
        json["usage"] = usage(answer);
        json["stet"] = reuse_json(answer);
        return json;
    }

  private:
    Json head() const {
        return {{"id", id_},
                {"type", "message"},
                {"role", "assistant"},
                {"model", context_.model_name}};
    }
    std::string close_block() {
        if (open_.empty()) return {};
        open_.clear();
        return event("content_block_stop",
                     {{"type", "content_block_stop"}, {"index", block_count_ - 1}});
    }
    std::string open_block(std::string_view kind, const Json& block) {
        if (open_ == kind) return {};
        std::string text = close_block();
        open_ = kind;
        text += event(
            "content_block_start",
            {{"type", "content_block_start"}, {"index", block_count_++}, {"content_block", block}});
        return text;
    }
    std::string delta(const Json& what) const {
        return event(
            "content_block_delta",
            {{"type", "content_block_delta"}, {"index", block_count_ - 1}, {"delta", what}});
    }
    std::string events(const ChatDelta& part) {
        std::string text;
        if (!part.reasoning.empty()) {
            text +=
                open_block("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
            text += delta({{"type", "thinking_delta"}, {"thinking", part.reasoning}});
        }
        if (!part.content.empty()) {
            text += open_block("text", {{"type", "text"}, {"text", ""}});
            text += delta({{"type", "text_delta"}, {"text", part.content}});
        }
        for (const ToolCall& call : part.calls) {
            Json block = call_block(call);
            block["input"] = Json::object();
            text += close_block();
            text += open_block("tool_use", block);
            text += delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
            text += close_block();
        }
        return text;
    }

    const Context& context_;
    ChatOutput output_;
    std::string id_;
    std::string open_;  // kind of the block that is open
    std::size_t block_count_ = 0;
};

// Anthropic's blocks as the messages that templates know.
Status add_message(const Json& message, const std::string& where, Json& messages) {
    const Json& content = message.contains("content") ? message["content"] : Json();
    const std::string role = message.value("role", "");
    if (role != "user" && role != "assistant" && role != "system") {
        return Status(Code::invalid_argument, where + ".role' must be user or assistant");
    }
    if (!content.is_array()) {
        messages.push_back({{"role", role}, {"content", content}});
        return {};
    }
    Json parts = Json::array();
    Json calls = Json::array();
    for (const Json& block : content) {
        const std::string type = block.is_object() ? block.value("type", "") : "";
        if (type == "tool_result") {
            Json result = block.contains("content") ? block["content"] : Json("");
            messages.push_back({{"role", "tool"},
                                {"tool_call_id", block.value("tool_use_id", "")},
                                {"content", std::move(result)}});
        } else if (type == "tool_use") {
            const Json input = block.contains("input") ? block["input"] : Json::object();
            calls.push_back(
                {{"id", block.value("id", "")},
                 {"type", "function"},
                 {"function", {{"name", block.value("name", "")}, {"arguments", input}}}});
        } else if (type != "thinking" && type != "redacted_thinking") {
            parts.push_back(block);
        }
    }
    if (parts.empty() && calls.empty()) return {};
    Json plain = {{"role", role}, {"content", std::move(parts)}};
    if (!calls.empty()) plain["tool_calls"] = std::move(calls);
    messages.push_back(std::move(plain));
    return {};
}

Status read_chat(const Context& /*context*/, Fields& fields, ChatInput& input) {
    fields.require("messages");
    STET_TRY(fields.status());
    const Json& list = *fields.find("messages");
    if (!list.is_array()) fields.fail("messages", "a list");
    STET_TRY(fields.status());
    Json messages = Json::array();
    if (const Json* system = fields.find("system")) {
        messages.push_back({{"role", "system"}, {"content", *system}});
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string where = fmt::format("'messages[{}]", i);
        if (!list[i].is_object()) {
            return Status(Code::invalid_argument, where + "' is not an object");
        }
        STET_TRY(add_message(list[i], where, messages));
    }
    if (const Json* tools = fields.find("tools")) {
        if (!tools->is_array()) fields.fail("tools", "a list");
        STET_TRY(fields.status());
        input.tools = Json::array();
        for (const Json& tool : *tools) {
            if (!tool.is_object()) fields.fail("tools", "a list of objects");
            STET_TRY(fields.status());
            input.tools.push_back(
                {{"type", "function"},
                 {"function",
                  {{"name", tool.value("name", "")},
                   {"description", tool.value("description", "")},
                   {"parameters",
                    tool.contains("input_schema") ? tool["input_schema"] : Json::object()}}}});
        }
    }
    return read_messages(messages, input);
}

// Structured outputs: output_config.format, before that output_format.
Status read_output_format(Fields& fields, AnswerForm& form) {
    if (const Json* format = fields.find("output_format")) {
        STET_TRY(read_format(*format, "output_format", form));
    }
    const Json* config = fields.find("output_config");
    if (config == nullptr || !config->is_object()) return {};
    const auto format = config->find("format");
    if (format == config->end() || format->is_null()) return {};
    return read_format(*format, "output_config.format", form);
}

Status messages(Call& call) {
    const Context& context = call.context;
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    ChatTurn turn;
    turn.options.sampling.temperature = 1.0F;
    read_sampling(context, fields, turn.options);
    fields.require("max_tokens");
    read_tokens_max(context, fields, {"max_tokens"}, turn.options);
    fields.texts("stop_sequences", turn.options.stop, 64);
    std::erase(turn.options.stop, "");
    fields.flag("stream", turn.is_stream);
    fields.flag("cache_prompt", turn.may_reuse);
    fields.text("session_id", turn.session);
    STET_TRY(fields.status());
    if (const Json* choice = fields.find("tool_choice")) {
        STET_TRY(read_tool_choice(*choice, turn.tool_choice));
    }
    STET_TRY(read_output_format(fields, turn.form));
    STET_TRY(read_chat(context, fields, turn.input));
    const auto make_format = [&context](const text::ChatOptions& output) {
        return std::make_unique<MessageFormat>(context, output);
    };
    return run_chat(call, std::move(turn), make_format);
}

Status count_tokens(Call& call) {
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    ChatInput input;
    STET_TRY(read_chat(call.context, fields, input));
    STET_ASSIGN(const std::string text, render_chat(call.context, input));
    STET_ASSIGN(const auto tokens, encode_rendered(call.context, text));
    call.send_json({{"input_tokens", tokens.size()}});
    return {};
}

}  // namespace

void add_anthropic_routes(std::vector<Route>& routes) {
    routes.push_back({"POST", "/v1/messages", messages, Access::with_key, Dialect::anthropic});
    routes.push_back(
        {"POST", "/v1/messages/count_tokens", count_tokens, Access::with_key, Dialect::anthropic});
}

}  // namespace stet::server
