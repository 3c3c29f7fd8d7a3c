#include "server/http_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include "server/http_text.h"

namespace stet::server {

namespace http = beast::http;

// The Exchange that a handler holds. Outlives the connection's interest in it without harm.
class ConnectionExchange : public Exchange {
  public:
    ConnectionExchange(std::shared_ptr<Connection> connection, std::uint64_t number)
        : connection_(std::move(connection)), number_(number) {}

    // A handler that forgets its client must not leave it waiting.
    ~ConnectionExchange() override {
        on_strand([](Connection& connection) {
            if (connection.is_ended_) return;
            if (connection.has_begun_) {
                connection.keep_alive_ = false;
                connection.end_stream();
            } else {
                connection.refuse(500, "the request was dropped");
            }
        });
    }

    void send(Response response) override {
        on_strand([response = std::move(response)](Connection& connection) mutable {
            connection.answer(std::move(response));
        });
    }
    void begin(Response head) override {
        on_strand([head = std::move(head)](Connection& connection) mutable {
            connection.begin_stream(std::move(head));
        });
    }
    void write(std::string piece, std::function<void()> on_written) override {
        asio::post(connection_->stream_.get_executor(),
                   [connection = connection_, number = number_, piece = std::move(piece),
                    on_written = std::move(on_written)]() mutable {
                       if (connection->in_exchange_ && connection->number_ == number) {
                           connection->write_piece(std::move(piece), std::move(on_written));
                       } else if (on_written) {
                           on_written();
                       }
                   });
    }
    void end() override {
        on_strand([](Connection& connection) { connection.end_stream(); });
    }
    void on_gone(std::function<void()> callback) override {
        on_strand([callback = std::move(callback)](Connection& connection) mutable {
            if (connection.is_gone_) return callback();
            connection.on_gone_ = std::move(callback);
        });
    }
    void post(std::function<void()> call) override {
        asio::post(connection_->stream_.get_executor(), std::move(call));
    }
    void note(std::string what) override {
        on_strand([what = std::move(what)](Connection& connection) mutable {
            connection.note_ = std::move(what);
        });
    }

  private:
    template <typename Call>
    void on_strand(Call call) {
        asio::post(connection_->stream_.get_executor(),
                   [connection = connection_, number = number_, call = std::move(call)]() mutable {
                       if (connection->in_exchange_ && connection->number_ == number) {
                           call(*connection);
                       }
                   });
    }

    std::shared_ptr<Connection> connection_;
    std::uint64_t number_;
};

Connection::Connection(tcp::socket socket, std::shared_ptr<HttpShared> shared,
                       std::function<void()> on_closed)
    : stream_(std::move(socket)), shared_(std::move(shared)), on_closed_(std::move(on_closed)) {
    ++shared_->connections;
}

Connection::~Connection() {
    --shared_->connections;
    on_closed_();
}

void Connection::start() {
    beast::error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    asio::dispatch(stream_.get_executor(),
                   [self = shared_from_this()] { self->wait_for_request(); });
}

void Connection::close_if_idle() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
        if (!self->in_exchange_) self->close();
    });
}

// Closing while bytes of the client are unread would take the answer away from it: they are read
// and dropped for a moment.
void Connection::linger() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    constexpr std::chrono::seconds kLinger(2);
    stream_.expires_after(kLinger);
    drop_rest(0);
}

void Connection::drop_rest(std::size_t dropped) {
    constexpr std::size_t kDroppedMax = 8U << 20U;
    if (is_gone_ || dropped > kDroppedMax) return close();
    constexpr std::size_t kReadBytes = 65536;
    buffer_.clear();
    stream_.async_read_some(
        buffer_.prepare(kReadBytes),
        [self = shared_from_this(), dropped](beast::error_code error, std::size_t count) {
            if (error) return self->close();
            self->drop_rest(dropped + count);
        });
}

void Connection::close() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.socket().close(ignored);
}

// --- Reading ---

// The clock of a request starts with its first byte.
void Connection::wait_for_request() {
    if (shared_->stopping) return close();
    if (buffer_.size() > 0) return read_header();
    stream_.expires_after(shared_->options.idle_timeout);
    constexpr std::size_t kReadBytes = 4096;
    stream_.async_read_some(
        buffer_.prepare(kReadBytes),
        [self = shared_from_this()](beast::error_code error, std::size_t count) {
            if (error) return self->close();
            self->buffer_.commit(count);
            self->read_header();
        });
}

