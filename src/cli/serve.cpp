// `stet serve` and `stet config show`: both know only the table of settings.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

#include "base/try.h"
#include "cli/interrupt.h"
#include "cli/paths.h"
#include "cli/report.h"
#include "cli/serve_flags.h"
#include "cli/verbs.h"
#include "server/server.h"
#include "server/settings.h"
#include "store/store.h"

namespace stet::cli {

void add_model_argument(CLI::App& verb, ServeFlags& flags) {
    verb.add_option_function<std::string>(
            "MODEL", [&flags](const std::string& value) { flags.values["model"] = value; },
            "Model file (GGUF)")
        ->type_name("");
}

void add_settings(CLI::App& verb, ServeFlags& flags) {
    for (const server::SettingRow& row : server::setting_rows()) {
        const std::string name(row.name);
        std::string names = "--" + name;
        if (!row.aliases.empty()) names = fmt::format("{},{}", row.aliases, names);
        CLI::Option* option = nullptr;
        if (std::holds_alternative<bool server::Settings::*>(row.member)) {
            option = verb.add_flag_callback(
                names, [&flags, name] { flags.values[name] = "true"; }, std::string(row.help));
        } else {
            option = verb.add_option_function<std::string>(
                names, [&flags, name](const std::string& value) { flags.values[name] = value; },
                std::string(row.help));
            option->type_name("")->take_last();
        }
        option->group(std::string(row.group));
    }
    verb.add_option("--config", flags.config, "File of settings (TOML, [serve])")->type_name("");
}

Result<server::LoadedSettings> settings_of(const ServeFlags& flags) {
    server::SettingSources sources;
    sources.flags = flags.values;
    if (!flags.config.empty()) sources.file = flags.config;
    sources.default_file = config_directory() / "config.toml";
    sources.environment = [](const char* name) { return std::getenv(name); };
    return server::load_settings(sources);
}

namespace {

Status serve(const ServeFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const server::LoadedSettings loaded, settings_of(flags));
    server::ServerOptions options;
    options.settings = loaded.settings;
    options.store_directory = store::default_store_directory();
    options.cache_directory = cache_directory();
    STET_ASSIGN(const auto server, server::Server::create(options));
    catch_termination();
    server->start();
    STET_TRY(terminal.print(server->address() + "\n"));
    while (!interrupt_flag().load()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    constexpr std::chrono::seconds kPatience(30);
    server->stop(kPatience);
    return {};
}

Status show(const ServeFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const server::LoadedSettings loaded, settings_of(flags));
    std::string text;
    Json json = Json::object();
    for (const server::SettingRow& row : server::setting_rows()) {
        const std::string value = server::shown_value(row, loaded.settings);
        const std::string& source = loaded.sources.at(std::string(row.name));
        json[std::string(row.name)] = {{"value", value}, {"source", source}};
        text += fmt::format("{:<16} {:<24} {}\n", row.name, value.empty() ? "-" : value, source);
    }
    return terminal.print(flags.is_json ? json_line(json) : text);
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand("serve", "Answer clients over HTTP");
    auto flags = std::make_shared<ServeFlags>();
    add_model_argument(*verb, *flags);
    add_settings(*verb, *flags);
    verb->callback([flags, &action] {
        action.run = [flags](Terminal& terminal) { return serve(*flags, terminal); };
    });
}

void add_config(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand("config", "Settings of the server, and where they come from");
    verb->require_subcommand(1);
    auto* show_verb = verb->add_subcommand("show", "Print every setting");
    auto flags = std::make_shared<ServeFlags>();
    show_verb->add_flag("--json", flags->is_json, "One JSON object");
    add_settings(*show_verb, *flags);
    show_verb->callback([flags, &action] {
        action.is_json = flags->is_json;
        action.run = [flags](Terminal& terminal) { return show(*flags, terminal); };
    });
}

}  // namespace stet::cli
