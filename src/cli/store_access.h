// The store as the command line meets it: where it is, whose it is, and names for new sessions.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "stet/status.h"
#include "store/store.h"

namespace stet::cli {

// Which store, as it is typed.
struct StoreFlags {
    std::string directory;  // empty: the default
    std::string key_file;   // of an encrypted one; empty: STET_STORE_KEY, or none
};

void add_store_options(CLI::App& verb, StoreFlags& flags, const std::string& group);
std::filesystem::path store_directory(const StoreFlags& flags);

// Limits of the store as they are typed; empty: none.
struct StoreLimits {
    std::string disk;       // "20G"
    std::string disk_free;  // "1G"
    std::string ttl;        // "30d"
};

// A conflict says what can be done about it.
Result<std::unique_ptr<store::Store>> open_store(const StoreFlags& flags, bool read_only,
                                                 const StoreLimits& limits = {});

// "calm-otter-417"; no session of the store has it.
Result<std::string> fresh_session_name(store::Store& store);

}  // namespace stet::cli
