// Reads one call (or one JSON list of calls) of a growing text. Every byte is looked at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format/call_literals.h"
#include "text/chat_format/format.h"
#include "text/chat_format/parts.h"
#include "text/chat_format/scan.h"

namespace stet::text {

class CallReader {
  public:
    enum class State : std::uint8_t { more, done, bad };

    CallReader() = default;
    CallReader(const CallSyntax* syntax, std::shared_ptr<const ToolTypes> types)
        : syntax_(syntax), types_(std::move(types)) {}

    // `text` goes on from what it was at the last call, and begins after the opening marker.
    // `is_final`: nothing comes after it.
    State advance(std::string_view text, bool is_final);
    std::size_t read_bytes() const { return at_; }  // once done or bad
    std::vector<ToolCall> take_calls() { return std::move(calls_); }

  private:
    enum class Phase : std::uint8_t {
        begin,
        id,
        name,
        name_close,
        name_attributes,
        arguments,
        tags,
        key,
        key_attributes,
        value,
        nested_value,
        json,
        literal,
        code,
    };
    enum class Step : std::uint8_t { next, more, done, bad };

    Step step(std::string_view text, bool is_final);
    Step begin(std::string_view text, bool is_final);
    Step read_id(std::string_view text);
    Step read_name(std::string_view text, bool is_final);
    Step read_name_close(std::string_view text, bool is_final);
    Step read_name_attributes(std::string_view text);
    Step begin_arguments(std::string_view text, bool is_final);
    Step read_tags(std::string_view text, bool is_final);
    Step read_key(std::string_view text);
    Step read_key_attributes(std::string_view text);
    Step read_value(std::string_view text);
    Step read_nested_value(std::string_view text);
    Step read_json(std::string_view text);
    Step read_literal(std::string_view text);
    Step read_code(std::string_view text, bool is_final);
    Step bad_at_mark();
    Step until(std::string_view text, std::string_view marker, std::size_t bytes_max,
               std::string_view* found);
    template <typename Scanner>
    Step to_end(std::string_view text, Scanner& scanner, std::string_view* found);
    // Bad without.
    Step finish(std::optional<std::string> arguments);
    Step finish(std::optional<std::vector<ToolCall>> calls);
    void add_argument(std::string_view value);
    bool has_nested_values() const { return syntax_->value_close.ends_with("*>"); }

    const CallSyntax* syntax_ = nullptr;
    std::shared_ptr<const ToolTypes> types_;
    Phase phase_ = Phase::begin;
    std::size_t at_ = 0;    // read so far
    std::size_t mark_ = 0;  // where the part that is being read begins
    std::string name_, id_, key_, attributes_;
    std::string members_;  // of the arguments' object
    JsonScanner scanner_;
    LiteralScanner literal_{Quotes::python};
    int depth_ = 0;  // of nested values
    std::vector<ToolCall> calls_;
};

}  // namespace stet::text
