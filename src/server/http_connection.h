// One connection: requests one after the other, each read within limits, handed to the handler as
// an Exchange, and answered before the next is read. Everything of a connection runs on its strand.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/http.h"

namespace stet::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
using tcp = asio::ip::tcp;

// What all connections of a server share.
struct HttpShared {
    HttpOptions options;
    Handler handler;
    FailureBody failure;
    AccessLog log;
    std::atomic<std::uint32_t> connections{0};
    std::atomic<std::uint32_t> exchanges{0};  // requests that are not answered yet
    std::atomic<bool> stopping{false};
};

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(tcp::socket socket, std::shared_ptr<HttpShared> shared,
               std::function<void()> on_closed);
    ~Connection();
    void start();
    void close_if_idle();  // any thread

  private:
    friend class ConnectionExchange;
    struct Piece {
        std::string bytes;
        std::function<void()> on_written;
        bool is_last = false;
    };

    void wait_for_request();
    void read_header();
    void check_header();
    void read_body();
    void refuse(int status, std::string_view message);
    void refuse_read(beast::error_code error, std::string_view part);
    void dispatch();
    Request take_request();

    void watch_client();
    void client_left();

    // The answer, on the strand.
    void answer(Response response);
    void begin_stream(Response head);
    void write_piece(std::string piece, std::function<void()> on_written);
    void end_stream();
    void push(Piece piece);
    void write_next();
    void finish_exchange();
    void linger();
    void drop_rest(std::size_t dropped);
    void close();
    std::string head_text(const Response& response, std::optional<std::uint64_t> length) const;

    beast::tcp_stream stream_;
    std::shared_ptr<HttpShared> shared_;
    std::function<void()> on_closed_;
    beast::flat_buffer buffer_;
    std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
    std::deque<Piece> pieces_;
    bool is_writing_ = false;
    bool is_watching_ = false;

    // The exchange in progress. Calls that carry another number come too late.
    std::uint64_t number_ = 0;
    bool in_exchange_ = false;
    bool has_begun_ = false;  // a head was sent
    bool is_ended_ = false;   // the last piece was pushed
    bool is_chunked_ = false;
    bool is_head_request_ = false;
    bool keep_alive_ = false;
    bool is_http10_ = false;
    bool is_gone_ = false;
    std::function<void()> on_gone_;
    std::string request_id_, method_, path_, note_;
    int status_ = 0;
    std::uint64_t bytes_sent_ = 0;
    std::chrono::steady_clock::time_point began_;
};

}  // namespace stet::server
