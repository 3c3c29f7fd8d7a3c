// What `stet doctor` looks at. Each check answers with lines; none changes anything that stays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "server/settings.h"

namespace stet::cli {

struct Finding {
    enum class Outcome : std::uint8_t { ok, warn, fail };
    Outcome outcome = Outcome::ok;
    std::string subject;  // "cpu", "memory", ...
    std::string text;     // what is there
    std::string advice;   // what to do; empty when it is ok
};
using Findings = std::vector<Finding>;

std::string_view outcome_name(Finding::Outcome outcome);

// Bytes of the machine, and the bound that its control groups set; 0: none.
struct MemoryLimits {
    std::uint64_t machine_bytes = 0;
    std::uint64_t available_bytes = 0;
    std::uint64_t group_bytes = 0;
    // What this program may take.
    std::uint64_t usable_bytes() const;
};
MemoryLimits memory_limits();

void check_cpu(const server::Settings& settings, Findings& findings);
void check_memory(const MemoryLimits& limits, Findings& findings);
// The directory of the sessions: it is written to, and the file is removed again.
void check_store(const std::filesystem::path& directory, const server::Settings& settings,
                 Findings& findings);
void check_port(const server::Settings& settings, Findings& findings);
void check_model(const server::Settings& settings, const std::filesystem::path& cache,
                 const MemoryLimits& limits, Findings& findings);

}  // namespace stet::cli
