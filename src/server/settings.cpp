#include "server/settings.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <charconv>

#include "base/env.h"
#include "base/try.h"
#include "base/units.h"

namespace stet::server {
namespace {

constexpr std::int64_t kMax32 = 1LL << 31;
constexpr std::string_view kModel = "Model";
constexpr std::string_view kState = "State";
constexpr std::string_view kServer = "Server";
constexpr std::string_view kStateTypes = "f16 q8_0 f32";

using S = Settings;
constexpr std::array kRows = {
    SettingRow{"model", "-m", kModel, &S::model, 0, 0, "", "Model file (GGUF)"},
    SettingRow{"alias", "-a", kModel, &S::alias, 0, 0, "", "Name of the model for clients"},
    SettingRow{"ctx-size", "-c,--ctx", kModel, &S::context, 0, 1 << 30, "",
               "Tokens that a conversation may have; 0: as trained"},
    SettingRow{"parallel", "--np", kModel, &S::parallel, 1, 256, "",
               "Conversations computed side by side (also -np)"},
    SettingRow{"threads", "-t", kModel, &S::threads, 0, 1024, "", "0: one for each core"},
    SettingRow{"batch-size", "-b,--batch,--ubatch-size,--ub", kModel, &S::batch, 1, 65536, "",
               "Prompt tokens computed in one step"},
    SettingRow{"deterministic", "", kModel, &S::deterministic, 0, 0, "",
               "Same answers whatever was reused or shares a step; slower prompts"},
    SettingRow{"predict", "-n,--n-predict", kModel, &S::predict, -1, kMax32, "",
               "Tokens of an answer at most; -1: no limit"},
    SettingRow{"pooling", "", kModel, &S::pooling, 0, 0, "none mean cls last",
               "Embeddings: one row of all tokens' rows, or each; as the model says"},
    SettingRow{"embd-normalize", "", kModel, &S::embd_normalize, -1, 64, "",
               "Of pooled rows: -1 none, 0 largest is 32760, 2 length 1, else p-norm 1"},
    SettingRow{"cache-type-k", "--ctk", kModel, &S::k_type, 0, 0, kStateTypes,
               "Type of keys in the state (also -ctk)"},
    SettingRow{"cache-type-v", "--ctv", kModel, &S::v_type, 0, 0, kStateTypes,
               "Type of values in the state (also -ctv)"},
    SettingRow{"ram", "--cram,--cache-ram", kState, &S::ram_mib, 0, kMax32, "",
               "State in memory at most (4G; a number is MiB); 0: half of the machine", false,
               Unit::mebibytes},
    SettingRow{"store", "", kState, &S::store, 0, 0, "", "Directory of the conversations"},
    SettingRow{"store-key-file", "", kState, &S::store_key_file, 0, 0, "",
               "File with the key of an encrypted store (openssl rand -hex 32)"},
    SettingRow{"store-key", "", kState, &S::store_key, 0, 0, "",
               "That key itself: for STET_STORE_KEY, not for a command line", true},
    SettingRow{"disk", "", kState, &S::disk_mib, 0, kMax32, "",
               "Bound of that directory (20G), shared equally by the keys; 0: none", false,
               Unit::mebibytes},
    SettingRow{"disk-free", "", kState, &S::disk_free_mib, 0, kMax32, "",
               "Left free on its disk (1G)", false, Unit::mebibytes},
    SettingRow{"ttl", "", kState, &S::ttl, 0, 0, "",
               "Conversations unused for longer go (30d), pinned ones stay", false, Unit::duration},
    SettingRow{"scrub", "", kState, &S::scrub_mib, 0, 4096, "",
               "MiB a second read in idle time to find damage; 0: none", false, Unit::mebibytes},
    SettingRow{"durability", "", kState, &S::durability, 0, 0, "turn idle none",
               "When answers are made durable: before they end, soon after, or never"},
    SettingRow{"slot-save-path", "", kState, &S::slot_save_path, 0, 0, "",
               "Directory of slot files; without it they are refused"},
    SettingRow{"kept-sequences", "", kState, &S::kept_sequences, 0, 65536, "",
               "Finished sequences kept in memory at most"},
    SettingRow{"auto-sessions", "", kState, &S::auto_sessions, 0, 1 << 20, "",
               "Unnamed conversations kept in the store at most"},
    SettingRow{"host", "", kServer, &S::host, 0, 0, "",
               "Address to listen on; any but this machine's own needs --api-key"},
    SettingRow{"port", "", kServer, &S::port, 0, 65535, "", "0: any free one"},
    SettingRow{"api-key", "", kServer, &S::api_key, 0, 0, "",
               "Keys of clients, separated by commas; each has its own conversations", true},
    SettingRow{"api-key-file", "", kServer, &S::api_key_file, 0, 0, "", "File with a key a line"},
    SettingRow{"threads-http", "", kServer, &S::threads_http, 1, 64, "", "Threads for clients"},
    SettingRow{"timeout", "--to", kServer, &S::timeout_s, 1, kMax32, "",
               "Seconds that a request may take"},
    SettingRow{"queue", "", kServer, &S::queue, 1, 65536, "", "Requests that may wait"},
    SettingRow{"connections", "", kServer, &S::connections, 1, 65536, "", "Connections at most"},
    SettingRow{"body-mib", "", kServer, &S::body_mib, 1, 1024, "", "MiB of a request at most"},
    SettingRow{"no-metrics", "", kServer, &S::no_metrics, 0, 0, "", "No /metrics"},
    SettingRow{"no-slots", "", kServer, &S::no_slots, 0, 0, "", "No /slots"},
    SettingRow{"log-json", "", kServer, &S::log_json, 0, 0, "", "Log one JSON object a line"},
    SettingRow{"log-level", "", kServer, &S::log_level, 0, 0, "debug info warn error off", ""},
};

Status wrong(const SettingRow& row, std::string_view source, std::string_view expected,
             std::string_view found) {
    return Status(Code::invalid_argument,
                  fmt::format("setting '{}' ({}) must be {}, found '{}'", row.name, source,
                              expected, row.is_secret ? "..." : found));
}

Result<std::int64_t> number_of(const SettingRow& row, std::string_view source,
                               std::string_view text) {
    std::int64_t number = 0;
    const bool is_plain = text.find_first_not_of("-0123456789") == std::string_view::npos;
    if (row.unit == Unit::mebibytes && !is_plain) {
        const auto bytes = parse_size(text);
        const std::string whole = bytes ? std::to_string(*bytes >> 20U) : std::string(text);
        if (!bytes) return wrong(row, source, "a size such as 500M or 20G", text);
        SettingRow plain = row;
        plain.unit = Unit::none;
        return number_of(plain, source, whole);
    }
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < row.min || number > row.max) {
        return wrong(row, source, fmt::format("a number from {} to {}", row.min, row.max), text);
    }
    return number;
}

bool is_choice(std::string_view choices, std::string_view text) {
    while (!choices.empty()) {
        const std::string_view word = choices.substr(0, choices.find(' '));
        if (word == text) return true;
        choices.remove_prefix(std::min(choices.size(), word.size() + 1));
    }
    return false;
}

Status set(const SettingRow& row, Settings& settings, std::string_view source,
           std::string_view text) {
    if (const auto* member = std::get_if<std::string Settings::*>(&row.member)) {
        if (!row.choices.empty() && !is_choice(row.choices, text)) {
            return wrong(row, source, fmt::format("one of: {}", row.choices), text);
        }
        if (row.unit == Unit::duration && !text.empty() && !parse_duration(text)) {
            return wrong(row, source, "a time such as 12h or 30d", text);
        }
        settings.** member = text;
    } else if (const auto* flag = std::get_if<bool Settings::*>(&row.member)) {
        const bool is_on = text == "true" || text == "1" || text == "on";
        if (!is_on && text != "false" && text != "0" && text != "off") {
            return wrong(row, source, "true or false", text);
        }
        settings.** flag = is_on;
    } else {
        STET_ASSIGN(const std::int64_t number, number_of(row, source, text));
        if (const auto* small = std::get_if<std::uint32_t Settings::*>(&row.member)) {
            settings.** small = static_cast<std::uint32_t>(number);
        } else {
            settings.*std::get<std::int64_t Settings::*>(row.member) = number;
        }
    }
    return {};
}

// The [serve] table of the file as text by name.
Result<std::map<std::string, std::string>> read_settings_file(const std::filesystem::path& path) {
    constexpr std::uint64_t kFileBytesMax = 1U << 20;
    STET_ASSIGN(const auto bytes, read_file(Env::posix(), path, kFileBytesMax));
    std::string text;
    for (const std::byte byte : bytes) text += static_cast<char>(byte);
    std::map<std::string, std::string> values;
    try {
        const toml::table file = toml::parse(text, path.string());
        const toml::table* table = file["serve"].as_table();
        if (table == nullptr) return values;
        for (const auto& [key, node] : *table) {
            const std::string name(key.str());
            if (const auto* word = node.as_string()) {
                values[name] = word->get();
            } else if (const auto* number = node.as_integer()) {
                values[name] = std::to_string(number->get());
            } else if (const auto* flag = node.as_boolean()) {
                values[name] = flag->get() ? "true" : "false";
            } else {
                return Status(Code::invalid_argument,
                              fmt::format("{}: '{}' is no string, whole number or boolean",
                                          path.string(), name));
            }
        }
    } catch (const toml::parse_error& error) {
        return Status(Code::invalid_argument,
                      fmt::format("{}: line {}: {}", path.string(), error.source().begin.line,
                                  error.description()));
    }
    return values;
}

Status check_names(const std::map<std::string, std::string>& values, std::string_view source) {
    for (const auto& [name, value] : values) {
        const auto* at = std::find_if(kRows.begin(), kRows.end(),
                                      [&](const SettingRow& row) { return row.name == name; });
        if (at == kRows.end()) {
            return Status(Code::invalid_argument,
                          fmt::format("{}: there is no setting '{}'; stet config show lists them",
                                      source, name));
        }
    }
    return {};
}

}  // namespace

