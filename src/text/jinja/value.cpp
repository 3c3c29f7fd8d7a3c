#include "text/jinja/value.h"

#include <fmt/format.h>

#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace stet::text::jinja {

Text::Text(std::string b, Runtime* r)
    : bytes(std::move(b)), length(count_code_points(bytes)), runtime_(r) {}

Text::~Text() {
    if (runtime_ != nullptr) runtime_->release_memory(bytes.size() + sizeof(Text));
}

std::optional<Value> Object::attribute(Runtime& /*runtime*/, std::string_view /*name*/) {
    return std::nullopt;
}

// A handful of entries is searched faster than hashed.
constexpr std::size_t kSmallDict = 8;

std::size_t Dict::index_of(Runtime& runtime, const Value& key) const {
    if (index_.empty()) {
        if (!key.is_string()) hash(runtime, key);  // for its complaint
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            if (equal(runtime, entries_[i].first, key)) return i;
        }
        return kNone;
    }
    const auto [first, last] = index_.equal_range(hash(runtime, key));
    for (auto it = first; it != last; ++it) {
        runtime.charge_steps(1);
        if (equal(runtime, entries_[it->second].first, key)) return it->second;
    }
    return kNone;
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
    const std::size_t i = index_of(runtime, key);
    return i == kNone ? nullptr : &entries_[i].second;
}

void Dict::set(Runtime& runtime, const Value& key, Value value) {
    const std::size_t i = index_of(runtime, key);
    if (i != kNone) {
        entries_[i].second = std::move(value);
        return;
    }
    runtime.charge_memory(sizeof(Entry));
    entries_.emplace_back(key, std::move(value));
    if (entries_.size() <= kSmallDict) return;
    for (std::size_t n = index_.size(); n < entries_.size(); ++n) {
        index_.emplace(hash(runtime, entries_[n].first), n);
    }
}

bool Dict::erase(Runtime& runtime, const Value& key) {
    const std::size_t i = index_of(runtime, key);
    if (i == kNone) return false;
    runtime.charge_steps(entries_.size());
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    index_.clear();
    if (entries_.size() > kSmallDict) {
        for (std::size_t n = 0; n < entries_.size(); ++n) {
            index_.emplace(hash(runtime, entries_[n].first), n);
        }
    }
    return true;
}

void Dict::clear() {
    entries_.clear();
    index_.clear();
}

void Runtime::check_size(std::uint64_t count, std::uint64_t size_bytes) const {
    if (count != 0 && size_bytes > limits_.memory_bytes / count) fail_memory();
}

Value Runtime::string(std::string bytes) {
    charge_memory(bytes.size() + sizeof(Text));
    return Value::string(std::make_shared<Text>(std::move(bytes), this));
}

Value Runtime::markup(std::string bytes) {
    charge_memory(bytes.size() + sizeof(Text));
    auto text = std::make_shared<Text>(std::move(bytes), this);
    text->markup = true;
    return Value::string(std::move(text));
}

Value Runtime::list(Values items) {
    charge_memory(items.size() * sizeof(Value));
    List* made = make<List>();
    made->items = std::move(items);
    return Value::object(made);
}

Value Runtime::tuple(Values items) {
    charge_memory(items.size() * sizeof(Value));
    Tuple* made = make<Tuple>();
    made->items = std::move(items);
    return Value::object(made);
}

Value Runtime::pair(Value first, Value second) {
    Values items;
    items.reserve(2);
    items.push_back(std::move(first));
    items.push_back(std::move(second));
    return tuple(std::move(items));
}

Value Runtime::generator(Values items) {
    charge_memory(items.size() * sizeof(Value));
    return Value::object(make<Generator>(std::move(items)));
}

void Runtime::fail_steps() const {
    fail_exhausted(fmt::format("the template takes more than {} steps", limits_.steps));
}

void Runtime::fail_memory() const {
    fail_exhausted(fmt::format("the template needs more than {} bytes", limits_.memory_bytes));
}

void Runtime::fail_depth() const {
    fail_exhausted(fmt::format("calls or values are nested deeper than {}", limits_.depth));
}

std::string_view type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "NoneType";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
            return "int";
        case Kind::real:
            return "float";
        case Kind::string:
            return "str";
        case Kind::object:
            break;
    }
    switch (value.as_object()->kind) {
        case ObjectKind::list:
            return "list";
        case ObjectKind::tuple:
            return "tuple";
        case ObjectKind::dict:
            return "dict";
        case ObjectKind::view: {
            const View::Part part = value.as<View>()->part;
            return part == View::Part::keys     ? "dict_keys"
                   : part == View::Part::values ? "dict_values"
                                                : "dict_items";
        }
        case ObjectKind::range:
            return "range";
        case ObjectKind::generator:
            return "generator";
        case ObjectKind::name_space:
            return "Namespace";
        case ObjectKind::macro:
            return "Macro";
        case ObjectKind::method:
        case ObjectKind::function:
            return "function";
        case ObjectKind::loop:
            return "LoopContext";
        case ObjectKind::cycler:
            return "Cycler";
        case ObjectKind::joiner:
            return "Joiner";
    }
    return "object";
}

const Values* sequence_items(const Value& value) {
    if (const auto* list = value.as<List>()) return &list->items;
    if (const auto* tuple = value.as<Tuple>()) return &tuple->items;
    return nullptr;
}

void require_defined(const Value& value) {
    if (value.is_undefined()) fail(value.missing_reason());
}

}  // namespace stet::text::jinja
