// Failures as clients see them: one table from codes to HTTP statuses and the names that the OpenAI
// and Anthropic interfaces give to kinds of errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/json.h"
#include "stet/status.h"

namespace stet::server {

enum class Dialect : std::uint8_t { openai, anthropic };

struct Failure {
    int http = 500;
    std::string type;  // OpenAI's and llama-server's name
    std::string anthropic_type;
    std::string message;
    Json more = Json::object();  // further members of the error
};

Failure failure_of(const Status& status);
// For what has no code of ours: 401, 404, 405, 413, 429, 431, ...
Failure http_failure(int http, std::string_view message);
// The prompt is longer than the context.
Failure context_failure(std::uint64_t prompt_tokens, std::uint64_t context_tokens);

// {"error": {"code", "message", "type", ...}} or {"type": "error", "error": {"type", "message"}}
Json failure_json(const Failure& failure, Dialect dialect);
Response failure_response(const Failure& failure, Dialect dialect);

}  // namespace stet::server
