// The built-in page. It holds nothing but itself, so no key is needed for it; what it asks for is.
#include "server/page.h"
#include "server/context.h"

namespace stet::server {
namespace {

constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

void send_file(const Call& call, const PageFile& file) {
    Response response;
    response.content_type = file.content_type;
    response.body = file.content;
    response.headers = {{"Content-Security-Policy", std::string(kPolicy)},
                        {"X-Content-Type-Options", "nosniff"},
                        {"Referrer-Policy", "no-referrer"},
                        {"Cache-Control", "no-cache"}};
    call.exchange->send(std::move(response));
}

}  // namespace

void add_page_routes(std::vector<Route>& routes) {
    for (const PageFile& file : page_files()) {
        const auto handler = [&file](Call& call) {
            send_file(call, file);
            return Status::ok();
        };
        routes.push_back({"GET", file.path, handler, Access::open});
        if (file.path == "/index.html") routes.push_back({"GET", "/", handler, Access::open});
    }
}

}  // namespace stet::server
