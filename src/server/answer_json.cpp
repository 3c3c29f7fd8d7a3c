#include "server/answer_json.h"

#include <chrono>

namespace stet::server {
namespace {

double per_second(std::uint64_t count, double ms) {
    return ms > 0.0 ? static_cast<double>(count) * 1000.0 / ms : 0.0;
}

Json bytes_of(const std::string& text) {
    Json list = Json::array();
    for (const char c : text) list.push_back(static_cast<unsigned char>(c));
    return list;
}

Json token_json(const Context& context, Token token, float logprob, bool with_id) {
    const std::string piece = context.tokenizer().piece(token, true);
    Json json = Json::object();
    if (with_id) json["id"] = token;
    json["token"] = piece;
    json["logprob"] = logprob;
    json["bytes"] = bytes_of(piece);
    return json;
}

}  // namespace

std::int64_t seconds_now() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

Json timings_json(const Answer& answer) {
    const std::uint64_t computed = answer.computed_tokens();
    const std::uint64_t predicted = answer.tokens.size();
    const auto each = [](double ms, std::uint64_t count) {
        return count > 0 ? ms / static_cast<double>(count) : 0.0;
    };
    // The first token comes with the prompt; the others took the decode time.
    const std::uint64_t decoded = predicted > 0 ? predicted - 1 : 0;
    return {{"cache_n", answer.reuse.reused_tokens},
            {"prompt_n", computed},
            {"prompt_ms", answer.timings.prompt},
            {"prompt_per_token_ms", each(answer.timings.prompt, computed)},
            {"prompt_per_second", per_second(computed, answer.timings.prompt)},
            {"predicted_n", predicted},
            {"predicted_ms", answer.timings.decode},
            {"predicted_per_token_ms", each(answer.timings.decode, decoded)},
            {"predicted_per_second", per_second(decoded, answer.timings.decode)}};
}

Json reuse_json(const Answer& answer) {
    Json json = {{"reused_tokens", answer.reuse.reused_tokens},
                 {"computed_tokens", answer.computed_tokens()},
                 {"matched_tokens", answer.reuse.matched_tokens},
                 {"source", answer.reuse.source}};
    if (!answer.reuse.reason.empty()) json["reason"] = answer.reuse.reason;
    json["queue_ms"] = answer.queue_ms;
    json["durable"] = answer.is_durable;
    if (answer.is_durable) {
        json["session"] = answer.session;
        json["turn"] = answer.turn_number;
        json["commit_ms"] = answer.commit_ms;
    }
    return json;
}

Json usage_json(const std::vector<Answer>& answers) {
    // Choices share their prompt: it counts once, but what was computed counts.
    std::uint64_t predicted = 0;
    for (const Answer& answer : answers) predicted += answer.tokens.size();
    const Answer& first = answers.front();
    return {{"prompt_tokens", first.prompt_tokens},
            {"completion_tokens", predicted},
            {"total_tokens", first.prompt_tokens + predicted},
            {"prompt_tokens_details", {{"cached_tokens", first.reuse.reused_tokens}}}};
}

std::string_view finish_reason(const Answer& answer) {
    const bool is_stop =
        answer.stop == engine::StopReason::end || answer.stop == engine::StopReason::stop_text;
    return is_stop ? "stop" : "length";
}

Json logprobs_json(const Context& context, const std::vector<engine::TokenLogprobs>& list,
                   bool with_ids) {
    Json json = Json::array();
    for (const engine::TokenLogprobs& entry : list) {
        Json item = token_json(context, entry.token, entry.logprob, with_ids);
        item["top_logprobs"] = Json::array();
        for (const auto& [token, logprob] : entry.top) {
            item["top_logprobs"].push_back(token_json(context, token, logprob, with_ids));
        }
        json.push_back(std::move(item));
    }
    return json;
}

}  // namespace stet::server
