// What is said about turns, sessions and failures: JSON lines for programs, short lines for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation.h"
#include "stet/status.h"
#include "store/store.h"

namespace stet::cli {

using Json = nlohmann::ordered_json;  // keys stay in the order of the documentation

// One line with its newline. Bytes that are not UTF-8 become U+FFFD.
std::string json_line(const Json& json);
// {"error": {"code": ..., "message": ...}}
std::string error_json(const Status& status);
// Format: docs/reference/cli.md.
Json turn_json(const engine::TurnResult& turn, const engine::Conversation& conversation,
               bool has_session, double load_ms);
Json session_json(const store::SessionInfo& session, const store::SessionUsage& usage);

// "12 tokens, 40.1 t/s, reused 30 of 42 prompt tokens, saved in 3 ms"
std::string turn_line(const engine::TurnResult& turn);
// "resumed NAME: 420 tokens restored in 3 ms (9.8 MB read)"; empty when there was nothing.
std::string resume_line(std::string_view session, const engine::ResumeReport& report);

// Name, turns, tokens, own and shared size, age, last use and model, one line a session.
using SessionUsages = std::map<std::string, store::SessionUsage>;
std::string session_table(const std::vector<store::SessionInfo>& sessions,
                          const SessionUsages& usages, std::chrono::system_clock::time_point now);
std::string format_bytes(std::uint64_t bytes);
// "3 minutes ago"; `then_ns` counts from the epoch.
std::string format_age(std::int64_t then_ns, std::chrono::system_clock::time_point now);
std::string shell_quoted(std::string_view argument);

}  // namespace stet::cli
