// llama-server's own /completion, and OpenAI's /v1/completions: text in, text out.
#include <fmt/format.h>

#include "base/try.h"
#include "server/answer_form.h"
#include "server/answer_json.h"
#include "server/delivery.h"
#include "server/http_text.h"
#include "server/prompt.h"
#include "server/sampling.h"

namespace stet::server {
namespace {

constexpr std::size_t kIdBytes = 12;

std::string_view stop_type(const Answer& answer) {
    switch (answer.stop) {
        case engine::StopReason::end:
            return "eos";
        case engine::StopReason::stop_text:
            return "word";
        default:
            return "limit";
    }
}

// --- /completion ---

class NativeFormat : public AnswerFormat {
  public:
    NativeFormat(const Context& context, Json settings, std::string prompt, bool has_tokens)
        : context_(context),
          settings_(std::move(settings)),
          prompt_(std::move(prompt)),
          has_tokens_(has_tokens) {}

    std::string piece(std::size_t choice, const Progress& progress) override {
        Json json = {{"index", choice},
                     {"content", progress.text},
                     {"tokens", progress.tokens},
                     {"stop", false}};
        if (!progress.logprobs.empty()) {
            json["completion_probabilities"] = logprobs_json(context_, progress.logprobs, true);
        }
        return event(json);
    }
    std::string finished(std::size_t choice, const Answer& answer) override {
        return event(final_json(choice, answer, true));
    }
    std::string end(const std::vector<Answer>& /*answers*/) override { return {}; }
    std::string failed(const Failure& failure) override {
        return event(failure_json(failure, Dialect::openai));
    }
    Json whole(const std::vector<Answer>& answers) override {
        if (answers.size() == 1) return final_json(0, answers.front(), false);
        Json list = Json::array();
        for (std::size_t i = 0; i < answers.size(); ++i) {
            list.push_back(final_json(i, answers[i], false));
        }
        return list;
    }

  private:
    Json final_json(std::size_t choice, const Answer& answer, bool is_stream) const {
        Json settings = settings_;
        settings["seed"] = answer.seed;
        Json json = {{"index", choice},
                     {"content", is_stream ? "" : answer.text},
                     {"tokens", is_stream || !has_tokens_ ? std::vector<Token>() : answer.tokens},
                     {"id_slot", answer.slot},
                     {"stop", true},
                     {"model", context_.model_name},
                     {"tokens_predicted", answer.tokens.size()},
                     {"tokens_evaluated", answer.prompt_tokens},
                     {"generation_settings", std::move(settings)},
                     {"prompt", prompt_},
                     {"has_new_line", answer.text.find('\n') != std::string::npos},
                     {"truncated", false},
                     {"stop_type", stop_type(answer)},
                     {"stopping_word", answer.stop_text},
                     {"tokens_cached", answer.prompt_tokens + answer.tokens.size()},
                     {"timings", timings_json(answer)},
                     {"stet", reuse_json(answer)}};
        if (!is_stream && !answer.logprobs.empty()) {
            json["completion_probabilities"] = logprobs_json(context_, answer.logprobs, true);
        }
        return json;
    }