void Connection::read_header() {
    parser_.emplace();
    parser_->header_limit(shared_->options.header_bytes_max);
    parser_->body_limit(shared_->options.body_bytes_max);
    stream_.expires_after(shared_->options.header_timeout);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](beast::error_code error, std::size_t) {
                                if (error) return self->refuse_read(error, "header");
                                self->check_header();
                            });
}

void Connection::check_header() {
    constexpr std::size_t kHeadersMax = 100;
    const auto& head = parser_->get();
    std::size_t count = 0;
    for (auto field = head.begin(); field != head.end(); ++field) ++count;
    if (count > kHeadersMax) {
        return refuse(431, fmt::format("the request has more than {} headers", kHeadersMax));
    }
    if (!beast::iequals(head[http::field::expect], "100-continue")) return read_body();
    auto text = std::make_shared<std::string>("HTTP/1.1 100 Continue\r\n\r\n");
    asio::async_write(stream_, asio::buffer(*text),
                      [self = shared_from_this(), text](beast::error_code error, std::size_t) {
                          if (error) return self->close();
                          self->read_body();
                      });
}

void Connection::read_body() {
    stream_.expires_after(shared_->options.body_timeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                         if (error) return self->refuse_read(error, "body");
                         self->dispatch();
                     });
}

void Connection::refuse_read(beast::error_code error, std::string_view part) {
    const HttpOptions& options = shared_->options;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
        return refuse(431,
                      fmt::format("the header is larger than {} bytes", options.header_bytes_max));
    }
    if (error == http::error::body_limit) {
        return refuse(413, fmt::format("the body is larger than {} bytes", options.body_bytes_max));
    }
    if (error == beast::error::timeout) {
        return close();  // the stream was closed when its time was over
    }
    if (error.category() == make_error_code(http::error::bad_target).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
        return refuse(400, fmt::format("the {} is not valid HTTP: {}", part, error.message()));
    }
    close();
}

// An answer to what never became a request.
void Connection::refuse(int status, std::string_view message) {
    if (!in_exchange_) {
        in_exchange_ = true;
        ++number_;
        ++shared_->exchanges;
        has_begun_ = is_ended_ = is_head_request_ = is_chunked_ = is_gone_ = false;
        began_ = std::chrono::steady_clock::now();
        request_id_ = new_request_id();
        method_ = path_ = "-";
        note_.clear();
        bytes_sent_ = 0;
    }
    keep_alive_ = false;
    Response response;
    response.status = status;
    response.body = shared_->failure(status, message);
    answer(std::move(response));
}

Request Connection::take_request() {
    auto message = parser_->release();
    Request request;
    const auto target = std::string_view(message.target().data(), message.target().size());
    split_target(target, request);
    request.method = std::string(message.method_string());
    for (const auto& field : message) {
        request.headers.emplace_back(lower_case(std::string_view(field.name_string())),
                                     std::string(field.value()));
    }
    const std::string_view wanted = request.header("x-request-id");
    request.id = is_plain_id(wanted) ? std::string(wanted) : new_request_id();
    request.body = std::move(message.body());
    keep_alive_ = message.keep_alive();
    is_http10_ = message.version() < 11;
    is_head_request_ = request.method == "HEAD";
    return request;
}

void Connection::dispatch() {
    stream_.expires_never();
    Request request = take_request();
    parser_.reset();
    in_exchange_ = true;
    ++number_;
    ++shared_->exchanges;
    has_begun_ = is_ended_ = is_chunked_ = is_gone_ = false;
    began_ = std::chrono::steady_clock::now();
    request_id_ = request.id;
    method_ = request.method;
    path_ = request.path;
    note_.clear();
    bytes_sent_ = 0;
    auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), number_);
    watch_client();
    shared_->handler(std::move(request), std::move(exchange));
}

// --- A client that leaves ---

