// Parts of answers that several interfaces share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/context.h"
#include "server/job.h"
#include "server/json.h"

namespace stet::server {

Json timings_json(const Answer& answer);  // llama-server's fields
// What this server adds to every answer: what was reused and why not more, and where it is kept.
Json reuse_json(const Answer& answer);
Json usage_json(const std::vector<Answer>& answers);   // OpenAI's
std::string_view finish_reason(const Answer& answer);  // "stop", "length"
// [{"token", "logprob", "bytes", "top_logprobs": [...]}], of chat completions and llama-server
Json logprobs_json(const Context& context, const std::vector<engine::TokenLogprobs>& list,
                   bool with_ids);
std::int64_t seconds_now();

}  // namespace stet::server
