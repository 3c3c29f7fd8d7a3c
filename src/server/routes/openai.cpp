// OpenAI's /v1/chat/completions.
#include <fmt/format.h>

#include <optional>

#include "base/try.h"
#include "server/answer_json.h"
#include "server/chat.h"
#include "server/http_text.h"
#include "server/sampling.h"

namespace stet::server {
namespace {

constexpr std::size_t kIdBytes = 12;

// `first`: the index of the first in the answer, for a stream.
Json calls_json(const std::vector<ToolCall>& calls, std::optional<std::size_t> first) {
    Json list = Json::array();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        Json call = Json::object();
        if (first) call["index"] = *first + i;
        call["id"] = calls[i].id;
        call["type"] = "function";
        call["function"] = {{"name", calls[i].name}, {"arguments", calls[i].arguments}};
        list.push_back(std::move(call));
    }
    return list;
}

class ChatFormat : public AnswerFormat {
  public:
    ChatFormat(const Context& context, std::size_t choices, bool has_usage,
               const text::ChatOptions& output)
        : context_(context),
          has_usage_(has_usage),
          options_(output),
          id_("chatcmpl-" + random_hex(kIdBytes)),
          created_(seconds_now()),
          outputs_(choices, ChatOutput(output)) {}

    std::string begin() override {
        std::string text;
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            text += event(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
        }
        return text;
    }
    std::string piece(std::size_t choice, const Progress& progress) override {
        Json logprobs;
        if (!progress.logprobs.empty()) {
            logprobs = {{"content", logprobs_json(context_, progress.logprobs, false)}};
        }
        const ChatDelta delta = outputs_[choice].add(progress.text);
        if (delta.is_empty() && logprobs.is_null()) return {};
        return event(chunk(choice, delta_json(choice, delta), std::move(logprobs), nullptr));
    }
    std::string finished(std::size_t choice, const Answer& answer) override {
        const ChatDelta delta = outputs_[choice].finish();
        std::string text;
        if (!delta.is_empty()) {
            text = event(chunk(choice, delta_json(choice, delta), nullptr, nullptr));
        }
        return text + event(chunk(choice, Json::object(), nullptr, reason(choice, answer)));
    }
    std::string end(const std::vector<Answer>& answers) override {
        std::string text;
        if (has_usage_) {
            Json last = head("chat.completion.chunk");
            last["choices"] = Json::array();
            add_figures(last, answers);
            text = event(last);
        }
        return text + "data: [DONE]\n\n";
    }
    std::string failed(const Failure& failure) override {
        return event(failure_json(failure, Dialect::openai));
    }
    Json whole(const std::vector<Answer>& answers) override {
        Json json = head("chat.completion");
        json["choices"] = Json::array();
        for (std::size_t i = 0; i < answers.size(); ++i) {
            ChatOutput output(options_);
            output.add(answers[i].text);
            output.finish();
            outputs_[i] = output;
            Json message = {{"role", "assistant"}, {"content", output.content()}};
            if (!output.reasoning().empty()) message["reasoning_content"] = output.reasoning();
            if (!output.calls().empty()) {
                if (output.content().empty()) message["content"] = nullptr;
                message["tool_calls"] = calls_json(output.calls(), std::nullopt);
            }
            Json logprobs;
            if (!answers[i].logprobs.empty()) {
                logprobs = {{"content", logprobs_json(context_, answers[i].logprobs, false)}};
            }
            json["choices"].push_back({{"index", i},
                                       {"message", std::move(message)},
                                       {"logprobs", std::move(logprobs)},
                                       {"finish_reason", reason(i, answers[i])}});
        }
        add_figures(json, answers);
        return json;
    }

