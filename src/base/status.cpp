#include "stet/status.h"

#include <array>

namespace stet {
namespace {

struct CodeRow {
    std::string_view name;
    int http;
    int exit;
};

// One row a code, in the order of the enum. Exit codes 1..: stable, scripts rely on them.
constexpr std::array kCodes = {
    CodeRow{"ok", 200, 0},
    CodeRow{"invalid_argument", 400, 2},
    CodeRow{"not_found", 404, 3},
    CodeRow{"already_exists", 409, 4},
    CodeRow{"conflict", 409, 5},
    CodeRow{"incompatible", 422, 6},
    CodeRow{"resource_exhausted", 507, 7},
    CodeRow{"corruption", 422, 8},
    CodeRow{"io", 500, 9},
    CodeRow{"unavailable", 503, 10},
    CodeRow{"cancelled", 499, 130},
    CodeRow{"deadline", 504, 11},
    CodeRow{"unimplemented", 501, 12},
    CodeRow{"internal", 500, 1},
};

const CodeRow& row(Code code) {
    return kCodes.at(static_cast<std::size_t>(code));
}

}  // namespace

std::string_view code_name(Code code) {
    return row(code).name;
}
int http_status(Code code) {
    return row(code).http;
}
int exit_code(Code code) {
    return row(code).exit;
}

Status::Status(Code code, std::string message) {
    if (code != Code::ok) {
        rep_ = std::make_shared<const Rep>(Rep{code, std::move(message), nullptr});
    }
}

std::string Status::to_string() const {
    if (is_ok()) return "ok";
    std::string text = rep_->message;
    for (const Status* cause = rep_->cause.get(); cause != nullptr; cause = cause->cause()) {
        text += ": ";
        text += cause->message();
    }
    return text;
}

Status Status::with_context(std::string what) const {
    if (is_ok()) return {};
    Status status;
    status.rep_ = std::make_shared<const Rep>(
        Rep{rep_->code, std::move(what), std::make_shared<const Status>(*this)});
    return status;
}

}  // namespace stet