// Looks for the end of the stream without taking bytes: a pipelined request stays where it is.
void Connection::watch_client() {
    if (is_watching_ || !stream_.socket().is_open()) return;
    is_watching_ = true;
    stream_.socket().async_wait(
        tcp::socket::wait_read, [self = shared_from_this()](beast::error_code error) {
            self->is_watching_ = false;
            if (!self->in_exchange_) return;
            // A watch of the request before was called off: this one has none yet.
            if (error) return self->watch_client();
            char byte = 0;
            const auto count =
                ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (count > 0) return;  // the next request is here already
            if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
                return self->watch_client();
            }
            self->client_left();
        });
}

void Connection::client_left() {
    if (is_gone_) return;
    is_gone_ = true;
    keep_alive_ = false;
    if (on_gone_) std::exchange(on_gone_, nullptr)();
}

// --- Writing ---

std::string Connection::head_text(const Response& response,
                                  std::optional<std::uint64_t> length) const {
    std::string text =
        fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
    text += fmt::format("Server: stet\r\nX-Request-Id: {}\r\n", request_id_);
    if (!response.content_type.empty()) {
        text += fmt::format("Content-Type: {}\r\n", response.content_type);
    }
    for (const auto& [name, value] : response.headers)
        text += fmt::format("{}: {}\r\n", name, value);
    if (length) text += fmt::format("Content-Length: {}\r\n", *length);
    if (is_chunked_) text += "Transfer-Encoding: chunked\r\n";
    text += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return text;
}

void Connection::answer(Response response) {
    if (has_begun_) return;
    has_begun_ = is_ended_ = true;
    if (shared_->stopping) keep_alive_ = false;
    status_ = response.status;
    std::string bytes = head_text(response, response.body.size());
    if (!is_head_request_) bytes += response.body;
    push({std::move(bytes), nullptr, true});
}

void Connection::begin_stream(Response head) {
    if (has_begun_) return;
    has_begun_ = true;
    is_chunked_ = !is_http10_ && !is_head_request_;
    if (!is_chunked_) keep_alive_ = false;
    status_ = head.status;
    push({head_text(head, {}), nullptr, false});
}

void Connection::write_piece(std::string piece, std::function<void()> on_written) {
    if (piece.empty() || is_gone_ || is_head_request_ || is_ended_) {
        if (on_written) on_written();
        return;
    }
    if (is_chunked_) piece = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    push({std::move(piece), std::move(on_written), false});
}

void Connection::end_stream() {
    if (is_ended_ || !has_begun_) return;
    is_ended_ = true;
    push({is_chunked_ ? "0\r\n\r\n" : "", nullptr, true});
}

void Connection::push(Piece piece) {
    pieces_.push_back(std::move(piece));
    if (!is_writing_) write_next();
}

void Connection::write_next() {
    while (!pieces_.empty() && (is_gone_ || pieces_.front().bytes.empty())) {
        Piece piece = std::move(pieces_.front());
        pieces_.pop_front();
        if (piece.on_written) piece.on_written();
        if (piece.is_last) return finish_exchange();
    }
    if (pieces_.empty()) return;
    is_writing_ = true;
    stream_.expires_after(shared_->options.write_timeout);
    asio::async_write(stream_, asio::buffer(pieces_.front().bytes),
                      [self = shared_from_this()](beast::error_code error, std::size_t count) {
                          self->is_writing_ = false;
                          self->stream_.expires_never();
                          self->bytes_sent_ += count;
                          if (error) self->client_left();
                          Piece piece = std::move(self->pieces_.front());
                          self->pieces_.pop_front();
                          if (piece.on_written) piece.on_written();
                          if (piece.is_last) return self->finish_exchange();
                          self->write_next();
                      });
}

void Connection::finish_exchange() {
    const auto took = std::chrono::steady_clock::now() - began_;
    if (shared_->log) {
        shared_->log({request_id_, method_, path_, note_, is_gone_ ? 499 : status_,
                      std::chrono::duration<double, std::milli>(took).count(), bytes_sent_});
    }
    in_exchange_ = false;
    on_gone_ = nullptr;
    --shared_->exchanges;
    if (!keep_alive_) return linger();
    beast::error_code ignored;
    if (is_watching_) stream_.socket().cancel(ignored);
    wait_for_request();
}

}  // namespace stet::server
