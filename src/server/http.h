// HTTP as the routes see it: a Request that was read whole within limits, and an Exchange through
// which the answer goes, at once or as a stream. The transport (Boost.Beast) stays behind it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stet/status.h"

namespace stet::server {

struct HttpOptions {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;  // 0: any free one
    std::uint32_t threads = 2;
    std::uint32_t header_bytes_max = 16U << 10;
    std::uint64_t body_bytes_max = 16U << 20;
    std::uint32_t connections_max = 512;
    std::uint32_t connections_per_address_max = 256;
    std::chrono::seconds header_timeout{10};  // from the first byte to the end of the header
    std::chrono::seconds body_timeout{60};
    std::chrono::seconds idle_timeout{60};   // between requests
    std::chrono::seconds write_timeout{60};  // of one write
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
    std::string id;      // goes into logs and the X-Request-Id header
    std::string method;  // "GET", "POST", "DELETE", "OPTIONS", ...
    std::string path;    // without the query, percent escapes resolved
    std::vector<std::pair<std::string, std::string>> query;
    Headers headers;  // names in lower case
    std::string body;

    std::string_view header(std::string_view name) const;       // "" when missing
    std::string_view query_value(std::string_view name) const;  // "" when missing
};

struct Response {
    int status = 200;
    std::string content_type = "application/json; charset=utf-8";
    std::string body;
    Headers headers;
};

// One request's way back to its client. Thread rules: any thread; calls are put in order as they
// come. After the client left, everything is dropped without a word.
class Exchange {
  public:
    virtual ~Exchange() = default;
    virtual void send(Response response) = 0;
    // A stream: begin, any number of writes, end. `on_written` is called on an I/O thread when the
    // piece is on its way (or dropped); whoever writes counts these to bound what is waiting.
    virtual void begin(Response head) = 0;
    virtual void write(std::string piece, std::function<void()> on_written) = 0;
    virtual void end() = 0;
    // Called once, on an I/O thread, if the client leaves before the answer is complete; at once
    // when it is gone already.
    virtual void on_gone(std::function<void()> callback) = 0;
    // Runs `call` on an I/O thread; calls of one exchange run one after the other.
    virtual void post(std::function<void()> call) = 0;
    // For the log: what the answer was about; not shown to the client.
    virtual void note(std::string what) = 0;
};

using Handler = std::function<void(Request, std::shared_ptr<Exchange>)>;
// Answers failures that are found before there is a request (too large, not HTTP, too slow).
using FailureBody = std::function<std::string(int http_status, std::string_view message)>;
// One call for each request that was answered.
struct AccessRecord {
    std::string_view request_id, method, path, note;
    int status;
    double ms;
    std::uint64_t bytes;
};
using AccessLog = std::function<void(const AccessRecord&)>;

class HttpServer {
  public:
    virtual ~HttpServer() = default;  // stops
    // Binds at once: io or conflict names the address when it is taken.
    static Result<std::unique_ptr<HttpServer>> create(const HttpOptions& options, Handler handler,
                                                      FailureBody failure, AccessLog log);
    virtual std::uint16_t port() const = 0;
    virtual void start() = 0;
    virtual void stop_accepting() = 0;
    virtual std::uint32_t connections() const = 0;
    // Waits until open exchanges are answered, `patience` at most, then closes everything.
    virtual void stop(std::chrono::milliseconds patience) = 0;
};

}  // namespace stet::server
