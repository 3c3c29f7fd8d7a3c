#include "server/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace stet::server {
namespace {

struct ErrorRow {
    int http;
    std::string_view type;
    std::string_view anthropic_type;
};

constexpr std::array kErrors = {
    ErrorRow{400, "invalid_request_error", "invalid_request_error"},
    ErrorRow{401, "authentication_error", "authentication_error"},
    ErrorRow{403, "permission_error", "permission_error"},
    ErrorRow{404, "not_found_error", "not_found_error"},
    ErrorRow{405, "invalid_request_error", "invalid_request_error"},
    ErrorRow{409, "conflict_error", "invalid_request_error"},
    ErrorRow{413, "invalid_request_error", "request_too_large"},
    ErrorRow{422, "invalid_request_error", "invalid_request_error"},
    ErrorRow{429, "rate_limit_error", "rate_limit_error"},
    ErrorRow{431, "invalid_request_error", "invalid_request_error"},
    ErrorRow{499, "cancelled_error", "api_error"},
    ErrorRow{500, "server_error", "api_error"},
    ErrorRow{501, "not_supported_error", "invalid_request_error"},
    ErrorRow{503, "unavailable_error", "overloaded_error"},
    ErrorRow{504, "timeout_error", "timeout_error"},
    ErrorRow{507, "server_error", "overloaded_error"},
};

}  // namespace

Failure http_failure(int http, std::string_view message) {
    const auto* row = std::find_if(kErrors.begin(), kErrors.end(),
                                   [&](const ErrorRow& entry) { return entry.http == http; });
    Failure failure;
    failure.http = http;
    failure.type = row == kErrors.end() ? "server_error" : row->type;
    failure.anthropic_type = row == kErrors.end() ? "api_error" : row->anthropic_type;
    failure.message = message;
    return failure;
}

Failure failure_of(const Status& status) {
    return http_failure(http_status(status.code()), status.to_string());
}

Failure context_failure(std::uint64_t prompt_tokens, std::uint64_t context_tokens) {
    Failure failure = http_failure(
        400, fmt::format("the request needs {} tokens, the context has {}; shorten it or start the "
                         "server with a larger --ctx-size",
                         prompt_tokens, context_tokens));
    failure.type = "exceed_context_size_error";
    failure.more = {{"n_prompt_tokens", prompt_tokens}, {"n_ctx", context_tokens}};
    return failure;
}

Json failure_json(const Failure& failure, Dialect dialect) {
    if (dialect == Dialect::anthropic) {
        return {{"type", "error"},
                {"error", {{"type", failure.anthropic_type}, {"message", failure.message}}}};
    }
    Json error = {{"code", failure.http}, {"message", failure.message}, {"type", failure.type}};
    error.update(failure.more);
    return {{"error", std::move(error)}};
}

Response failure_response(const Failure& failure, Dialect dialect) {
    Response response;
    response.status = failure.http;
    response.body = dump(failure_json(failure, dialect));
    if (failure.http == 429 || failure.http == 503)
        response.headers.emplace_back("Retry-After", "1");
    if (failure.http == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
}

}  // namespace stet::server
