// OpenAI's /v1/responses. A response is a session of its own that begins as the one before did, so
// previous_response_id works across restarts, and two that go on from the same one don't meet.
//
// Reasoning is not part of the output.
#include <fmt/format.h>

#include "base/try.h"
#include "server/answer_json.h"
#include "server/chat.h"
#include "server/http_text.h"
#include "server/sampling.h"

namespace stet::server {
namespace {

constexpr std::size_t kIdBytes = 16;

class ResponseFormat : public AnswerFormat {
  public:
    ResponseFormat(const Context& context, std::string id, Json previous,
                   const text::ChatOptions& output)
        : context_(context),
          id_(std::move(id)),
          previous_(std::move(previous)),
          message_id_("msg_" + random_hex(kIdBytes)),
          created_(seconds_now()),
          output_(output) {}

    std::string begin() override {
        const Json response = head("in_progress");
        std::string text = next("response.created", {{"response", response}});
        text += next("response.in_progress", {{"response", response}});
        return text;
    }
    std::string piece(std::size_t /*choice*/, const Progress& progress) override {
        return events(output_.add(progress.text));
    }
    std::string finished(std::size_t /*choice*/, const Answer& /*answer*/) override {
        std::string text = events(output_.finish());
        if (has_message_) {
            const Json at = place();
            text += next("response.output_text.done",
                         with(at, {{"text", output_.content()}, {"logprobs", Json::array()}}));
            text += next("response.content_part.done", with(at, {{"part", part()}}));
            text += next("response.output_item.done",
                         {{"output_index", message_index_}, {"item", message("completed")}});
        }
        return text;
    }
    std::string end(const std::vector<Answer>& answers) override {
        const bool is_cut = finish_reason(answers.front()) == "length";
        return next(is_cut ? "response.incomplete" : "response.completed",
                    {{"response", finished_response(answers.front())}});
    }
    std::string failed(const Failure& failure) override {
        Json response = head("failed");
        response["error"] = {{"code", failure.type}, {"message", failure.message}};
        return next("response.failed", {{"response", response}});
    }
    Json whole(const std::vector<Answer>& answers) override {
        output_.add(answers.front().text);
        output_.finish();
        has_message_ = !output_.content().empty() || output_.calls().empty();
        return finished_response(answers.front());
    }