    const Context& context_;
    Json settings_;
    std::string prompt_;
    bool has_tokens_;
};

Json settings_json(const engine::GenerateOptions& options, bool is_stream) {
    const engine::SamplerOptions& sampling = options.sampling;
    const std::int64_t count = options.prompt_only ? 0
                               : options.tokens_max == 0
                                   ? -1
                                   : static_cast<std::int64_t>(options.tokens_max);
    return {{"seed", sampling.seed},
            {"temperature", sampling.temperature},
            {"top_k", sampling.top_k},
            {"top_p", sampling.top_p},
            {"min_p", sampling.min_p},
            {"repeat_last_n", sampling.penalty_window},
            {"repeat_penalty", sampling.repeat_penalty},
            {"presence_penalty", sampling.presence_penalty},
            {"frequency_penalty", sampling.frequency_penalty},
            {"max_tokens", count},
            {"n_predict", count},
            {"ignore_eos", options.ignore_end},
            {"stop", options.stop},
            {"stream", is_stream},
            {"n_probs", options.logprobs.value_or(0)}};
}

Status read_slot(const Context& context, Fields& fields, std::optional<std::uint32_t>& slot) {
    std::int64_t id = -1;
    const std::int64_t count = context.loop->slot_count();
    fields.integer("id_slot", id, -1, count - 1);
    STET_TRY(fields.status());
    if (id >= 0) slot = static_cast<std::uint32_t>(id);
    return {};
}

Status completion(Call& call) {
    const Context& context = call.context;
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    engine::GenerateOptions options;
    bool is_stream = false;
    bool may_reuse = true;
    bool has_tokens = false;
    std::int64_t probs = 0;
    std::optional<std::uint32_t> slot;
    read_sampling(context, fields, options);
    read_tokens_max(context, fields, {"max_tokens", "n_predict"}, options);
    fields.flag("stream", is_stream);
    fields.flag("cache_prompt", may_reuse);
    fields.flag("return_tokens", has_tokens);
    fields.integer("n_probs", probs, 0, context.engine->vocabulary());
    fields.require("prompt");
    STET_TRY(fields.status());
    STET_TRY(read_slot(context, fields, slot));
    AnswerForm form;
    STET_TRY(read_answer_form(fields, form));
    if (probs > 0) options.logprobs = static_cast<std::uint32_t>(probs);
    STET_ASSIGN(auto prompts, prompts_of(context, *fields.find("prompt"), "prompt"));
    const std::string shown =
        prompts.size() == 1 ? context.tokenizer().decode(prompts.front(), true) : std::string();
    std::vector<std::shared_ptr<Job>> jobs;
    for (auto& prompt : prompts) {
        auto job = std::make_shared<Job>();
        job->prompt = std::move(prompt);
        job->options = options;
        job->slot = slot;
        job->may_reuse = may_reuse;
        jobs.push_back(std::move(job));
    }
    return deliver_in_form(call, form, std::move(jobs),
                           std::make_unique<NativeFormat>(
                               context, settings_json(options, is_stream), shown, has_tokens),
                           is_stream);
}

// --- /v1/completions ---

class TextFormat : public AnswerFormat {
  public:
    TextFormat(const Context& context, bool has_usage, std::vector<std::string> echo)
        : context_(context),
          has_usage_(has_usage),
          echo_(std::move(echo)),
          id_("cmpl-" + random_hex(kIdBytes)),
          created_(seconds_now()),
          offsets_(echo_.size()),
          has_echoed_(echo_.size()) {}

    std::string piece(std::size_t choice, const Progress& progress) override {
        return event(chunk(choice, take_echo(choice) + progress.text,
                           old_logprobs(choice, progress.logprobs), nullptr));
    }
    std::string finished(std::size_t choice, const Answer& answer) override {
        return event(chunk(choice, take_echo(choice), nullptr, finish_reason(answer)));
    }
    std::string end(const std::vector<Answer>& answers) override {
        std::string text;
        if (has_usage_) {
            Json last = head();
            last["choices"] = Json::array();
            last["usage"] = usage_json(answers);
            last["timings"] = timings_json(answers.front());
            last["stet"] = reuse_json(answers.front());
            text = event(last);
        }
        return text + "data: [DONE]\n\n";
    }
    std::string failed(const Failure& failure) override {
        return event(failure_json(failure, Dialect::openai));
    }
    Json whole(const std::vector<Answer>& answers) override {
        Json json = head();
        json["choices"] = Json::array();
        for (std::size_t i = 0; i < answers.size(); ++i) {
            json["choices"].push_back({{"text", echo_[i] + answers[i].text},
                                       {"index", i},
                                       {"logprobs", old_logprobs(i, answers[i].logprobs)},
                                       {"finish_reason", finish_reason(answers[i])}});
        }
        json["usage"] = usage_json(answers);
        json["timings"] = timings_json(answers.front());
        json["stet"] = reuse_json(answers.front());
        return json;
    }

