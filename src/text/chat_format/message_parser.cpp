#include "text/chat_format/message_parser.h"

#include <algorithm>
#include <utility>

#include "text/chat_format/call_json.h"

namespace stet::text {
namespace {

constexpr std::size_t kHeaderMax = 256;  // bytes
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kRecipient = "<|recipient|>";

std::string_view word_at(std::string_view text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && is_word_character(text[end])) ++end;
    return text.substr(at, end - at);
}

}  // namespace

MessageParser::MessageParser(const ChatOptions& options)
    : options_(options), part_(options.starts_in_header ? Part::header : Part::between) {}

void MessageParser::add(std::string_view text, bool is_final, ChatDelta& delta) {
    held_ += text;
    while (advance(delta, is_final)) {
    }
    held_.erase(0, begin_);
    begin_ = 0;
    if (is_final) end_body(delta);
}

bool MessageParser::advance(ChatDelta& delta, bool is_final) {
    switch (part_) {
        case Part::between:
            return advance_between(is_final);
        case Part::header:
            return advance_header(delta, is_final);
        case Part::body:
            return advance_body(delta, is_final);
    }
    return false;
}

bool MessageParser::advance_between(bool is_final) {
    const std::size_t at = skip_blanks(held_, begin_);
    const std::string_view text = std::string_view(held_).substr(at);
    if (text.empty() && !is_final) return false;
    for (const std::string_view open : options_.format->header_opens) {
        switch (match(text, open)) {
            case Match::partial:
                if (!is_final) return false;
                break;
            case Match::yes:
                begin_ = at;
                header_text_ = open.size();
                part_ = Part::header;
                return true;
            case Match::no:
                break;
        }
    }
    part_ = Part::body;
    return true;
}

// Else it is text of a model that doesn't keep to the form.
bool MessageParser::may_be_header(std::string_view text) const {
    if (text.size() > kHeaderMax) return false;
    if (options_.format->header == HeaderKind::recipient) {
        const auto is_words = [](std::string_view part) {
            return std::all_of(part.begin(), part.end(),
                               [](char c) { return c == '\n' || is_word_character(c); });
        };
        const std::size_t marker = text.find(kRecipient);
        if (marker != std::string_view::npos) {
            if (!is_words(text.substr(0, marker))) return false;
            text.remove_prefix(marker + kRecipient.size());
        }
        const std::size_t cut = std::min(text.find('<'), text.size());
        return kRecipient.starts_with(text.substr(cut)) && is_words(text.substr(0, cut));
    }
    const std::string_view bare = text.substr(skip_blanks(text, 0));
    for (const std::string_view begin :
         {kChannel, std::string_view("to="), std::string_view("assistant"),
          std::string_view("<|constrain|>")}) {
        if (match(bare, begin) != Match::no) return true;
    }
    return false;
}

bool MessageParser::advance_header(ChatDelta& delta, bool is_final) {
    const std::string_view text = std::string_view(held_).substr(begin_);
    const std::string_view close = options_.format->header_close;
    const bool is_marker_part = text.starts_with(kChannel) || text.starts_with(kRecipient);
    const std::size_t skipped = is_marker_part ? 0 : header_text_;
    std::size_t hold = 0;
    const std::string_view near = text.substr(0, skipped + kHeaderMax + close.size());
    const std::size_t end = find_marker(near, skipped, close, &hold);
    const bool is_ended = end != std::string_view::npos;
    const std::string_view header = text.substr(skipped, (is_ended ? end : hold) - skipped);
    if (may_be_header(header)) {
        if (!is_ended && !is_final) return false;
        if (is_ended && read_header(header, delta)) {
            begin_ += end + close.size();
            header_text_ = 0;
            return true;
        }
        if (!is_ended && header_text_ > 0) {  // nothing but markup, cut off
            begin_ = held_.size();
            return false;
        }
    }
    // No header: what was read belongs to the body before it.
    part_ = Part::body;
    return true;
}

