// The server's settings as flags, for the verbs that share them.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <string>

#include "server/settings.h"

namespace stet::cli {

struct ServeFlags {
    std::map<std::string, std::string> values;  // as given
    std::string config;
    bool is_json = false;
};

// `flags` must live as long as the parser.
void add_model_argument(CLI::App& verb, ServeFlags& flags);  // in its place, without a flag
void add_settings(CLI::App& verb, ServeFlags& flags);
Result<server::LoadedSettings> settings_of(const ServeFlags& flags);

}  // namespace stet::cli