  private:
    Json head(std::string_view object) const {
        return {{"id", id_},
                {"object", object},
                {"created", created_},
                {"model", context_.model_name},
                {"system_fingerprint", "stet-" + context_.version}};
    }
    static void add_figures(Json& json, const std::vector<Answer>& answers) {
        json["usage"] = usage_json(answers);
        json["timings"] = timings_json(answers.front());
        json["stet"] = reuse_json(answers.front());
    }
    Json delta_json(std::size_t choice, const ChatDelta& delta) const {
        Json json = Json::object();
        if (!delta.reasoning.empty()) json["reasoning_content"] = delta.reasoning;
        if (!delta.content.empty()) json["content"] = delta.content;
        if (!delta.calls.empty()) {
            const std::size_t first = outputs_[choice].calls().size() - delta.calls.size();
            json["tool_calls"] = calls_json(delta.calls, first);
        }
        return json;
    }
    Json chunk(std::size_t choice, Json delta, Json logprobs, Json reason) const {
        Json json = head("chat.completion.chunk");
        json["choices"] = Json::array({{{"index", choice},
                                        {"delta", std::move(delta)},
                                        {"logprobs", std::move(logprobs)},
                                        {"finish_reason", std::move(reason)}}});
        return json;
    }
    std::string_view reason(std::size_t choice, const Answer& answer) const {
        return outputs_[choice].calls().empty() ? finish_reason(answer) : "tool_calls";
    }

    const Context& context_;
    bool has_usage_;
    text::ChatOptions options_;
    std::string id_;
    std::int64_t created_;
    std::vector<ChatOutput> outputs_;
};

Status read_tools(Fields& fields, ChatTurn& turn) {
    if (const Json* tools = fields.find("tools")) {
        if (!tools->is_array()) fields.fail("tools", "a list");
        turn.input.tools = *tools;
    }
    STET_TRY(fields.status());
    const Json* choice = fields.find("tool_choice");
    return choice == nullptr ? Status() : read_tool_choice(*choice, turn.tool_choice);
}

Status chat_completion(Call& call) {
    const Context& context = call.context;
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    ChatTurn turn;
    bool has_usage = false;
    bool has_logprobs = false;
    std::int64_t top_logprobs = 0;
    std::int64_t slot = -1;
    read_sampling(context, fields, turn.options);
    read_tokens_max(context, fields, {"n_predict", "max_tokens", "max_completion_tokens"},
                    turn.options);
    fields.flag("stream", turn.is_stream);
    fields.flag("cache_prompt", turn.may_reuse);
    fields.integer("n", turn.choices, 1, kChoicesMax);
    fields.flag("logprobs", has_logprobs);
    fields.integer("top_logprobs", top_logprobs, 0, kTopLogprobsMax);
    fields.integer("id_slot", slot, -1, std::int64_t{context.loop->slot_count()} - 1);
    fields.text("session_id", turn.session);
    fields.require("messages");
    STET_TRY(fields.status());
    if (const Json* extra = fields.find("stream_options"); extra != nullptr && extra->is_object()) {
        Fields inner(*extra, "stream_options.");
        inner.flag("include_usage", has_usage);
        STET_TRY(inner.status());
    }
    if (has_logprobs || top_logprobs > 0) {
        turn.options.logprobs = static_cast<std::uint32_t>(top_logprobs);
    }
    if (slot >= 0) turn.slot = static_cast<std::uint32_t>(slot);
    STET_TRY(read_answer_form(fields, turn.form));
    STET_TRY(read_tools(fields, turn));
    STET_TRY(read_messages(*fields.find("messages"), turn.input));
    if (const Json* options = fields.find("chat_template_kwargs")) {
        if (!options->is_object()) fields.fail("chat_template_kwargs", "an object");
        STET_TRY(fields.status());
        turn.input.template_options = *options;
    }
    const auto choices = static_cast<std::size_t>(turn.choices);
    const auto make_format = [&context, choices, has_usage](const text::ChatOptions& output) {
        return std::make_unique<ChatFormat>(context, choices, has_usage, output);
    };
    return run_chat(call, std::move(turn), make_format);
}

}  // namespace

void add_openai_routes(std::vector<Route>& routes) {
    routes.push_back({"POST", "/v1/chat/completions", chat_completion});
    routes.push_back({"POST", "/chat/completions", chat_completion});
}

}  // namespace stet::server
