#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/try.h"
#include "server/http.h"
#include "server/http_connection.h"
#include "server/http_text.h"

namespace stet::server {
namespace {

class BeastServer : public HttpServer {
  public:
    BeastServer(const HttpOptions& options, Handler handler, FailureBody failure, AccessLog log)
        : shared_(std::make_shared<HttpShared>()), acceptor_(io_), pause_(io_) {
        shared_->options = options;
        shared_->handler = std::move(handler);
        shared_->failure = std::move(failure);
        shared_->log = std::move(log);
    }
    ~BeastServer() override { stop(std::chrono::milliseconds(0)); }

    Status bind() {
        const HttpOptions& options = shared_->options;
        beast::error_code error;
        const auto address = asio::ip::make_address(options.host, error);
        if (error) {
            return Status(Code::invalid_argument,
                          fmt::format("'{}' is not an IP address to listen on", options.host));
        }
        const tcp::endpoint endpoint(address, options.port);
        acceptor_.open(endpoint.protocol(), error);
        if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
        if (!error) acceptor_.bind(endpoint, error);
        if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
        if (error) {
            const Code code = error == asio::error::address_in_use ? Code::conflict : Code::io;
            return Status(code, fmt::format("cannot listen on {} port {}: {}", options.host,
                                            options.port, error.message()));
        }
        return {};
    }

    std::uint16_t port() const override { return acceptor_.local_endpoint().port(); }
    std::uint32_t connections() const override { return shared_->connections; }

    void start() override {
        accept();
        for (std::uint32_t i = 0; i < std::max(1U, shared_->options.threads); ++i) {
            threads_.emplace_back([this] { io_.run(); });
        }
    }

    void stop_accepting() override {
        asio::post(io_, [this] {
            beast::error_code ignored;
            acceptor_.close(ignored);
        });
    }

    void stop(std::chrono::milliseconds patience) override {
        shared_->stopping = true;
        stop_accepting();
        const auto deadline = std::chrono::steady_clock::now() + patience;
        while (shared_->exchanges > 0 && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        io_.stop();
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

  private:
    void accept() {
        acceptor_.async_accept(
            asio::make_strand(io_), [this](beast::error_code error, tcp::socket socket) {
                if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
                if (error) {  // most likely out of descriptors: wait until some are closed
                    pause_.expires_after(std::chrono::milliseconds(50));
                    return pause_.async_wait([this](beast::error_code stopped) {
                        if (!stopped) accept();
                    });
                }
                welcome(std::move(socket));
                accept();
            });
    }

    void welcome(tcp::socket socket) {
        beast::error_code error;
        const std::string address = socket.remote_endpoint(error).address().to_string();
        const HttpOptions& options = shared_->options;
        {
            const std::lock_guard lock(mutex_);
            if (shared_->connections >= options.connections_max ||
                by_address_[address] >= options.connections_per_address_max) {
                return;  // closed by its destructor; who is connected is served on
            }
            ++by_address_[address];
        }
        const auto closed = [this, address] {
            const std::lock_guard lock(mutex_);
            if (--by_address_[address] == 0) by_address_.erase(address);
        };
        std::make_shared<Connection>(std::move(socket), shared_, closed)->start();
    }

    std::shared_ptr<HttpShared> shared_;
    std::mutex mutex_;
    std::map<std::string, std::uint32_t> by_address_;
    asio::io_context io_;
    tcp::acceptor acceptor_;
    asio::steady_timer pause_;
    std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::create(const HttpOptions& options, Handler handler,
                                                       FailureBody failure, AccessLog log) {
    auto server = std::make_unique<BeastServer>(options, std::move(handler), std::move(failure),
                                                std::move(log));
    STET_TRY(server->bind());
    return Result<std::unique_ptr<HttpServer>>(std::move(server));
}

}  // namespace stet::server
