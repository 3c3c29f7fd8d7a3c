#include <fmt/format.h>

#include <exception>
#include <new>
#include <optional>

#include "server/chat.h"
#include "server/context.h"

namespace stet::server {
namespace {

std::vector<std::string_view> split(std::string_view path) {
    std::vector<std::string_view> parts;
    while (!path.empty()) {
        path.remove_prefix(1);
        const std::string_view part = path.substr(0, path.find('/'));
        parts.push_back(part);
        path.remove_prefix(part.size());
    }
    return parts;
}

// The parameters when the path fits.
std::optional<std::vector<std::string>> match(std::string_view pattern, std::string_view path) {
    const auto wanted = split(pattern);
    const auto found = split(path);
    if (wanted.size() != found.size()) return std::nullopt;
    std::vector<std::string> parameters;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i].starts_with(':')) {
            parameters.emplace_back(found[i]);
        } else if (wanted[i] != found[i]) {
            return std::nullopt;
        }
    }
    return parameters;
}

std::vector<Route> all_routes() {
    std::vector<Route> routes;
    add_info_routes(routes);
    add_text_routes(routes);
    add_completion_routes(routes);
    add_embedding_routes(routes);
    add_openai_routes(routes);
    add_responses_routes(routes);
    add_anthropic_routes(routes);
    add_session_routes(routes);
    add_session_file_routes(routes);
    add_slot_routes(routes);
    add_metrics_routes(routes);
    add_page_routes(routes);
    return routes;
}

Status guarded(const Route& route, Call& call) {
    try {
        return route.handler(call);
    } catch (const std::bad_alloc&) {
        return Status(Code::resource_exhausted, "out of memory");
    } catch (const std::exception& error) {
        return Status(Code::internal, error.what());
    }
}

void handle(Context& context, const std::vector<Route>& routes, Request request,
            std::shared_ptr<Exchange> exchange) {
    Call call{context, std::move(request), std::move(exchange), {}, {}, Dialect::openai};
    if (!call.request.path.starts_with('/')) {
        return call.send_failure(http_failure(400, "the target is not a path"));
    }
    const std::string method = call.request.method == "HEAD" ? "GET" : call.request.method;
    const Route* chosen = nullptr;
    bool has_path = false;
    for (const Route& route : routes) {
        auto parameters = match(route.pattern, call.request.path);
        if (!parameters) continue;
        has_path = true;
        if (route.method != method) continue;
        chosen = &route;
        call.parameters = std::move(*parameters);
        break;
    }
    const auto tenant = context.keys.tenant_of(call.request);
    if (chosen != nullptr) call.dialect = chosen->dialect;
    if (!tenant && (chosen == nullptr || chosen->access == Access::with_key)) {
        return call.send_failure(http_failure(401, "Invalid API Key"));
    }
    if (chosen == nullptr) {
        return call.send_failure(has_path ? http_failure(405, "this path has no such method")
                                          : http_failure(404, "File Not Found"));
    }
    call.tenant = tenant.value_or("");
    if (Status status = guarded(*chosen, call); !status) {
        call.exchange->note(status.code() == Code::internal
                                ? status.to_string()
                                : std::string(code_name(status.code())));
        call.send_failure(failure_of(status));
    }
}

}  // namespace

void Call::send_json(const Json& json, int status) const {
    Response response;
    response.status = status;
    response.body = dump(json);
    exchange->send(std::move(response));
}

void Call::send_failure(const Failure& failure) const {
    exchange->send(failure_response(failure, dialect));
}

Handler make_handler(Context& context) {
    return [&context, routes = all_routes()](Request request, std::shared_ptr<Exchange> exchange) {
        handle(context, routes, std::move(request), std::move(exchange));
    };
}

}  // namespace stet::server
