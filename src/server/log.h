// The server's log: lines for people or JSON objects for programs, on standard error. Never what a
// prompt or an answer says, never a key.
#pragma once

#include <memory>
#include <string_view>

#include "server/http.h"

namespace spdlog {
class logger;
}

namespace stet::server {

std::shared_ptr<spdlog::logger> make_log(std::string_view level, bool is_json);
void log_info(spdlog::logger& log, std::string_view message);
void log_warning(spdlog::logger& log, std::string_view message);
void log_access(spdlog::logger& log, bool is_json, const AccessRecord& record);

}  // namespace stet::server
