// How a template fails inside the library: by one exception type, caught in chat_template.cpp and
// turned into a Status. An exception because a failure may leave any of a hundred small operations
// (filters, methods, operators) that are written as plain expressions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "stet/status.h"

namespace stet::text::jinja {

struct TemplateError {
    Code code;
    std::string message;
    std::uint32_t line = 0;  // 0: not known where it is thrown; the interpreter fills it in
    bool raised = false;     // by raise_exception(): the message is the template author's
};

[[noreturn]] inline void fail(std::string message, std::uint32_t line = 0) {
    throw TemplateError{Code::invalid_argument, std::move(message), line, false};
}

[[noreturn]] inline void fail_exhausted(std::string message, std::uint32_t line = 0) {
    throw TemplateError{Code::resource_exhausted, std::move(message), line, false};
}

}  // namespace stet::text::jinja
