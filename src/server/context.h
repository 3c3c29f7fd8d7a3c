// What every route works with, and the table of routes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/engine_loop.h"
#include "server/errors.h"
#include "server/http.h"
#include "server/keeper.h"
#include "server/keys.h"
#include "server/settings.h"
#include "server/slot_files.h"
#include "text/chat_parser.h"
#include "text/chat_template.h"

namespace spdlog {
class logger;
}

namespace stet::server {

class Grammars;

struct Context {
    Context();
    ~Context();

    Settings settings;
    std::string version;
    std::string model_name;  // what clients call it
    std::int64_t started_s = 0;
    Keys keys{""};
    std::unique_ptr<engine::Engine> engine;
    Hash256 fingerprint;
    std::unique_ptr<text::ChatTemplate> chat_template;
    const text::ChatFormat* chat_format = nullptr;  // how the model writes calls and reasoning
    std::shared_ptr<spdlog::logger> log;
    // Their order of destruction is Server's business.
    std::unique_ptr<Keeper> keeper;         // null: nothing is durable
    std::unique_ptr<SlotFiles> slot_files;  // null: without a slot directory
    std::unique_ptr<Grammars> grammars;
    std::unique_ptr<EngineLoop> loop;
    std::function<std::uint32_t()> connections;

    const text::Tokenizer& tokenizer() const { return engine->tokenizer(); }
};

// A request on its way through a route.
struct Call {
    Context& context;
    Request request;
    std::shared_ptr<Exchange> exchange;
    std::string tenant;
    std::vector<std::string> parameters;  // of the pattern, in order
    Dialect dialect = Dialect::openai;

    void send_json(const Json& json, int status = 200) const;
    void send_failure(const Failure& failure) const;
};

// Answers through call.exchange (at once or later) and returns ok, or returns the failure to answer
// with. Runs on an I/O thread.
using RouteHandler = std::function<Status(Call& call)>;

enum class Access : std::uint8_t { open, with_key };

struct Route {
    std::string_view method;
    std::string_view pattern;  // "/slots/:id": a part that begins with a colon is a parameter
    RouteHandler handler;
    Access access = Access::with_key;
    Dialect dialect = Dialect::openai;
};

// One function for each file of routes/.
void add_info_routes(std::vector<Route>& routes);
void add_text_routes(std::vector<Route>& routes);
void add_completion_routes(std::vector<Route>& routes);
void add_embedding_routes(std::vector<Route>& routes);
void add_openai_routes(std::vector<Route>& routes);
void add_anthropic_routes(std::vector<Route>& routes);
void add_session_routes(std::vector<Route>& routes);
void add_session_file_routes(std::vector<Route>& routes);
void add_slot_routes(std::vector<Route>& routes);
void add_metrics_routes(std::vector<Route>& routes);
void add_page_routes(std::vector<Route>& routes);

// Finds the route, checks the key, and keeps exceptions away from the transport.
Handler make_handler(Context& context);

}  // namespace stet::server
