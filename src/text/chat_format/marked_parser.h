// Shape::marked: content in which markers open reasoning and calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/chat_format/call_reader.h"
#include "text/chat_format/format.h"
#include "text/chat_format/parts.h"

namespace stet::text {

class MarkedParser {
  public:
    explicit MarkedParser(const ChatOptions& options);

    void add(std::string_view text, bool is_final, ChatDelta& delta);

  private:
    enum class Part : std::uint8_t { start, reasoning, content, section, call };
    enum class Kind : std::uint8_t { none, silent, section, section_close, call, call_close };
    struct Found {
        Match match = Match::no;
        Kind kind = Kind::none;
        std::size_t length = 0;
        const CallSyntax* syntax = nullptr;
    };

    bool advance(ChatDelta& delta, bool is_final);  // whether to go on
    bool advance_start(bool is_final);
    bool advance_reasoning(ChatDelta& delta, bool is_final);
    bool advance_content(ChatDelta& delta, bool is_final);
    bool advance_section(ChatDelta& delta, bool is_final);
    bool advance_call(ChatDelta& delta, bool is_final);
    bool begin_unmarked_call(std::size_t at);
    bool leave_section(std::size_t at, ChatDelta& delta);
    void begin_section(std::size_t at);
    void begin_call(const CallSyntax* syntax, std::size_t at);
    void add_content(ChatDelta& delta, std::size_t end);
    Match bare_json(std::size_t at) const;
    // What begins at `at` of those that may come in content, or inside of a section. The longest.
    Found find(std::size_t at, bool is_in_section) const;

    ChatOptions options_;
    Part part_;
    std::string held_;
    std::size_t begin_ = 0;  // what is before it has been given away
    std::size_t scan_ = 0;   // in a section: what is before it has been read
    std::string_view reasoning_close_;
    bool has_reasoning_ = false;     // some has been given
    bool trims_ = false;             // blanks between parts belong to neither
    bool is_bare_ = false;           // calls without any marker
    std::size_t section_calls_ = 0;  // of this section
    bool opens_[256] = {};           // first bytes of markers in content
    CallReader reader_;
};

}  // namespace stet::text
