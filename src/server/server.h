// The server as a whole: loads the model, opens the stores, listens, and shuts down in the order
// that loses nothing.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "server/settings.h"
#include "stet/status.h"

namespace stet::server {

struct Context;
class HttpServer;

struct ServerOptions {
    Settings settings;
    std::filesystem::path store_directory;  // when the settings name none
    std::filesystem::path cache_directory;  // of fingerprints
};

class Server {
  public:
    // Everything that can be wrong is found here: settings that contradict each other, the model,
    // the address, directories.
    static Result<std::unique_ptr<Server>> create(const ServerOptions& options);
    ~Server();

    void start();
    // Requests that run come to their end (for `patience` at most) and are committed.
    void stop(std::chrono::milliseconds patience);
    std::string address() const;  // "http://127.0.0.1:8080"

  private:
    Server();
    std::unique_ptr<Context> context_;
    std::unique_ptr<HttpServer> http_;
};

}  // namespace stet::server
