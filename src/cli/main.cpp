// stet: the command line. Parses, runs the chosen verb, and turns its Status into one line and an
// exit code (docs/reference/errors.md).
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "exec/thread_runtime.h"

namespace stet::cli {
namespace {

// CLI11 takes arguments last first. Some long options have a well-known form with a single dash,
// which it would read as a short option with a value.
std::vector<std::string> arguments(int argc, char** argv) {
    std::vector<std::string> list(argv + std::min(argc, 1), argv + argc);
    for (auto& argument : list) {
        if (argument == "--") break;
        constexpr std::array kSingleDash = {"-ctk", "-ctv", "-np", "-ub", "-cram", "-to"};
        const auto is_long = [&](const char* form) { return argument == form; };
        if (std::any_of(kSingleDash.begin(), kSingleDash.end(), is_long)) argument.insert(0, "-");
    }
    std::reverse(list.begin(), list.end());
    return list;
}

Status parse(CLI::App& app, int argc, char** argv, Terminal& terminal, bool& is_finished) {
    try {
        app.parse(arguments(argc, argv));
        return {};
    } catch (const CLI::CallForAllHelp&) {
        is_finished = true;
        return terminal.print(app.help("", CLI::AppFormatMode::All));
    } catch (const CLI::CallForHelp&) {
        is_finished = true;
        return terminal.print(app.help());
    } catch (const CLI::CallForVersion&) {
        is_finished = true;
        return terminal.print(version_line() + "\n");
    } catch (const CLI::ParseError& error) {
        const auto chosen = app.get_subcommands();
        if (chosen.empty() && argc > 1 && argv[1][0] != '-') {
            return Status(Code::invalid_argument,
                          fmt::format("there is no verb '{}'; stet --help lists them", argv[1]));
        }
        std::string line = error.what();
        std::replace(line.begin(), line.end(), '\n', ' ');
        const std::string verb = chosen.empty() ? "" : " " + chosen.front()->get_name();
        return Status(Code::invalid_argument, line + "; see stet" + verb + " --help");
    }
}

int finish(Terminal& terminal, const Action& action, const Status& status) {
    if (status) return 0;
    if (terminal.reader_left()) return exit_code(Code::io);
    if (status.message().empty()) return exit_code(status.code());  // was said already
    if (action.is_json && terminal.output_status()) {
        if (!terminal.print(error_json(status))) return exit_code(Code::io);
    }
    terminal.fail(status);
    return exit_code(status.code());
}

int run(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves is a failed write, not a death
    std::signal(SIGXFSZ, SIG_IGN);  // so is a limit on the size of files
    catch_interrupts();
    Terminal terminal;
    Action action;
    CLI::App app("Runs language models and keeps their conversations.", "stet");
    app.set_version_flag("--version", version_line(), "Print the version");
    app.require_subcommand(1);
    add_run(app, action, argc > 0 ? argv[0] : "stet");
    add_serve(app, action);
    add_embed(app, action);
    add_tokenize(app, action);
    add_detokenize(app, action);
    add_session(app, action);
    add_inspect(app, action);
    add_selftest(app, action);
    add_config(app, action);
    add_doctor(app, action);
    add_completion(app, action);
    add_version(app, action);
    bool is_finished = false;
    Status status = parse(app, argc, argv, terminal, is_finished);
    if (status && !is_finished) status = action.run(terminal);
    return finish(terminal, action, status);
}

}  // namespace
}  // namespace stet::cli

int main(int argc, char** argv) {
    stet::exec::restart_with_short_spins(argv);
    try {
        return stet::cli::run(argc, argv);
    } catch (const std::bad_alloc&) {
        stet::cli::Terminal().fail({stet::Code::resource_exhausted, "out of memory"});
        return stet::exit_code(stet::Code::resource_exhausted);
    } catch (const std::exception& error) {
        stet::cli::Terminal().fail({stet::Code::internal, error.what()});
        return stet::exit_code(stet::Code::internal);
    }
}
