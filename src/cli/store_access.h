// The store as the command line meets it: where it is, whose it is, and names for new sessions.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "stet/status.h"
#include "store/store.h"

namespace stet::cli {

std::filesystem::path store_directory(const std::string& flag);  // empty: the default

// Limits of the store as they are typed; empty: none.
struct StoreLimits {
    std::string disk;       // "20G"
    std::string disk_free;  // "1G"
    std::string ttl;        // "30d"
};

// A conflict says what can be done about it.
Result<std::unique_ptr<store::Store>> open_store(const std::string& flag, bool read_only,
                                                 const StoreLimits& limits = {});

// "calm-otter-417"; no session of the store has it.
Result<std::string> fresh_session_name(store::Store& store);

}  // namespace stet::cli
