// The verbs of the command line. Each adds its subcommand to the parser and names what to do when
// it was chosen; one file a verb.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "cli/terminal.h"
#include "stet/status.h"

namespace stet::cli {

// What the chosen verb does. Empty: none was chosen.
struct Action {
    std::function<Status(Terminal&)> run;
    bool is_json = false;  // failures are wanted as a JSON line on standard output too
};

void add_inspect(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action, const std::string& program);
void add_embed(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_detokenize(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_config(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_session(CLI::App& app, Action& action);
void add_selftest(CLI::App& app, Action& action);
void add_version(CLI::App& app, Action& action);
std::string version_line();

}  // namespace stet::cli
