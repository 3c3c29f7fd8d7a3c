// Errors as values. Every fallible operation returns Status or Result<T>; nothing throws across a
// library boundary. A code says what the caller can do; a message says what failed, on what, why,
// and what to do about it.
//
// Thread rules: values; safe to copy and move between threads like std::string.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace stet {

// Ordered as in the table of status.cpp, which maps each to an HTTP status and an exit code.
enum class Code : std::uint8_t {
    ok,
    invalid_argument,    // the caller's input is wrong; the same call will always fail
    not_found,           // the named thing does not exist
    already_exists,      // the name is taken
    conflict,            // the state of the target forbids it now (locked, busy, changed)
    incompatible,        // intact, but made by another model, schema, type or version
    resource_exhausted,  // memory, disk, context or quota is full
    corruption,          // bytes are damaged or cut short
    io,                  // the operating system refused a read or a write
    unavailable,         // try again later
    cancelled,           // the caller asked to stop
    deadline,            // ran out of time
    unimplemented,       // valid, but not supported here
    internal,            // our own fault
};

std::string_view code_name(Code code);
int http_status(Code code);  // 200, 400, 404, ...
int exit_code(Code code);    // 0 for ok, then the table of docs/reference/errors.md

class [[nodiscard]] Status {
  public:
    Status() = default;  // ok
    Status(Code code, std::string message);

    static Status ok() { return {}; }

    bool is_ok() const { return rep_ == nullptr; }
    explicit operator bool() const { return is_ok(); }
    Code code() const { return rep_ ? rep_->code : Code::ok; }
    std::string_view message() const { return rep_ ? std::string_view(rep_->message) : ""; }
    const Status* cause() const { return rep_ ? rep_->cause.get() : nullptr; }

    // "message: cause: cause of that", one line.
    std::string to_string() const;

    // The same failure seen from one level up: keeps the code, adds what was being done.
    Status with_context(std::string what) const;

  private:
    struct Rep {
        Code code;
        std::string message;
        std::shared_ptr<const Status> cause;
    };
    std::shared_ptr<const Rep> rep_;
};

// A value or the reason there is none.
template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}        // NOLINT
    Result(Status status) : held_(std::in_place_index<1>, std::move(status)) {  // NOLINT
        if (std::get<1>(held_).is_ok()) {
            held_.template emplace<1>(Code::internal, "Result made from an ok Status");
        }
    }

    bool is_ok() const { return held_.index() == 0; }
    explicit operator bool() const { return is_ok(); }
    Status status() const { return is_ok() ? Status() : std::get<1>(held_); }

    // Requires is_ok().
    T& value() & { return std::get<0>(held_); }
    const T& value() const& { return std::get<0>(held_); }
    T&& value() && { return std::get<0>(std::move(held_)); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }

  private:
    std::variant<T, Status> held_;
};

}  // namespace stet
