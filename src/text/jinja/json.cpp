#include "text/jinja/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

namespace {

// Deeper input is refused: values are walked recursively later.
constexpr std::size_t kMaxJsonDepth = 256;

// Builds Values as the parser meets them, without a document tree in between.
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit JsonReader(Runtime& runtime) : runtime_(runtime) {}

    bool null() override { return put(Value::none()); }
    bool boolean(bool value) override { return put(Value::boolean(value)); }
    bool number_integer(number_integer_t value) override { return put(Value::integer(value)); }
    bool number_unsigned(number_unsigned_t value) override {
        constexpr auto kMax =
            static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
        return put(value <= kMax ? Value::integer(static_cast<std::int64_t>(value))
                                 : Value::real(static_cast<double>(value)));
    }
    bool number_float(number_float_t value, const string_t& /*text*/) override {
        return put(Value::real(value));
    }
    bool string(string_t& value) override { return put(runtime_.string(std::move(value))); }
    bool binary(binary_t& /*value*/) override { return false; }
    bool start_object(std::size_t /*count*/) override {
        return open(Value::object(runtime_.make<Dict>()));
    }
    bool key(string_t& value) override {
        keys_.back() = runtime_.string(std::move(value));
        return true;
    }
    bool end_object() override { return close(); }
    bool start_array(std::size_t /*count*/) override {
        return open(Value::object(runtime_.make<List>()));
    }
    bool end_array() override { return close(); }
    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        fail(fmt::format("the variables are not JSON, at byte {}: {}", position, error.what()));
    }

    const Value& root() const { return root_; }

  private:
    bool put(Value value) {
        runtime_.charge_steps(1);
        if (open_.empty()) {
            root_ = std::move(value);
        } else if (auto* dict = open_.back().as<Dict>()) {
            dict->set(runtime_, keys_.back(), std::move(value));
        } else {
            runtime_.charge_memory(sizeof(Value));
            open_.back().as<List>()->items.push_back(std::move(value));
        }
        return true;
    }

    bool open(const Value& container) {
        if (open_.size() >= kMaxJsonDepth) {
            fail_exhausted(fmt::format("the variables are nested deeper than {}", kMaxJsonDepth));
        }
        put(container);
        open_.push_back(container);
        keys_.emplace_back();
        return true;
    }

    bool close() {
        open_.pop_back();
        keys_.pop_back();
        return true;
    }

    Runtime& runtime_;
    Value root_;
    Values open_;  // containers being read, outermost first
    Values keys_;  // the key being read of each
};

class JsonWriter {
  public:
    JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

    void write(const Value& value) {
        runtime_.charge_steps(1);
        runtime_.check_size(1, out_.size());
        switch (value.kind()) {
            case Kind::undefined:
                fail(fmt::format("an undefined value can't be written as JSON: {}",
                                 value.missing_reason()));
            case Kind::none:
                out_ += "null";
                break;
            case Kind::boolean:
                out_ += value.as_boolean() ? "true" : "false";
                break;
            case Kind::integer:
                out_ += std::to_string(value.as_integer());
                break;
            case Kind::real:
                out_ += real(value.as_real());
                break;
            case Kind::string:
                quote(value.str());
                break;
            case Kind::object:
                container(value);
                break;
        }
    }

    std::string take() { return std::move(out_); }

  private:
    static std::string real(double value) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
        return real_to_string(value);
    }

    void newline() {
        if (!style_.indented) return;
        runtime_.check_size(depth_ + 1, style_.indent.size() + 1);
        runtime_.charge_work(depth_ * style_.indent.size());
        out_.push_back('\n');
        for (std::size_t i = 0; i < depth_; ++i) out_ += style_.indent;
    }

    void container(const Value& value) {
        const Runtime::Level level(runtime_);
        if (const auto* dict = value.as<Dict>()) {
            write_dict(*dict);
        } else if (const Values* items = sequence_items(value)) {
            write_items(*items);
        } else {
            fail(fmt::format("a {} can't be written as JSON", type_name(value)));
        }
    }

    void write_items(const Values& items) {
        if (items.empty()) {
            out_ += "[]";
            return;
        }
        out_.push_back('[');
        ++depth_;
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0) out_ += style_.item_separator;
            newline();
            write(items[i]);
        }
        --depth_;
        newline();
        out_.push_back(']');
    }

    std::string key_text(const Value& key) {
        switch (key.kind()) {
            case Kind::string:
                return key.str();
            case Kind::none:
                return "null";
            case Kind::boolean:
                return key.as_boolean() ? "true" : "false";
            case Kind::integer:
                return std::to_string(key.as_integer());
            case Kind::real:
                return real(key.as_real());
            default:
                break;
        }
        fail(fmt::format("a {} can't be a key in JSON", type_name(key)));
    }

    void write_dict(const Dict& dict) {
        if (dict.size() == 0) {
            out_ += "{}";
            return;
        }
        std::vector<const Dict::Entry*> entries;
        for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
        if (style_.sort_keys) {
            std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
                return less(runtime_, a->first, b->first);
            });
        }
        out_.push_back('{');
        ++depth_;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (i > 0) out_ += style_.item_separator;
            newline();
            quote(key_text(entries[i]->first));
            out_ += style_.key_separator;
            write(entries[i]->second);
        }
        --depth_;
        newline();
        out_.push_back('}');
    }

    void quote(std::string_view text) {
        runtime_.charge_work(text.size());
        out_.push_back('"');
        for (std::size_t i = 0; i < text.size();) {
            const char c = text[i];
            if (static_cast<unsigned char>(c) >= 0x80U && style_.ascii_only) {
                escape_wide(decode_at(text, i));
                continue;
            }
            ++i;
            switch (c) {
                case '"':
                    out_ += "\\\"";
                    break;
                case '\\':
                    out_ += "\\\\";
                    break;
                case '\n':
                    out_ += "\\n";
                    break;
                case '\r':
                    out_ += "\\r";
                    break;
                case '\t':
                    out_ += "\\t";
                    break;
                case '\b':
                    out_ += "\\b";
                    break;
                case '\f':
                    out_ += "\\f";
                    break;
                default:
                    if (static_cast<unsigned char>(c) < 0x20U) {
                        out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
                    } else {
                        out_.push_back(c);
                    }
            }
        }
        out_.push_back('"');
    }

    void escape_wide(char32_t c) {
        auto code = static_cast<unsigned>(c);
        if (code >= 0x10000U) {
            code -= 0x10000U;
            out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800U + (code >> 10U),
                                0xDC00U + (code & 0x3FFU));
        } else {
            out_ += fmt::format("\\u{:04x}", code);
        }
    }

    Runtime& runtime_;
    const JsonStyle& style_;
    std::string out_;
    std::size_t depth_ = 0;
};

}  // namespace

Dict* parse_json_object(Runtime& runtime, std::string_view json) {
    JsonReader reader(runtime);
    nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
    Dict* object = reader.root().as<Dict>();
    if (object == nullptr) {
        fail(fmt::format("the variables must be a JSON object, not {}", type_name(reader.root())));
    }
    return object;
}

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
    JsonWriter writer(runtime, style);
    writer.write(value);
    return writer.take();
}

}  // namespace stet::text::jinja
