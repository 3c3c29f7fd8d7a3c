// What a client wants to know before it asks: whether the server is there, and for which model.
#include "server/answer_json.h"
#include "server/context.h"

namespace stet::server {
namespace {

Status health(Call& call) {
    call.send_json({{"status", "ok"}});
    return {};
}

Status models(Call& call) {
    const Context& context = call.context;
    const auto& model = context.engine->model();
    const Json meta = {{"n_vocab", context.engine->vocabulary()},
                       {"n_ctx", context.engine->context()},
                       {"n_ctx_train", model.config.context_length},
                       {"fingerprint", context.fingerprint.hex()}};
    const Json entry = {{"id", context.model_name},
                        {"object", "model"},
                        {"created", context.started_s},
                        {"owned_by", "stet"},
                        {"meta", meta}};
    call.send_json({{"object", "list"}, {"data", Json::array({entry})}});
    return {};
}

Status one_model(Call& call) {
    const Context& context = call.context;
    if (call.parameters.at(0) != context.model_name) {
        return Status(Code::not_found, "there is no such model; GET /v1/models lists them");
    }
    call.send_json({{"id", context.model_name},
                    {"object", "model"},
                    {"created", context.started_s},
                    {"owned_by", "stet"}});
    return {};
}

std::string piece_or_empty(const text::Tokenizer& tokenizer, Token token) {
    return token == text::kNoToken ? std::string() : tokenizer.piece(token, true);
}

Status props(Call& call) {
    const Context& context = call.context;
    const text::Tokenizer& tokenizer = context.tokenizer();
    const engine::SamplerOptions sampling;
    const Json params = {{"temperature", sampling.temperature},
                         {"top_k", sampling.top_k},
                         {"top_p", sampling.top_p},
                         {"min_p", sampling.min_p},
                         {"repeat_penalty", sampling.repeat_penalty},
                         {"repeat_last_n", sampling.penalty_window},
                         {"presence_penalty", sampling.presence_penalty},
                         {"frequency_penalty", sampling.frequency_penalty},
                         {"n_predict", context.settings.predict},
                         {"max_tokens", context.settings.predict}};
    call.send_json({{"default_generation_settings",
                     {{"n_ctx", context.engine->context()}, {"params", params}}},
                    {"total_slots", context.loop->slot_count()},
                    {"model_alias", context.model_name},
                    {"model_path", context.settings.model},
                    {"modalities", {{"vision", false}, {"audio", false}}},
                    {"endpoint_slots", !context.settings.no_slots},
                    {"endpoint_props", false},
                    {"endpoint_metrics", !context.settings.no_metrics},
                    {"chat_template", context.chat_template->source()},
                    {"bos_token", piece_or_empty(tokenizer, tokenizer.bos())},
                    {"eos_token", piece_or_empty(tokenizer, tokenizer.eos())},
                    {"build_info", "stet " + context.version},
                    {"fingerprint", context.fingerprint.hex()},
                    {"durability", context.keeper ? context.settings.durability : "none"},
                    {"is_sleeping", false}});
    return {};
}

}  // namespace

void add_info_routes(std::vector<Route>& routes) {
    routes.push_back({"GET", "/health", health, Access::open});
    routes.push_back({"GET", "/v1/health", health, Access::open});
    routes.push_back({"GET", "/models", models, Access::open});
    routes.push_back({"GET", "/v1/models", models, Access::open});
    routes.push_back({"GET", "/v1/models/:id", one_model, Access::open});
    routes.push_back({"GET", "/props", props});
}

}  // namespace stet::server