bool MessageParser::read_header(std::string_view header, ChatDelta& delta) {
    const auto next = options_.format->header == HeaderKind::channel ? read_channel(header)
                                                                     : read_recipient(header);
    if (!next) return false;
    end_body(delta);
    target_ = next->target;
    name_ = next->name;
    part_ = Part::body;
    return true;
}

std::optional<MessageParser::Header> MessageParser::read_channel(std::string_view header) const {
    constexpr std::string_view kTo = "to=";
    constexpr std::string_view kFunctions = "functions.";
    const std::size_t to = header.find(kTo);
    if (to != std::string_view::npos && options_.has_tools) {
        std::string_view name = word_at(header, to + kTo.size());
        if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
        if (!name.empty() && name != "user" && name != "assistant") {
            return Header{Target::call, std::string(name)};
        }
    }
    const std::size_t channel = header.find(kChannel);
    const bool is_analysis = channel != std::string_view::npos &&
                             word_at(header, channel + kChannel.size()) == "analysis";
    return Header{is_analysis ? Target::reasoning : Target::content, ""};
}

std::optional<MessageParser::Header> MessageParser::read_recipient(std::string_view header) const {
    const std::size_t marker = header.rfind(kRecipient);
    const std::string_view name = without_blanks(
        marker == std::string_view::npos ? header : header.substr(marker + kRecipient.size()));
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_word_character)) {
        return std::nullopt;
    }
    if (name == "all") return Header{Target::content, ""};
    if (!options_.has_tools) return std::nullopt;
    return Header{Target::call, std::string(name)};
}

bool MessageParser::advance_body(ChatDelta& delta, bool is_final) {
    const std::string_view text = held_;
    // Past a marker that turned out to open no header.
    const std::size_t from = std::min(begin_ + std::exchange(header_text_, 0), text.size());
    std::size_t hold = 0;
    const auto [end, closed] = find_first_marker(text, from, options_.format->body_closes, &hold);
    if (end == std::string_view::npos) {
        const std::size_t ready = is_final ? text.size() : hold;
        add_body(delta, text.substr(begin_, ready - begin_));
        begin_ = ready;
        return false;
    }
    add_body(delta, text.substr(begin_, end - begin_));
    const std::string_view open = closed.substr(closed.starts_with('\n') ? 1 : 0);
    begin_ = end + closed.size() - open.size();
    const auto& opens = options_.format->header_opens;
    if (std::find(opens.begin(), opens.end(), open) != opens.end()) {
        header_text_ = open.size();
        part_ = Part::header;
        return true;
    }
    begin_ += open.size();
    end_body(delta);
    part_ = Part::between;
    return true;
}

void MessageParser::add_body(ChatDelta& delta, std::string_view text) {
    if (text.empty()) return;
    if (target_ == Target::call) {
        call_ += text;
        return;
    }
    const bool is_reasoning = target_ == Target::reasoning;
    std::string& out = is_reasoning ? delta.reasoning : delta.content;
    bool& has_some = is_reasoning ? has_reasoning_ : has_content_;
    if (!has_body_ && has_some) out += '\n';
    has_body_ = has_some = true;
    out += text;
}

void MessageParser::end_body(ChatDelta& delta) {
    if (target_ == Target::call) add_call(delta);
    target_ = Target::content;
    has_body_ = false;
}

void MessageParser::add_call(ChatDelta& delta) {
    std::string body = std::exchange(call_, {});
    auto arguments = json_object(body);
    if (!arguments && without_blanks(body).empty()) arguments = "{}";
    if (!arguments && name_ == "python") {
        arguments = "{\"code\":" + json_string(without_blanks(body)) + "}";
    }
    if (arguments) {
        delta.calls.push_back({"", name_, std::move(*arguments)});
        return;
    }
    target_ = Target::content;
    has_body_ = false;
    add_body(delta, body);
}

}  // namespace stet::text
