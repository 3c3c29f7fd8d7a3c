#include "text/chat_format/call_reader.h"

#include "text/chat_format/call_json.h"

namespace stet::text {
namespace {

constexpr std::size_t kNameMax = 256;        // bytes
constexpr std::size_t kAttributesMax = 256;  // of one tag
constexpr std::size_t kKeyMax = 1024;
constexpr std::size_t kValueMax = std::size_t{1} << 40;
constexpr int kNestingMax = 32;

bool is_name_character(char c) {
    return is_word_character(c) || c == ':' || c == '/';
}

bool has_attribute(std::string_view attributes, std::string_view text) {
    return attributes.find(text) != std::string_view::npos;
}

// Nested tags as JSON: `open`KEY>VALUE`open`/KEY>... where a list's keys are all "item". What is no
// such row of tags is a plain value.
std::string nested_json(std::string_view text, std::string_view open, int depth) {
    const std::string_view whole = text;
    std::string members, items;
    bool is_list = true;
    text = without_blanks(text);
    if (!text.starts_with(open) || depth > kNestingMax) return json_value(whole, false);
    while (!text.empty()) {
        const std::size_t key_end = text.find('>', open.size());
        if (!text.starts_with(open) || key_end == std::string_view::npos) {
            return json_string(whole);
        }
        const std::string_view key = text.substr(open.size(), key_end - open.size());
        std::size_t at = key_end + 1, end = std::string_view::npos;
        for (int level = 0; level >= 0;) {
            end = text.find(open, at);
            if (end == std::string_view::npos) return json_string(whole);
            at = end + open.size();
            level += text.substr(at).starts_with('/') ? -1 : 1;
        }
        const std::string value =
            nested_json(text.substr(key_end + 1, end - key_end - 1), open, depth + 1);
        is_list = is_list && key == "item";
        members += (members.empty() ? "" : ",") + json_string(key) + ":" + value;
        items += (items.empty() ? "" : ",") + value;
        const std::size_t close_end = text.find('>', at);
        if (close_end == std::string_view::npos) return json_string(whole);
        text = without_blanks(text.substr(close_end + 1));
    }
    return is_list ? "[" + items + "]" : "{" + members + "}";
}

}  // namespace

CallReader::State CallReader::advance(std::string_view text, bool is_final) {
    while (true) {
        switch (step(text, is_final)) {
            case Step::next:
                continue;
            case Step::more:
                if (!is_final) return State::more;
                at_ = text.size();
                return State::bad;
            case Step::done:
                return State::done;
            case Step::bad:
                return State::bad;
        }
    }
}

CallReader::Step CallReader::step(std::string_view text, bool is_final) {
    switch (phase_) {
        case Phase::begin:
            return begin(text, is_final);
        case Phase::id:
            return read_id(text);
        case Phase::name:
            return read_name(text, is_final);
        case Phase::name_close:
            return read_name_close(text, is_final);
        case Phase::name_attributes:
            return read_name_attributes(text);
        case Phase::arguments:
            return begin_arguments(text, is_final);
        case Phase::tags:
            return read_tags(text, is_final);
        case Phase::key:
            return read_key(text);
        case Phase::key_attributes:
            return read_key_attributes(text);
        case Phase::value:
            return read_value(text);
        case Phase::nested_value:
            return read_nested_value(text);
        case Phase::json:
            return read_json(text);
        case Phase::literal:
            return read_literal(text);
        case Phase::code:
            return read_code(text, is_final);
    }
    return Step::bad;
}

CallReader::Step CallReader::begin(std::string_view text, bool /*is_final*/) {
    at_ = mark_ = skip_blanks(text, at_);
    if (at_ == text.size()) return Step::more;
    const bool is_json = text[at_] == '{' || text[at_] == '[';
    switch (syntax_->body) {
        case CallBody::json:
        case CallBody::keyed:
            if (!is_json) return Step::bad;
            phase_ = Phase::json;
            return Step::next;
        case CallBody::python:
            if (text[at_] != '[') return Step::bad;
            phase_ = Phase::literal;
            return Step::next;
        case CallBody::code:
            phase_ = is_json ? Phase::json : Phase::code;
            return Step::next;
        case CallBody::arguments:
        case CallBody::marked:
            phase_ = syntax_->id_close.empty() ? Phase::name : Phase::id;
            return Step::next;
    }
    return Step::bad;
}

CallReader::Step CallReader::read_id(std::string_view text) {
    std::string_view id;
    const Step step = until(text, syntax_->id_close, kAttributesMax, &id);
    if (step != Step::next) return step;
    id_ = without_blanks(id);
    phase_ = Phase::name;
    return Step::next;
}

CallReader::Step CallReader::read_name(std::string_view text, bool /*is_final*/) {
    while (at_ < text.size() && is_name_character(text[at_])) ++at_;
    if (at_ - mark_ > kNameMax) return bad_at_mark();
    if (at_ == text.size()) return Step::more;
    if (at_ == mark_) return Step::bad;
    name_ = text.substr(mark_, at_ - mark_);
    mark_ = at_;
    phase_ = Phase::name_close;
    return Step::next;
}

CallReader::Step CallReader::read_name_close(std::string_view text, bool /*is_final*/) {
    switch (match(text.substr(at_), syntax_->name_close)) {
        case Match::no:
            return Step::bad;
        case Match::partial:
            return Step::more;
        case Match::yes:
            break;
    }
    mark_ = at_ += syntax_->name_close.size();
    phase_ = syntax_->arguments_open.empty() ? Phase::arguments : Phase::name_attributes;
    return Step::next;
}

// How far a part was read that turned out too long depends on how the text came; where it began
// doesn't.
CallReader::Step CallReader::bad_at_mark() {
    at_ = mark_;
    return Step::bad;
}

// Reads until `marker`; no further than bytes_max from mark_.
CallReader::Step CallReader::until(std::string_view text, std::string_view marker,
                                   std::size_t bytes_max, std::string_view* found) {
    std::size_t hold = 0;
    if (bytes_max < text.size()) text = text.substr(0, mark_ + bytes_max + marker.size());
    const std::size_t end = find_marker(text, at_, marker, &hold);
    const bool is_found = end != std::string_view::npos;
    if (!is_found && text.size() - mark_ >= bytes_max + marker.size()) {
        return bad_at_mark();
    }
    if (!is_found) {
        at_ = hold;
        return Step::more;
    }
    *found = text.substr(mark_, end - mark_);
    mark_ = at_ = end + marker.size();
    return Step::next;
}

CallReader::Step CallReader::read_name_attributes(std::string_view text) {
    std::string_view attributes;
    const Step step = until(text, syntax_->arguments_open, kAttributesMax, &attributes);
    if (step != Step::next) return step;
    constexpr std::string_view kCallId = "[CALL_ID]";
    const std::string_view bare = without_blanks(attributes);
    if (bare.starts_with(kCallId)) id_ = bare.substr(kCallId.size());
    phase_ = Phase::arguments;
    return Step::next;
}

CallReader::Step CallReader::begin_arguments(std::string_view text, bool /*is_final*/) {
    at_ = mark_ = skip_blanks(text, at_);
    if (at_ == text.size()) return Step::more;
    if (syntax_->body == CallBody::marked) {
        if (text[at_] != '{') return Step::bad;
        literal_ = LiteralScanner(Quotes::marked);
        phase_ = Phase::literal;
        return Step::next;
    }
    if (text[at_] == '{') {
        phase_ = Phase::json;
        return Step::next;
    }
    phase_ = Phase::tags;
    return Step::next;
}

// Between tagged arguments. The end's marker may begin as an argument's does.
CallReader::Step CallReader::read_tags(std::string_view text, bool /*is_final*/) {
    at_ = skip_blanks(text, at_);
    const std::string_view rest = text.substr(at_);
    const Match close = syntax_->close.empty() ? Match::no : match(rest, syntax_->close);
    if (close == Match::yes) {
        at_ += syntax_->close.size();
        return finish("{" + members_ + "}");
    }
    const Match open = syntax_->key_open.empty() ? Match::no : match(rest, syntax_->key_open);
    if (close == Match::partial || open == Match::partial) return Step::more;
    if (open == Match::no) return Step::bad;
    mark_ = at_ += syntax_->key_open.size();
    phase_ = Phase::key;
    return Step::next;
}

CallReader::Step CallReader::read_key(std::string_view text) {
    std::string_view key;
    const Step step = until(text, syntax_->key_close, kKeyMax, &key);
    if (step != Step::next) return step;
    key_ = without_blanks(key);
    attributes_.clear();
    phase_ = Phase::key_attributes;
    return Step::next;
}

CallReader::Step CallReader::read_key_attributes(std::string_view text) {
    if (!syntax_->value_open.empty()) {
        std::string_view attributes;
        const Step step = until(text, syntax_->value_open, kAttributesMax, &attributes);
        if (step != Step::next) return step;
        attributes_ = attributes;
    }
    depth_ = 0;
    phase_ = has_nested_values() ? Phase::nested_value : Phase::value;
    return Step::next;
}

CallReader::Step CallReader::read_value(std::string_view text) {
    std::string_view value;
    const Step step = until(text, syntax_->value_close, kValueMax, &value);
    if (step != Step::next) return step;
    if (syntax_->has_value_lines) {
        if (value.starts_with('\n')) value.remove_prefix(1);
        if (value.ends_with('\n')) value.remove_suffix(1);
    }
    add_argument(value);
    phase_ = Phase::tags;
    return Step::next;
}

// The value's end is the closing tag that has no opening one before it, whatever it is called.
CallReader::Step CallReader::read_nested_value(std::string_view text) {
    const std::string_view open = syntax_->key_open;
    while (true) {
        std::size_t hold = 0;
        const std::size_t found = find_marker(text, at_, open, &hold);
        at_ = found == std::string_view::npos ? hold : found;
        const std::size_t after = at_ + open.size();
        if (found == std::string_view::npos || after >= text.size()) return Step::more;
        if (text[after] != '/') {
            ++depth_;
            at_ = after;
            continue;
        }
        const std::size_t end = text.substr(0, after + kKeyMax).find('>', after);
        if (end == std::string_view::npos) {
            return text.size() - after > kKeyMax ? Step::bad : Step::more;
        }
        at_ = end + 1;
        if (depth_-- > 0) continue;
        const std::string_view value = text.substr(mark_, found - mark_);
        const bool is_nested = without_blanks(value).starts_with(open);
        if (is_nested) {
            members_ += (members_.empty() ? "" : ",") + json_string(key_) + ":" +
                        nested_json(value, open, 0);
        } else {
            add_argument(value);
        }
        phase_ = Phase::tags;
        return Step::next;
    }
}

void CallReader::add_argument(std::string_view value) {
    const bool is_declared_text = types_ && types_->is_text(name_, key_);
    const bool is_text = has_attribute(attributes_, "string=\"true\"") ||
                         has_attribute(attributes_, "type=\"string\"") ||
                         (is_declared_text && !has_attribute(attributes_, "string=\"false\""));
    members_ +=
        (members_.empty() ? "" : ",") + json_string(key_) + ":" + json_value(value, is_text);
}

// Up to where the object or list ends that began at mark_.
template <typename Scanner>
CallReader::Step CallReader::to_end(std::string_view text, Scanner& scanner,
                                    std::string_view* found) {
    while (at_ < text.size()) {
        const JsonScanner::Step step = scanner.add(text[at_++]);
        if (step == JsonScanner::Step::more) continue;
        if (step == JsonScanner::Step::bad) return Step::bad;
        *found = text.substr(mark_, at_ - mark_);
        return Step::next;
    }
    return Step::more;
}

CallReader::Step CallReader::read_json(std::string_view text) {
    std::string_view json;
    const Step step = to_end(text, scanner_, &json);
    if (step != Step::next) return step;
    if (syntax_->body == CallBody::arguments) return finish(json_object(json));
    if (syntax_->body == CallBody::keyed) return finish(calls_of_keyed_json(json));
    auto calls = calls_of_json(json);
    if (calls || syntax_->body != CallBody::code) return finish(std::move(calls));
    auto object = json_object(json);
    if (!object || !object->starts_with("{\"code\":")) return Step::bad;
    name_ = "python";
    return finish(std::move(object));
}

CallReader::Step CallReader::read_literal(std::string_view text) {
    std::string_view literal;
    const Step step = to_end(text, literal_, &literal);
    if (step != Step::next) return step;
    if (syntax_->body == CallBody::marked) return finish(json_of_marked(literal));
    auto calls = calls_of_python(literal);
    return finish(calls ? std::move(calls) : calls_of_json(literal));
}

// Llama's built-in tools: `name.call(key="value")`. All else is for the interpreter.
CallReader::Step CallReader::read_code(std::string_view text, bool is_final) {
    if (!is_final) return Step::more;
    at_ = text.size();
    const std::string_view code = without_blanks(text.substr(mark_));
    constexpr std::string_view kCall = ".call(";
    const std::size_t call = code.find(kCall);
    if (call != std::string_view::npos && call > 0 && code.ends_with(')')) {
        bool is_name = true;
        for (const char c : code.substr(0, call)) is_name = is_name && is_name_character(c);
        const std::string_view inner =
            code.substr(call + kCall.size(), code.size() - call - kCall.size() - 1);
        auto arguments = json_of_keywords(inner);
        if (is_name && arguments) {
            name_ = code.substr(0, call);
            return finish(std::move(*arguments));
        }
    }
    name_ = "python";
    return finish("{\"code\":" + json_string(code) + "}");
}

CallReader::Step CallReader::finish(std::optional<std::string> arguments) {
    if (!arguments) return Step::bad;
    calls_.push_back({id_, name_, std::move(*arguments)});
    return Step::done;
}

CallReader::Step CallReader::finish(std::optional<std::vector<ToolCall>> calls) {
    if (!calls) return Step::bad;
    calls_ = std::move(*calls);
    return Step::done;
}

}  // namespace stet::text
