// The store as the command line meets it: where it is, whose it is, and names for new sessions.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "stet/status.h"
#include "store/store.h"

namespace stet::cli {

std::filesystem::path store_directory(const std::string& flag);  // empty: the default

// A conflict says what can be done about it.
// `ttl`: sessions unused for longer go with the next collection of garbage; 0: none.
Result<std::unique_ptr<store::Store>> open_store(const std::string& flag, bool read_only,
                                                 std::chrono::nanoseconds ttl = {});

// "calm-otter-417"; no session of the store has it.
Result<std::string> fresh_session_name(store::Store& store);

}  // namespace stet::cli
