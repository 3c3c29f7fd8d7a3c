// The values that a template computes with, and the Runtime that owns and limits them.
//
// Scalars and strings are held by value (strings are shared and immutable); everything that can
// hold other values is an Object owned by the Runtime until the rendering ends. So cycles can't
// leak, and freeing a deeply nested value can't recurse.
//
// A Runtime and its values belong to one rendering on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja/error.h"

namespace stet::text::jinja {

class Runtime;

enum class ObjectKind : std::uint8_t {
    list,
    tuple,
    dict,
    view,
    range,
    generator,
    name_space,
    macro,
    method,
    function,
    loop,
    cycler,
    joiner,
};

struct Object;

// A string: valid UTF-8.
struct Text {
    Text(std::string b, Runtime* r);
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;
    ~Text();
    const std::string bytes;
    const std::size_t length;  // in code points
    bool markup = false;       // by `safe` or `escape`: what is added to it gets HTML-escaped
    bool ascii() const { return length == bytes.size(); }

  private:
    Runtime* runtime_;  // charged for the bytes; null for the constants of a program
};
using TextPtr = std::shared_ptr<const Text>;

// Why a value is missing, told when it is used.
struct UndefinedInfo {
    std::string message;
};
using UndefinedPtr = std::shared_ptr<const UndefinedInfo>;

// In the order of Value's alternatives.
enum class Kind : std::uint8_t { undefined, none, boolean, integer, real, string, object };

class Value {
  public:
    Value() = default;  // none
    static Value undefined(std::string why) {
        return Value(UndefinedPtr(std::make_shared<UndefinedInfo>(UndefinedInfo{std::move(why)})));
    }
    static Value none() { return {}; }
    static Value boolean(bool b) { return Value(b); }
    static Value integer(std::int64_t i) { return Value(i); }
    static Value real(double d) { return Value(d); }
    static Value string(TextPtr text) { return Value(std::move(text)); }
    static Value object(Object* object) { return Value(object); }

    Kind kind() const { return static_cast<Kind>(held_.index()); }
    bool is_undefined() const { return kind() == Kind::undefined; }
    bool is_none() const { return kind() == Kind::none; }
    bool is_boolean() const { return kind() == Kind::boolean; }
    bool is_string() const { return kind() == Kind::string; }
    // Booleans count as integers, as in Python.
    bool is_integer() const { return kind() == Kind::integer || kind() == Kind::boolean; }
    bool is_number() const { return is_integer() || kind() == Kind::real; }

    // Each requires the kind that it reads.
    bool as_boolean() const { return std::get<bool>(held_); }
    std::int64_t as_integer() const {
        return is_boolean() ? (as_boolean() ? 1 : 0) : std::get<std::int64_t>(held_);
    }
    double as_real() const {
        return kind() == Kind::real ? std::get<double>(held_) : static_cast<double>(as_integer());
    }
    const Text& text() const { return *std::get<TextPtr>(held_); }
    const std::string& str() const { return text().bytes; }
    const std::string& missing_reason() const { return std::get<UndefinedPtr>(held_)->message; }
    // The object when it is a T, else null.
    template <typename T>
    T* as() const;
    Object* as_object() const {
        return kind() == Kind::object ? std::get<Object*>(held_) : nullptr;
    }

  private:
    struct None {};
    template <typename T>
    explicit Value(T held) : held_(std::move(held)) {}

    std::variant<UndefinedPtr, None, bool, std::int64_t, double, TextPtr, Object*> held_ = None();
};

using Values = std::vector<Value>;

struct Object {
    explicit Object(ObjectKind k) : kind(k) {}
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    virtual ~Object() = default;
    // Of objects that have attributes of their own (loop, macros, cyclers); nullopt: no such one.
    virtual std::optional<Value> attribute(Runtime& runtime, std::string_view name);
    const ObjectKind kind;
};

template <typename T>
T* Value::as() const {
    Object* object = as_object();
    return object != nullptr && object->kind == T::kKind ? static_cast<T*>(object) : nullptr;
}

struct List : Object {
    static constexpr ObjectKind kKind = ObjectKind::list;
    List() : Object(kKind) {}
    Values items;
};

struct Tuple : Object {
    static constexpr ObjectKind kKind = ObjectKind::tuple;
    Tuple() : Object(kKind) {}
    Values items;
    bool is_group = false;  // made by groupby: its two items are also .grouper and .list
};

// Keeps the order of insertion. Keys are hashable values; 1, 1.0 and true are one key.
class Dict : public Object {
  public:
    static constexpr ObjectKind kKind = ObjectKind::dict;
    using Entry = std::pair<Value, Value>;
    Dict() : Object(kKind) {}

    const std::vector<Entry>& entries() const { return entries_; }
    std::size_t size() const { return entries_.size(); }
    // Null when absent. Throws on a key that can't be hashed.
    const Value* find(Runtime& runtime, const Value& key) const;
    void set(Runtime& runtime, const Value& key, Value value);
    bool erase(Runtime& runtime, const Value& key);
    void clear();

  private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t index_of(Runtime& runtime, const Value& key) const;

