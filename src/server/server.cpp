#include "server/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>

#include "base/env.h"
#include "base/try.h"
#include "base/units.h"
#include "exec/deterministic.h"
#include "gguf/gguf.h"
#include "server/answer_json.h"
#include "server/context.h"
#include "server/grammars.h"
#include "server/log.h"
#include "store/sealing.h"

namespace stet::server {
namespace {

memory::ElementType element_type(std::string_view name) {
    if (name == "f32") return memory::ElementType::f32;
    return name == "q8_0" ? memory::ElementType::q8_0 : memory::ElementType::f16;
}

bool is_address(const std::string& host) {
    in6_addr storage{};  // room for either
    return inet_pton(AF_INET, host.c_str(), &storage) == 1 ||
           inet_pton(AF_INET6, host.c_str(), &storage) == 1;
}

bool is_loopback(std::string_view host) {
    return host.starts_with("127.") || host == "::1";
}

// Addresses in words, as people write them.
std::string address_of(std::string_view host) {
    return host == "localhost" ? "127.0.0.1" : std::string(host);
}

Result<std::string> keys_of(const Settings& settings) {
    std::string keys = settings.api_key;
    if (settings.api_key_file.empty()) return keys;
    constexpr std::uint64_t kFileBytesMax = 1U << 20;
    STET_ASSIGN(const auto bytes, read_file(Env::posix(), settings.api_key_file, kFileBytesMax));
    keys += '\n';
    for (const std::byte byte : bytes) keys += static_cast<char>(byte);
    return keys;
}

Status check(const Settings& settings, const Keys& keys) {
    if (settings.model.empty()) {
        return Status(Code::invalid_argument, "no model was given: stet serve MODEL.gguf");
    }
    const std::string host = address_of(settings.host);
    if (!is_address(host)) {
        return Status(Code::invalid_argument,
                      fmt::format("--host '{}' is not an IP address to listen on", settings.host));
    }
    if (!is_loopback(host) && keys.is_open()) {
        return Status(
            Code::invalid_argument,
            fmt::format("--host {} lets other machines in; that needs --api-key", settings.host));
    }
    return {};
}

Status load_model(const ServerOptions& options, Context& context) {
    const Settings& settings = options.settings;
    exec::set_deterministic(settings.deterministic);
    STET_ASSIGN(auto file, gguf::File::open(Env::posix(), settings.model));
    STET_ASSIGN(context.fingerprint,
                gguf::fingerprint(Env::posix(), *file, options.cache_directory));
    engine::EngineOptions engine;
    engine.model.threads = static_cast<int>(settings.threads);
    engine.model.state_types = {element_type(settings.k_type), element_type(settings.v_type)};
    engine.context = settings.context;
    engine.batch = settings.batch;
    engine.state_limit_bytes = std::uint64_t{settings.ram_mib} << 20U;
    STET_ASSIGN(context.engine, engine::Engine::create(std::move(file), engine));
    STET_ASSIGN(auto chat_template, text::ChatTemplate::for_model(*context.engine->model().file));
    context.chat_template = std::make_unique<text::ChatTemplate>(std::move(chat_template));
    context.chat_format = &text::chat_format_of(context.chat_template->source());
    context.model_name = settings.alias.empty()
                             ? std::filesystem::path(settings.model).filename().string()
                             : settings.alias;
    return {};
}

Status open_slot_directory(Context& context) {
    const Settings& settings = context.settings;
    if (settings.slot_save_path.empty()) return {};
    auto identity = state::Identity::of(
        context.fingerprint, context.engine->schema(), element_type(settings.k_type),
        element_type(settings.v_type), context.engine->model().config.name);
    STET_ASSIGN(context.slot_files,
                SlotFiles::open(Env::posix(), settings.slot_save_path, context.keys.tenants(),
                                *context.engine, std::move(identity)));
    return {};
}

Status open_stores(const ServerOptions& options, Context& context) {
    const Settings& settings = options.settings;
    if (settings.durability == "none") return {};
    Keeper::Options keeper;
    keeper.directory =
        settings.store.empty() ? options.store_directory : std::filesystem::path(settings.store);
    keeper.tenants = context.keys.tenants();
    keeper.auto_sessions_max = settings.auto_sessions;
    const std::uint64_t shares = std::max<std::size_t>(1, keeper.tenants.size());
    keeper.store.disk_limit_bytes = (std::uint64_t{settings.disk_mib} << 20U) / shares;
    keeper.store.free_floor_bytes = std::uint64_t{settings.disk_free_mib} << 20U;
    if (!settings.ttl.empty()) {
        STET_ASSIGN(keeper.store.ttl, parse_duration(settings.ttl));
    }
    STET_ASSIGN(keeper.store.key,
                store::store_key(Env::posix(), settings.store_key, settings.store_key_file));
    keeper.scrub_bytes_per_second = std::uint64_t{settings.scrub_mib} << 20U;
    keeper.warn = [log = context.log](std::string_view line) { log_warning(*log, line); };
    STET_ASSIGN(context.keeper, Keeper::create(keeper, *context.engine, context.fingerprint));
    return {};
}

HttpOptions http_options(const Settings& settings) {
    HttpOptions options;
    options.host = address_of(settings.host);
    options.port = static_cast<std::uint16_t>(settings.port);
    options.threads = settings.threads_http;
    options.body_bytes_max = std::uint64_t{settings.body_mib} << 20U;
    options.connections_max = settings.connections;
    options.connections_per_address_max = settings.connections;
    return options;
}

}  // namespace

Context::Context() = default;
Context::~Context() = default;

Server::Server() = default;

Server::~Server() {
    stop(std::chrono::milliseconds(0));
}

Result<std::unique_ptr<Server>> Server::create(const ServerOptions& options) {
    const Settings& settings = options.settings;
    std::unique_ptr<Server> server(new Server());
    server->context_ = std::make_unique<Context>();
    Context& context = *server->context_;
    context.settings = settings;
    context.version = STET_VERSION;
    context.started_s = seconds_now();
    context.log = make_log(settings.log_level, settings.log_json);
    STET_ASSIGN(const std::string keys, keys_of(settings));
    context.keys = Keys(keys);
    STET_TRY(check(settings, context.keys));

    // The address first: a port that is taken is known before a model is loaded for minutes.
    const auto failure_body = [](int status, std::string_view message) {
        return dump(failure_json(http_failure(status, message), Dialect::openai));
    };
    const auto access = [log = context.log, is_json = settings.log_json](
                            const AccessRecord& entry) { log_access(*log, is_json, entry); };
    STET_ASSIGN(server->http_, HttpServer::create(http_options(settings), make_handler(context),
                                                  failure_body, access));
    context.connections = [http = server->http_.get()] { return http->connections(); };
    STET_TRY(load_model(options, context));
    STET_TRY(open_slot_directory(context));
    STET_TRY(open_stores(options, context));
    LoopOptions loop;
    loop.slots = settings.parallel;
    loop.waiting_max = settings.queue;
    loop.kept_max = settings.kept_sequences;
    loop.durability = settings.durability == "turn"   ? Durability::turn
                      : settings.durability == "idle" ? Durability::idle
                                                      : Durability::none;
    context.grammars =
        std::make_unique<Grammars>(context.tokenizer(), context.engine->vocabulary());
    context.loop = std::make_unique<EngineLoop>(*context.engine, context.keeper.get(), loop);
    return Result<std::unique_ptr<Server>>(std::move(server));
}

void Server::start() {
    http_->start();
    log_info(*context_->log, fmt::format("{} is ready on {}", context_->model_name, address()));
}

// Nobody new is let in; what runs comes to its end and is committed; then answers that are still on
// their way are written.
void Server::stop(std::chrono::milliseconds patience) {
    if (context_ == nullptr) return;
    if (http_ != nullptr) http_->stop_accepting();
    if (context_->grammars != nullptr) context_->grammars->stop();
    if (context_->loop != nullptr) context_->loop->stop(patience);
    if (context_->keeper != nullptr) context_->keeper->stop();
    if (context_->slot_files != nullptr) context_->slot_files->stop();
    if (http_ != nullptr) http_->stop(std::min(patience, std::chrono::milliseconds(2000)));
    // What they still hold goes back through the transport: it is the last.
    context_->grammars.reset();
    context_->loop.reset();
    context_->slot_files.reset();
    context_->keeper.reset();
    http_.reset();
    context_.reset();
}

std::string Server::address() const {
    const std::string host = address_of(context_->settings.host);
    const bool is_v6 = host.find(':') != std::string::npos;
    return fmt::format(fmt::runtime(is_v6 ? "http://[{}]:{}" : "http://{}:{}"), host,
                       http_->port());
}

}  // namespace stet::server
