// The settings of the server: one table gives flags, environment variables, keys of the TOML file,
// help and `stet config show`.
//
// A flag wins over the environment, that over the file, that over the default. A setting named
// "ctx-size" is --ctx-size, STET_CTX_SIZE, and ctx-size under [serve] in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stet/status.h"

namespace stet::server {

struct Settings {
    std::string model;
    std::string alias;
    std::uint32_t context = 0;
    std::uint32_t parallel = 4;
    std::uint32_t threads = 0;
    std::uint32_t batch = 512;
    bool deterministic = false;
    std::int64_t predict = -1;
    std::string k_type = "f16";
    std::string v_type = "f16";
    std::uint32_t ram_mib = 0;
    std::string pooling;  // of embeddings; empty: as the model says
    std::int64_t embd_normalize = 2;

    std::string store;
    std::string store_key;  // of an encrypted store
    std::string store_key_file;
    std::string durability = "turn";
    std::uint32_t disk_mib = 0;
    std::uint32_t disk_free_mib = 0;
    std::string ttl;
    std::uint32_t scrub_mib = 1;
    std::string slot_save_path;
    std::uint32_t kept_sequences = 256;
    std::uint32_t auto_sessions = 1000;

    std::string host = "127.0.0.1";
    std::uint32_t port = 8080;
    std::string api_key;
    std::string api_key_file;
    std::uint32_t threads_http = 2;
    std::uint32_t timeout_s = 3600;
    std::uint32_t queue = 256;
    std::uint32_t connections = 512;
    std::uint32_t body_mib = 16;

    bool no_metrics = false;
    bool no_slots = false;
    bool log_json = false;
    std::string log_level = "info";
};

using SettingMember = std::variant<std::string Settings::*, std::uint32_t Settings::*,
                                   std::int64_t Settings::*, bool Settings::*>;

// How a value is written, where that is more than its type.
enum class Unit : std::uint8_t {
    none,
    mebibytes,  // of numbers: "20G" as well
    duration,   // of strings: "30d"
};

struct SettingRow {
    std::string_view name;     // of the long flag
    std::string_view aliases;  // other flags, separated by commas; llama-server's where it has them
    std::string_view group;    // in --help
    SettingMember member;
    std::int64_t min = 0;  // of numbers
    std::int64_t max = 0;
    std::string_view choices;  // of strings, separated by spaces; empty: any
    std::string_view help;
    bool is_secret = false;  // never shown
    Unit unit = Unit::none;
};

std::span<const SettingRow> setting_rows();
std::string environment_name(const SettingRow& row);  // "STET_CTX_SIZE"
std::string shown_value(const SettingRow& row, const Settings& settings);

struct LoadedSettings {
    Settings settings;
    std::map<std::string, std::string> sources;  // by name: "default", "file PATH", ...
};

struct SettingSources {
    std::map<std::string, std::string> flags;             // by name; flags of type bool: "true"
    std::optional<std::filesystem::path> file;            // must exist
    std::filesystem::path default_file;                   // need not exist
    std::function<const char*(const char*)> environment;  // like getenv
};

// invalid_argument names the setting, where its value came from, and what is allowed.
Result<LoadedSettings> load_settings(const SettingSources& sources);

}  // namespace stet::server
