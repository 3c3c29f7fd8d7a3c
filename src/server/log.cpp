#include "server/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "server/json.h"

namespace stet::server {
namespace {

// In JSON mode the pattern has the message as a member: it must be JSON itself.
bool g_is_json = false;

std::string in_log(std::string_view message) {
    return g_is_json ? dump(Json(std::string(message))) : std::string(message);
}

}  // namespace

std::shared_ptr<spdlog::logger> make_log(std::string_view level, bool is_json) {
    auto log =
        std::make_shared<spdlog::logger>("stet", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    g_is_json = is_json;
    log->set_pattern(is_json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":%v})"
                             : "%H:%M:%S.%e %l %v");
    log->set_level(spdlog::level::from_str(std::string(level == "warn" ? "warning" : level)));
    log->flush_on(spdlog::level::info);
    return log;
}

void log_info(spdlog::logger& log, std::string_view message) {
    log.info("{}", in_log(message));
}

void log_warning(spdlog::logger& log, std::string_view message) {
    log.warn("{}", in_log(message));
}

void log_access(spdlog::logger& log, bool is_json, const AccessRecord& record) {
    if (!log.should_log(spdlog::level::info)) return;
    if (is_json) {
        const Json json = {
            {"request", record.request_id}, {"method", record.method}, {"path", record.path},
            {"status", record.status},      {"ms", record.ms},         {"bytes", record.bytes},
            {"note", record.note}};
        log.info("{}", dump(json));
    } else {
        // A path is the client's: nothing in it may look like another line.
        log.info("{} {} {} {} {:.1f}ms {}", record.request_id, record.method,
                 dump(Json(std::string(record.path))), record.status, record.ms, record.note);
    }
}

}  // namespace stet::server