  private:
    Json head(std::string_view status) const {
        return {{"id", id_},
                {"object", "response"},
                {"created_at", created_},
                {"status", status},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"instructions", nullptr},
                {"metadata", Json::object()},
                {"model", context_.model_name},
                {"output", Json::array()},
                {"parallel_tool_calls", true},
                {"previous_response_id", previous_},
                {"temperature", nullptr},
                {"tool_choice", "auto"},
                {"tools", Json::array()},
                {"top_p", nullptr}};
    }
    Json part() const {
        return {
            {"type", "output_text"}, {"text", output_.content()}, {"annotations", Json::array()}};
    }
    Json message(std::string_view status) const {
        Json content = Json::array();
        if (status == "completed") content.push_back(part());
        return {{"type", "message"},
                {"id", message_id_},
                {"status", status},
                {"role", "assistant"},
                {"content", std::move(content)}};
    }
    static Json call_item(const ToolCall& call, std::string_view status) {
        return {{"type", "function_call"},
                {"id", "fc_" + call.id},
                {"call_id", call.id},
                {"name", call.name},
                {"arguments", status == "completed" ? call.arguments : ""},
                {"status", status}};
    }
    Json finished_response(const Answer& answer) const {
        const bool is_cut = finish_reason(answer) == "length";
        Json json = head(is_cut ? "incomplete" : "completed");
        if (is_cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
        for (const ToolCall& call : output_.calls()) {
            json["output"].push_back(call_item(call, "completed"));
        }
        if (has_message_) {
            const auto at = static_cast<std::ptrdiff_t>(message_index_);
            json["output"].insert(json["output"].begin() + at, message("completed"));
        }
        json["usage"] = {{"input_tokens", answer.prompt_tokens},
                         {"input_tokens_details", {{"cached_tokens", answer.reuse.reused_tokens}}},
                         {"output_tokens", answer.tokens.size()},
                         {"output_tokens_details", {{"reasoning_tokens", 0}}},
                         {"total_tokens", answer.prompt_tokens + answer.tokens.size()}};
        json["stet"] = reuse_json(answer);
        return json;
    }

    std::string next(std::string_view type, Json data) {
        Json json = {{"type", type}, {"sequence_number", sequence_++}};
        json.update(data);
        return event(type, json);
    }
    Json place() const {
        return {{"item_id", message_id_}, {"output_index", message_index_}, {"content_index", 0}};
    }
    static Json with(Json json, const Json& more) {
        json.update(more);
        return json;
    }
    std::string events(const ChatDelta& delta) {
        std::string text;
        if (!delta.content.empty()) {
            if (!has_message_) {
                has_message_ = true;
                message_index_ = output_.calls().size() - delta.calls.size();
                Json empty = part();
                empty["text"] = "";
                text += next("response.output_item.added",
                             {{"output_index", message_index_}, {"item", message("in_progress")}});
                text += next("response.content_part.added", with(place(), {{"part", empty}}));
            }
            text += next("response.output_text.delta",
                         with(place(), {{"delta", delta.content}, {"logprobs", Json::array()}}));
        }
        std::size_t index = output_.calls().size() - delta.calls.size() + (has_message_ ? 1 : 0);
        for (const ToolCall& call : delta.calls) {
            const Json at = {{"item_id", "fc_" + call.id}, {"output_index", index}};
            text += next("response.output_item.added",
                         {{"output_index", index}, {"item", call_item(call, "in_progress")}});
            text += next("response.function_call_arguments.delta",
                         with(at, {{"delta", call.arguments}}));
            text += next("response.function_call_arguments.done",
                         with(at, {{"arguments", call.arguments}, {"name", call.name}}));
            text += next("response.output_item.done",
                         {{"output_index", index++}, {"item", call_item(call, "completed")}});
        }
        return text;
    }

    const Context& context_;
    std::string id_;
    Json previous_;
    std::string message_id_;
    std::int64_t created_;
    ChatOutput output_;
    bool has_message_ = false;
    std::size_t message_index_ = 0;  // calls may come before it
    std::uint64_t sequence_ = 0;
};

// Items of the input as messages that templates know.
Status add_item(const Json& item, const std::string& where, Json& messages) {
    if (!item.is_object()) return Status(Code::invalid_argument, where + " is not an object");
    const std::string type = item.value("type", "message");
    if (type == "message") {
        messages.push_back(item);
    } else if (type == "function_call_output") {
        messages.push_back({{"role", "tool"},
                            {"tool_call_id", item.value("call_id", "")},
                            {"content", item.contains("output") ? item["output"] : Json("")}});
    } else if (type == "function_call") {
        messages.push_back(
            {{"role", "assistant"},
             {"content", ""},
             {"tool_calls", Json::array({{{"id", item.value("call_id", "")},
                                          {"type", "function"},
                                          {"function",
                                           {{"name", item.value("name", "")},
                                            {"arguments", item.value("arguments", "{}")}}}}})}});
    } else if (type != "reasoning") {
        return Status(Code::unimplemented, where + " is of a type that is not supported");
    }
    return {};
}

Status read_input(Fields& fields, ChatInput& input) {
    Json messages = Json::array();
    std::string instructions;
    fields.text("instructions", instructions);
    fields.require("input");
    STET_TRY(fields.status());
    if (!instructions.empty()) {
        messages.push_back({{"role", "system"}, {"content", instructions}});
    }
    const Json& given = *fields.find("input");
    if (given.is_string()) {
        messages.push_back({{"role", "user"}, {"content", given}});
    } else if (given.is_array()) {
        for (std::size_t i = 0; i < given.size(); ++i) {
            STET_TRY(add_item(given[i], fmt::format("'input[{}]'", i), messages));
        }
    } else {
        fields.fail("input", "a string or a list");
    }
    if (const Json* tools = fields.find("tools"); tools != nullptr && !tools->empty()) {
        if (!tools->is_array()) fields.fail("tools", "a list");
        STET_TRY(fields.status());
        input.tools = Json::array();
        for (const Json& tool : *tools) {
            if (!tool.is_object() || tool.value("type", "") != "function") {
                return Status(Code::unimplemented, "'tools' can have functions only");
            }
            Json function = tool;
            function.erase("type");
            input.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
        }
    }
    STET_TRY(fields.status());
    return read_messages(messages, input);
}

Status respond(Call& call) {
    const Context& context = call.context;
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    ChatTurn turn;
    std::string previous;
    bool is_stored = true;
    read_sampling(context, fields, turn.options);
    read_tokens_max(context, fields, {"max_output_tokens"}, turn.options);
    fields.flag("stream", turn.is_stream);
    fields.flag("cache_prompt", turn.may_reuse);
    fields.flag("store", is_stored);
    fields.text("previous_response_id", previous);
    STET_TRY(fields.status());
    STET_TRY(read_input(fields, turn.input));
    if (const Json* text = fields.find("text"); text != nullptr && text->is_object()) {
        if (text->contains("format") && !(*text)["format"].is_null()) {
            STET_TRY(read_format((*text)["format"], "text.format", turn.form));
        }
    }
    if (const Json* choice = fields.find("tool_choice")) {
        STET_TRY(read_tool_choice(*choice, turn.tool_choice));
    }
    const std::string id = "resp_" + random_hex(kIdBytes);
    turn.may_commit = is_stored && context.keeper != nullptr;
    if (turn.may_commit) {
        turn.session = id;
        turn.fork_from = previous;
    } else {
        turn.session = previous;
        turn.must_exist = !previous.empty();
    }
    const Json before = previous.empty() ? Json() : Json(previous);
    const auto make_format = [&context, id, before](const text::ChatOptions& output) {
        return std::make_unique<ResponseFormat>(context, id, before, output);
    };
    return run_chat(call, std::move(turn), make_format);
}

}  // namespace

void add_responses_routes(std::vector<Route>& routes) {
    routes.push_back({"POST", "/v1/responses", respond});
}

}  // namespace stet::server
