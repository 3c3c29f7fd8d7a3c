// Shape::messages: a row of messages, each with a header that says for whom its body is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/chat_format/format.h"
#include "text/chat_format/parts.h"
#include "text/chat_format/scan.h"

namespace stet::text {

class MessageParser {
  public:
    explicit MessageParser(const ChatOptions& options);

    void add(std::string_view text, bool is_final, ChatDelta& delta);

  private:
    enum class Part : std::uint8_t { between, header, body };
    enum class Target : std::uint8_t { content, reasoning, call };

    struct Header {
        Target target = Target::content;
        std::string name;
    };

    bool advance(ChatDelta& delta, bool is_final);  // whether to go on
    bool advance_between(bool is_final);
    bool advance_header(ChatDelta& delta, bool is_final);
    bool advance_body(ChatDelta& delta, bool is_final);
    bool read_header(std::string_view header, ChatDelta& delta);
    std::optional<Header> read_channel(std::string_view header) const;
    std::optional<Header> read_recipient(std::string_view header) const;
    bool may_be_header(std::string_view text) const;
    void add_body(ChatDelta& delta, std::string_view text);
    void end_body(ChatDelta& delta);
    void add_call(ChatDelta& delta);

    ChatOptions options_;
    Part part_;
    Target target_ = Target::content;
    std::string held_;
    std::size_t begin_ = 0;        // what is before it has been given away
    std::size_t header_text_ = 0;  // bytes of the marker that opened the header
    std::string name_;             // of the tool that a body is for
    std::string call_;             // its body
    bool has_body_ = false;        // this body has been begun to be given
    bool has_content_ = false, has_reasoning_ = false;
};

}  // namespace stet::text