  private:
    Json head() const {
        return {{"id", id_},
                {"object", "text_completion"},
                {"created", created_},
                {"model", context_.model_name},
                {"system_fingerprint", "stet-" + context_.version}};
    }
    Json chunk(std::size_t choice, const std::string& text, Json logprobs, Json reason) const {
        Json json = head();
        json["choices"] = Json::array({{{"text", text},
                                        {"index", choice},
                                        {"logprobs", std::move(logprobs)},
                                        {"finish_reason", std::move(reason)}}});
        return json;
    }
    std::string take_echo(std::size_t choice) {
        if (has_echoed_[choice]) return {};
        has_echoed_[choice] = true;
        return echo_[choice];
    }
    // The form of the older interface: lists side by side.
    Json old_logprobs(std::size_t choice, const std::vector<engine::TokenLogprobs>& list) {
        if (list.empty()) return nullptr;
        Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
             offsets = Json::array();
        for (const engine::TokenLogprobs& entry : list) {
            const std::string piece = context_.tokenizer().piece(entry.token, true);
            tokens.push_back(piece);
            values.push_back(entry.logprob);
            Json top = Json::object();
            for (const auto& [token, logprob] : entry.top) {
                top[context_.tokenizer().piece(token, true)] = logprob;
            }
            tops.push_back(std::move(top));
            offsets.push_back(offsets_[choice]);
            offsets_[choice] += piece.size();
        }
        return {{"tokens", std::move(tokens)},
                {"token_logprobs", std::move(values)},
                {"top_logprobs", std::move(tops)},
                {"text_offset", std::move(offsets)}};
    }

    const Context& context_;
    bool has_usage_;
    std::vector<std::string> echo_;
    std::string id_;
    std::int64_t created_;
    std::vector<std::size_t> offsets_;
    std::vector<bool> has_echoed_;
};

Status text_completion(Call& call) {
    const Context& context = call.context;
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    engine::GenerateOptions options;
    options.sampling.temperature = 1.0F;
    options.tokens_max = 16;
    bool is_stream = false;
    bool is_echo = false;
    bool may_reuse = true;
    bool has_usage = false;
    std::int64_t choices = 1;
    std::int64_t logprobs = -1;
    read_sampling(context, fields, options);
    // This interface's default is 16 tokens.
    read_tokens_max(context, fields, {"max_tokens", "n_predict"}, options);
    if (fields.find("max_tokens") == nullptr && fields.find("n_predict") == nullptr) {
        constexpr std::uint64_t kDefault = 16;
        options.tokens_max = kDefault;
    }
    fields.flag("stream", is_stream);
    fields.flag("echo", is_echo);
    fields.flag("cache_prompt", may_reuse);
    fields.integer("n", choices, 1, kChoicesMax);
    fields.integer("logprobs", logprobs, 0, kTopLogprobsMax);
    fields.require("prompt");
    STET_TRY(fields.status());
    if (const Json* extra = fields.find("stream_options"); extra != nullptr && extra->is_object()) {
        Fields inner(*extra, "stream_options.");
        inner.flag("include_usage", has_usage);
        STET_TRY(inner.status());
    }
    AnswerForm form;
    STET_TRY(read_answer_form(fields, form));
    if (logprobs >= 0) options.logprobs = static_cast<std::uint32_t>(logprobs);
    STET_ASSIGN(const auto prompts, prompts_of(context, *fields.find("prompt"), "prompt"));
    std::vector<std::shared_ptr<Job>> jobs;
    std::vector<std::string> echo;
    for (const auto& prompt : prompts) {
        for (std::int64_t i = 0; i < choices; ++i) {
            auto job = std::make_shared<Job>();
            job->prompt = prompt;
            job->options = options;
            job->may_reuse = may_reuse;
            if (job->options.sampling.seed != 0) {
                job->options.sampling.seed += static_cast<std::uint64_t>(i);
            }
            jobs.push_back(std::move(job));
            echo.push_back(is_echo ? context.tokenizer().decode(prompt, false) : std::string());
        }
    }
    return deliver_in_form(call, form, std::move(jobs),
                           std::make_unique<TextFormat>(context, has_usage, std::move(echo)),
                           is_stream);
}

}  // namespace

void add_completion_routes(std::vector<Route>& routes) {
    routes.push_back({"POST", "/completion", completion});
    routes.push_back({"POST", "/completions", completion});
    routes.push_back({"POST", "/v1/completions", text_completion});
}

}  // namespace stet::server
