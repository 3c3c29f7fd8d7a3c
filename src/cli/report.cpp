#include "cli/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/terminal.h"

namespace stet::cli {
namespace {

double per_second(std::uint64_t count, double ms) {
    return ms > 0.0 ? static_cast<double>(count) * 1000.0 / ms : 0.0;
}

// Tokens that the decode time was spent on: the first one came with the prompt, and an end token
// takes a step like any other.
std::uint64_t decoded_tokens(const engine::TurnResult& turn) {
    const std::uint64_t sampled =
        turn.tokens.size() + (turn.stop == engine::StopReason::end ? 1 : 0);
    return sampled > 0 ? sampled - 1 : 0;
}

std::uint64_t resident_bytes() {
    std::FILE* file = std::fopen("/proc/self/statm", "re");
    if (file == nullptr) return 0;
    unsigned long long total = 0;
    unsigned long long resident = 0;
    const bool read = std::fscanf(file, "%llu %llu", &total, &resident) == 2;
    std::fclose(file);
    return read ? resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

std::string json_line(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string error_json(const Status& status) {
    return json_line(
        {{"error", {{"code", code_name(status.code())}, {"message", status.to_string()}}}});
}

Json turn_json(const engine::TurnResult& turn, const engine::Conversation& conversation,
               bool has_session, double load_ms) {
    const engine::ResumeReport& resume = conversation.resume_report();
    Json json;
    json["text"] = turn.text;
    if (!turn.reasoning.empty()) json["reasoning_content"] = turn.reasoning;
    json["tokens"] = turn.tokens;
    json["prompt_tokens"] = turn.prompt_tokens;
    json["reused_tokens"] = turn.reused_tokens;
    json["computed_tokens"] = turn.computed_tokens;
    json["stop"] = engine::stop_reason_name(turn.stop);
    json["session"] = has_session ? Json(conversation.session()) : Json(nullptr);
    json["turn"] = turn.turn_number;
    json["durable"] = turn.is_durable;
    json["timings"] = {{"load_ms", load_ms},
                       {"prompt_ms", turn.timings.prompt},
                       {"prompt_per_second", per_second(turn.computed_tokens, turn.timings.prompt)},
                       {"decode_ms", turn.timings.decode},
                       {"decode_per_second", per_second(decoded_tokens(turn), turn.timings.decode)},
                       {"first_token_ms", turn.timings.first_token},
                       {"commit_ms", turn.commit_ms},
                       {"restore_ms", resume.restore_ms}};
    json["memory"] = {{"resident_bytes", resident_bytes()}};
    json["resume"] = {{"tokens", resume.tokens},
                      {"restored_tokens", resume.restored_tokens},
                      {"reason", resume.reason}};
    return json;
}

Json session_json(const store::SessionInfo& session, const store::SessionUsage& usage) {
    return {{"name", session.name},
            {"turns", session.turns},
            {"tokens", session.tokens},
            {"model_name", session.model_name},
            {"model_path", session.model_path},
            {"fingerprint", session.fingerprint.hex()},
            {"created_ns", session.created_ns},
            {"used_ns", session.used_ns},
            {"own_bytes", usage.own_bytes},
            {"shared_bytes", usage.shared_bytes},
            {"pinned", session.is_pinned}};
}

std::string turn_line(const engine::TurnResult& turn) {
    std::string line =
        fmt::format("{} tokens, {:.1f} t/s, reused {} of {} prompt tokens", turn.tokens.size(),
                    per_second(decoded_tokens(turn), turn.timings.decode), turn.reused_tokens,
                    turn.prompt_tokens);
    if (turn.is_durable) line += fmt::format(", saved in {:.0f} ms", turn.commit_ms);
    if (turn.stop != engine::StopReason::end) {
        line += fmt::format(" ({})", engine::stop_reason_name(turn.stop));
    }
    return line;
}

std::string resume_line(std::string_view session, const engine::ResumeReport& report) {
    if (report.tokens == 0) return {};
    if (!report.reason.empty()) {
        return fmt::format("resumed {}: {} of {} tokens restored, the rest is computed again: {}",
                           session, report.restored_tokens, report.tokens, report.reason);
    }
    return fmt::format("resumed {}: {} tokens restored in {:.0f} ms ({} read)", session,
                       report.restored_tokens, report.restore_ms, format_bytes(report.bytes_read));
}

std::string session_table(const std::vector<store::SessionInfo>& sessions,
                          const SessionUsages& usages, std::chrono::system_clock::time_point now) {
    std::size_t width = 7;
    for (const auto& session : sessions) width = std::max(width, session.name.size());
    std::string table =
        fmt::format("{:<{}}  {:>5}  {:>7}  {:>10}  {:>10}  {:<14}  {:<14}  {}\n", "SESSION", width,
                    "TURNS", "TOKENS", "OWN", "SHARED", "MADE", "USED", "MODEL");
    for (const auto& session : sessions) {
        const auto usage = usages.find(session.name);
        const store::SessionUsage none;
        const store::SessionUsage& size = usage == usages.end() ? none : usage->second;
        table += fmt::format(
            "{:<{}}  {:>5}  {:>7}  {:>10}  {:>10}  {:<14}  {:<14}  {}{}\n", session.name, width,
            session.turns, session.tokens, format_bytes(size.own_bytes),
            format_bytes(size.shared_bytes), format_age(session.created_ns, now),
            format_age(session.used_ns, now),
            one_line(session.model_name.empty() ? session.model_path : session.model_name),
            session.is_pinned ? " (pinned)" : "");
    }
    return table;
}

std::string format_bytes(std::uint64_t bytes) {
    constexpr std::array<std::string_view, 5> kUnits = {"bytes", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1000.0 && unit + 1 < kUnits.size()) {
        value /= 1000.0;
        ++unit;
    }
    return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits.at(unit));
}

std::string format_age(std::int64_t then_ns, std::chrono::system_clock::time_point now) {
    struct Unit {
        std::int64_t seconds;
        std::string_view name;
    };
    constexpr std::array kUnits = {Unit{86400, "day"}, Unit{3600, "hour"}, Unit{60, "minute"}};
    const auto then = std::chrono::nanoseconds(then_ns);
    const auto passed = std::chrono::floor<std::chrono::seconds>(now.time_since_epoch() - then);
    const std::int64_t seconds = std::max<std::int64_t>(0, passed.count());
    for (const Unit& unit : kUnits) {
        const std::int64_t count = seconds / unit.seconds;
        if (count > 0) return fmt::format("{} {}{} ago", count, unit.name, count == 1 ? "" : "s");
    }
    return "just now";
}

std::string shell_quoted(std::string_view argument) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string_view::npos) {
        return std::string(argument);
    }
    std::string quoted = "'";
    for (const char c : argument) {
        if (c == '\'') {
            quoted += "'\\''";
        } else {
            quoted += c;
        }
    }
    return quoted + "'";
}

}  // namespace stet::cli
