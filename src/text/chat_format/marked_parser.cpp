#include "text/chat_format/marked_parser.h"

#include <algorithm>
#include <array>

namespace stet::text {
namespace {

constexpr CallSyntax kBareJson{};
constexpr std::string_view kBetweenCalls = " \t\r\n,;";

bool is_name_begin(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool begins_body(CallBody body, char c) {
    switch (body) {
        case CallBody::json:
        case CallBody::keyed:
            return c == '{' || c == '[';
        case CallBody::python:
            return c == '[';
        case CallBody::marked:
        case CallBody::arguments:
        case CallBody::code:
            return is_name_begin(c);
    }
    return false;
}

// "functions.NAME:0" of Kimi is a name and an id.
void number_id(ToolCall& call) {
    constexpr std::string_view kPrefix = "functions.";
    const std::size_t colon = call.name.rfind(':');
    if (colon == std::string::npos || colon + 1 == call.name.size()) return;
    if (call.name.find_first_not_of("0123456789", colon + 1) != std::string::npos) return;
    call.id = call.name;
    call.name.resize(colon);
    if (call.name.starts_with(kPrefix)) call.name.erase(0, kPrefix.size());
}

}  // namespace

MarkedParser::MarkedParser(const ChatOptions& options)
    : options_(options),
      part_(options.reasoning_close.empty() ? Part::start : Part::reasoning),
      reasoning_close_(options.reasoning_close) {
    const auto open = [this](std::string_view marker) {
        if (!marker.empty()) opens_[static_cast<unsigned char>(marker.front())] = true;
    };
    for (const auto marker : options_.format->silent) open(marker);
    if (!options_.has_tools) return;
    for (const Pair& pair : options_.format->sections) open(pair.open);
    for (const CallSyntax& syntax : options_.format->calls) open(syntax.open);
}

void MarkedParser::add(std::string_view text, bool is_final, ChatDelta& delta) {
    held_ += text;
    while (advance(delta, is_final)) {
    }
    if (part_ == Part::call) return;  // the reader counts from the begin
    held_.erase(0, begin_);
    scan_ -= std::min(scan_, begin_);
    begin_ = 0;
}

bool MarkedParser::advance(ChatDelta& delta, bool is_final) {
    switch (part_) {
        case Part::start:
            return advance_start(is_final);
        case Part::reasoning:
            return advance_reasoning(delta, is_final);
        case Part::content:
            return advance_content(delta, is_final);
        case Part::section:
            return advance_section(delta, is_final);
        case Part::call:
            return advance_call(delta, is_final);
    }
    return false;
}

// The first thing that is no blank says what it is.
bool MarkedParser::advance_start(bool is_final) {
    const std::size_t at = skip_blanks(held_, begin_);
    const std::string_view text = std::string_view(held_).substr(at);
    bool may_become = text.empty();
    for (const Pair& pair : options_.format->reasoning) {
        const Match open = match(text, pair.open);
        const Match close = match(text, pair.close);
        may_become = may_become || open == Match::partial || close == Match::partial;
        if (open == Match::yes) {
            begin_ = at + pair.open.size();
            reasoning_close_ = pair.close;
            part_ = Part::reasoning;
            return true;
        }
        if (close == Match::yes) {  // the answer of a model that was told not to think
            begin_ = at + pair.close.size();
            trims_ = true;
            part_ = Part::content;
            return true;
        }
    }
    if (may_become && !is_final) return false;
    part_ = Part::content;
    if (!options_.has_tools || !options_.format->has_bare_json || text.empty()) return true;
    const Match bare = bare_json(at);
    if (bare == Match::partial && !is_final) {
        part_ = Part::start;
        return false;
    }
    if (bare == Match::yes) {
        is_bare_ = true;
        section_calls_ = 0;
        begin_call(&kBareJson, at);
    }
    return true;
}

// Whether JSON that begins here can be a call, from its first key.
Match MarkedParser::bare_json(std::size_t at) const {
    constexpr std::array<std::string_view, 8> kKeys = {
        "\"name\"",      "\"type\"",       "\"function\"",  "\"id\"",
        "\"arguments\"", "\"parameters\"", "\"tool_name\"", "\"tool_call_id\""};
    const std::string_view text = held_;
    if (text[at] == '[') at = skip_blanks(text, at + 1);
    if (at == text.size()) return Match::partial;
    if (text[at] != '{') return Match::no;
    const std::string_view rest = text.substr(skip_blanks(text, at + 1));
    Match result = Match::no;
    for (const std::string_view key : kKeys) {
        const Match found = match(rest, key);
        if (found == Match::yes) return found;
        if (found == Match::partial) result = found;
    }
    return result;
}

bool MarkedParser::advance_reasoning(ChatDelta& delta, bool is_final) {
    std::size_t hold = 0;
    const std::size_t end = find_marker(held_, begin_, reasoning_close_, &hold);
    const bool is_ended = end != std::string::npos;
    const std::size_t ready = is_ended ? end : is_final ? held_.size() : hold;
    std::string_view text = std::string_view(held_).substr(begin_, ready - begin_);
    if (!has_reasoning_) text.remove_prefix(skip_blanks(text, 0));
    const std::string_view certain = text.substr(0, text.find_last_not_of(kBlanks) + 1);
    delta.reasoning += certain;
    has_reasoning_ = has_reasoning_ || !certain.empty();
    begin_ = ready - (text.size() - certain.size());
    if (!is_ended) {
        if (is_final) begin_ = held_.size();
        return false;
    }
    begin_ = end + reasoning_close_.size();
    trims_ = true;
    part_ = Part::content;
    return true;
}

MarkedParser::Found MarkedParser::find(std::size_t at, bool is_in_section) const {
    const std::string_view text = std::string_view(held_).substr(at);
    Found best;
    bool is_partial = false;
    const auto consider = [&](std::string_view marker, Kind kind, const CallSyntax* syntax) {
        if (marker.empty()) return;
        const Match found = match(text, marker);
        if (found == Match::partial) is_partial = true;
        if (found != Match::yes || marker.size() <= best.length) return;
        best = {found, kind, marker.size(), syntax};
    };
    const ChatFormat& format = *options_.format;
    if (!is_in_section) {
        for (const auto marker : format.silent) consider(marker, Kind::silent, nullptr);
    }
    if (options_.has_tools) {
        for (const Pair& pair : format.sections) {
            consider(pair.open, Kind::section, nullptr);
            if (is_in_section) consider(pair.close, Kind::section_close, nullptr);
        }
        for (const CallSyntax& syntax : format.calls) {
            consider(syntax.open, Kind::call, &syntax);
            if (is_in_section) consider(syntax.close, Kind::call_close, nullptr);
        }
    }
    if (is_partial) best.match = Match::partial;
    return best;
}

bool MarkedParser::advance_content(ChatDelta& delta, bool is_final) {
    if (trims_) begin_ = skip_blanks(held_, begin_);
    for (std::size_t i = begin_; i < held_.size(); ++i) {
        if (!opens_[static_cast<unsigned char>(held_[i])]) continue;
        const Found found = find(i, false);
        if (found.match == Match::partial && !is_final) {
            add_content(delta, i);
            return false;
        }
        if (found.kind == Kind::none) continue;
        add_content(delta, i);
        if (found.kind == Kind::silent) {
            begin_ = i + found.length;
            return true;
        }
        section_calls_ = 0;
        is_bare_ = false;
        if (found.kind == Kind::call) {
            begin_call(found.syntax, i + found.length);
        } else {
            begin_section(i + found.length);
        }
        return true;
    }
    add_content(delta, held_.size());
    return false;
}

void MarkedParser::add_content(ChatDelta& delta, std::size_t end) {
    if (end > begin_) trims_ = false;
    delta.content.append(held_, begin_, end - begin_);
    begin_ = end;
}

void MarkedParser::begin_section(std::size_t at) {
    scan_ = at;
    part_ = Part::section;
}

void MarkedParser::begin_call(const CallSyntax* syntax, std::size_t at) {
    scan_ = at;
    reader_ = CallReader(syntax, options_.types);
    part_ = Part::call;
}

// Between calls: the next one, or the end of their section, or something that is neither.
bool MarkedParser::advance_section(ChatDelta& delta, bool is_final) {
    const std::size_t at = skip_blanks(held_, scan_, kBetweenCalls);
    if (at == held_.size()) return is_final && leave_section(at, delta);
    const Found found = find(at, true);
    if (found.match == Match::partial) {
        if (!is_final) return false;
        if (section_calls_ > 0) begin_ = held_.size();  // an end that was cut off
        return leave_section(held_.size(), delta);
    }
    switch (found.kind) {
        case Kind::section:
            scan_ = at + found.length;
            return true;
        case Kind::call:
            begin_call(found.syntax, at + found.length);
            return true;
        case Kind::call_close:
            scan_ = at + found.length;
            if (section_calls_ > 0) begin_ = scan_;
            return true;
        case Kind::section_close:
            if (section_calls_ > 0) begin_ = at + found.length;
            return leave_section(at + found.length, delta);
        default:
            break;
    }
    if (begin_unmarked_call(at)) return true;
    return leave_section(at, delta);
}

bool MarkedParser::begin_unmarked_call(std::size_t at) {
    const char c = held_[at];
    if (is_bare_ && begins_body(kBareJson.body, c)) {
        begin_call(&kBareJson, at);
        return true;
    }
    for (const CallSyntax& syntax : options_.format->calls) {
        if (!syntax.open.empty()) continue;
        if (!begins_body(syntax.body, c)) continue;
        begin_call(&syntax, at);
        return true;
    }
    return false;
}

// Content goes on. A section without a call was none: it is content up to `at`.
bool MarkedParser::leave_section(std::size_t at, ChatDelta& delta) {
    if (section_calls_ == 0) {
        add_content(delta, at);
    } else {
        trims_ = true;
    }
    part_ = Part::content;
    return true;
}

bool MarkedParser::advance_call(ChatDelta& delta, bool is_final) {
    switch (reader_.advance(std::string_view(held_).substr(scan_), is_final)) {
        case CallReader::State::more:
            return false;
        case CallReader::State::bad:
            if (section_calls_ > 0) begin_ = skip_blanks(held_, begin_);
            add_content(delta, scan_ + reader_.read_bytes());
            part_ = Part::content;
            return true;
        case CallReader::State::done:
            break;
    }
    for (ToolCall& call : reader_.take_calls()) {
        if (options_.format->has_numbered_ids) number_id(call);
        delta.calls.push_back(std::move(call));
    }
    ++section_calls_;
    begin_ = scan_ += reader_.read_bytes();
    part_ = Part::section;
    return true;
}

}  // namespace stet::text