std::span<const SettingRow> setting_rows() {
    return kRows;
}

std::string environment_name(const SettingRow& row) {
    std::string name = "STET_";
    for (const char c : row.name) {
        name += c == '-' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
    }
    return name;
}

std::string shown_value(const SettingRow& row, const Settings& settings) {
    if (const auto* word = std::get_if<std::string Settings::*>(&row.member)) {
        return row.is_secret && !(settings.**word).empty() ? "(set)" : settings.**word;
    }
    if (const auto* flag = std::get_if<bool Settings::*>(&row.member)) {
        return settings.**flag ? "true" : "false";
    }
    if (const auto* small = std::get_if<std::uint32_t Settings::*>(&row.member)) {
        return std::to_string(settings.**small);
    }
    return std::to_string(settings.*std::get<std::int64_t Settings::*>(row.member));
}

Result<LoadedSettings> load_settings(const SettingSources& sources) {
    LoadedSettings loaded;
    std::map<std::string, std::string> from_file;
    std::filesystem::path file = sources.file.value_or(sources.default_file);
    if (!file.empty()) {
        auto read = read_settings_file(file);
        if (read) {
            from_file = std::move(read).value();
        } else if (sources.file || read.status().code() != Code::not_found) {
            return read.status();
        }
    }
    const std::string file_source = "file " + file.string();
    STET_TRY(check_names(from_file, file_source));
    STET_TRY(check_names(sources.flags, "command line"));
    for (const SettingRow& row : kRows) {
        const std::string name(row.name);
        const std::string variable = environment_name(row);
        const char* from_environment = sources.environment(variable.c_str());
        std::string source = "default";
        std::optional<std::string> value;
        if (const auto at = from_file.find(name); at != from_file.end()) {
            source = file_source;
            value = at->second;
        }
        if (from_environment != nullptr) {
            source = "environment " + variable;
            value = from_environment;
        }
        if (const auto at = sources.flags.find(name); at != sources.flags.end()) {
            source = "flag --" + name;
            value = at->second;
        }
        if (value) STET_TRY(set(row, loaded.settings, source, *value));
        loaded.sources[name] = source;
    }
    return loaded;
}

}  // namespace stet::server