    std::vector<Entry> entries_;
    std::unordered_multimap<std::size_t, std::size_t> index_;  // hash -> entry; empty while small
};

// dict.keys(), .values(), .items(): follows its dict.
struct View : Object {
    static constexpr ObjectKind kKind = ObjectKind::view;
    enum class Part : std::uint8_t { keys, values, items };
    View(const Dict* d, Part p) : Object(kKind), dict(d), part(p) {}
    const Dict* const dict;
    const Part part;
};

struct Range : Object {
    static constexpr ObjectKind kKind = ObjectKind::range;
    Range(std::int64_t b, std::int64_t e, std::int64_t s, std::int64_t n)
        : Object(kKind), begin(b), end(e), step(s), size(n) {}
    const std::int64_t begin, end, step, size;
};

// What map, select and the like return: can be walked through once.
struct Generator : Object {
    static constexpr ObjectKind kKind = ObjectKind::generator;
    explicit Generator(Values v) : Object(kKind), items(std::move(v)) {}
    Values items;
    std::size_t next = 0;
};

struct Namespace : Object {
    static constexpr ObjectKind kKind = ObjectKind::name_space;
    explicit Namespace(Dict* d) : Object(kKind), attributes(d) {}
    Dict* const attributes;
};

struct Cycler : Object {
    static constexpr ObjectKind kKind = ObjectKind::cycler;
    explicit Cycler(Values v) : Object(kKind), items(std::move(v)) {}
    std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    const Values items;
    std::size_t position = 0;
};

struct Joiner : Object {
    static constexpr ObjectKind kKind = ObjectKind::joiner;
    explicit Joiner(Value s) : Object(kKind), separator(std::move(s)) {}
    const Value separator;
    bool used = false;
};

struct Arguments {
    Values positional;
    std::vector<std::pair<std::string, Value>> named;
};

struct MethodEntry {
    std::string_view name;
    Value (*call)(Runtime&, const Value& self, Arguments&);
    bool mutates = false;
};

struct Method : Object {
    static constexpr ObjectKind kKind = ObjectKind::method;
    Method(Value s, const MethodEntry* e) : Object(kKind), self(std::move(s)), entry(e) {}
    const Value self;
    const MethodEntry* const entry;
};

struct FunctionEntry {
    std::string_view name;
    Value (*call)(Runtime&, Arguments&);
};

struct Function : Object {
    static constexpr ObjectKind kKind = ObjectKind::function;
    explicit Function(const FunctionEntry* e) : Object(kKind), entry(e) {}
    const FunctionEntry* const entry;
};

// Owns the objects of a rendering and enforces its limits: every operation whose work grows with
// its input charges for it. Exceeding a limit throws resource_exhausted.
class Runtime {
  public:
    Runtime(const RenderLimits& limits, Dialect dialect, std::chrono::system_clock::time_point now)
        : limits_(limits), dialect_(dialect), now_(now) {}
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;
    ~Runtime() { objects_.clear(); }

    const RenderLimits& limits() const { return limits_; }
    Dialect dialect() const { return dialect_; }
    std::chrono::system_clock::time_point now() const { return now_; }

    void charge_steps(std::uint64_t count) {
        steps_ += count;
        if (steps_ > limits_.steps) fail_steps();
    }
    // Passing over `size_bytes` of text.
    void charge_work(std::size_t size_bytes) { charge_steps(size_bytes / kBytesPerStep); }
    // About to hold `size_bytes` more.
    void charge_memory(std::size_t size_bytes) {
        charge_work(size_bytes);
        if (size_bytes > limits_.memory_bytes - memory_bytes_) fail_memory();
        memory_bytes_ += size_bytes;
    }
    void release_memory(std::size_t size_bytes) { memory_bytes_ -= size_bytes; }
    // Before a string of count * size_bytes is made; also refuses what overflows.
    void check_size(std::uint64_t count, std::uint64_t size_bytes) const;

    template <typename T, typename... Args>
    T* make(Args&&... args) {
        charge_memory(sizeof(T) + sizeof(void*));
        auto owned = std::make_unique<T>(std::forward<Args>(args)...);
        T* object = owned.get();
        objects_.push_back(std::move(owned));
        return object;
    }
    Value string(std::string bytes);
    Value string(std::string_view bytes) { return string(std::string(bytes)); }
    Value string(const char* bytes) { return string(std::string(bytes)); }
    Value markup(std::string bytes);
    Value list(Values items);
    Value tuple(Values items);
    Value pair(Value first, Value second);
    Value generator(Values items);

    // Counts one level of recursion while it lives.
    class Level {
      public:
        explicit Level(Runtime& runtime) : runtime_(runtime) {
            if (runtime_.level_ >= runtime_.limits_.depth * kLevelsPerCall) runtime_.fail_depth();
            ++runtime_.level_;
        }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        ~Level() { --runtime_.level_; }

      private:
        Runtime& runtime_;
    };

    [[noreturn]] void fail_depth() const;

  private:
    // A step is some 100 ns; so is passing over this much text.
    static constexpr std::size_t kBytesPerStep = 128;
    // RenderLimits::depth counts calls; each may take this many levels of nested expressions.
    static constexpr std::uint32_t kLevelsPerCall = 8;

    [[noreturn]] void fail_steps() const;
    [[noreturn]] void fail_memory() const;

    const RenderLimits limits_;
    const Dialect dialect_;
    const std::chrono::system_clock::time_point now_;
    std::uint64_t steps_ = 0;
    std::uint64_t memory_bytes_ = 0;
    std::uint32_t level_ = 0;
    std::vector<std::unique_ptr<Object>> objects_;
};

// "int", "str", "dict", ...: the Python name of the type, for messages.
std::string_view type_name(const Value& value);
// The items of a list or tuple, else null.
const Values* sequence_items(const Value& value);
// Throws the reason when `value` is undefined.
void require_defined(const Value& value);

}  // namespace stet::text::jinja
