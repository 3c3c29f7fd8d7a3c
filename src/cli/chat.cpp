#include <fmt/format.h>

#include <string>

#include "base/try.h"
#include "cli/chat_commands.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/report.h"
#include "cli/run.h"
#include "cli/store_access.h"

namespace stet::cli {
namespace {

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

void greet(const Run& run, Terminal& terminal) {
    if (!terminal.is_interactive()) return;
    const std::string& name = run.engine->model().config.name;
    terminal.note(fmt::format("{}, {} tokens of context{}{}. /help lists commands, Ctrl-D leaves.",
                              one_line(name.empty() ? run.flags.model : name),
                              run.engine->context(),
                              run.has_session() ? ", session " : ", not kept",
                              run.has_session() ? run.conversation->session() : ""));
}

// The command that goes on with this session, ready to paste. Flags that the state depends on are
// part of it.
std::string resume_command(const Run& run) {
    const RunFlags& flags = run.flags;
    std::string command = fmt::format("{} run {} --session {}", shell_quoted(flags.program),
                                      shell_quoted(flags.model), run.conversation->session());
    if (!flags.store.directory.empty()) {
        command += " --store " + shell_quoted(flags.store.directory);
    }
    if (!flags.store.key_file.empty()) {
        command += " --store-key-file " + shell_quoted(flags.store.key_file);
    }
    if (flags.k_type != "f16") command += " --ctk " + flags.k_type;
    if (flags.v_type != "f16") command += " --ctv " + flags.v_type;
    if (flags.context != 0) command += fmt::format(" --ctx {}", flags.context);
    if (flags.raw) command += " --raw";
    return command;
}

void say_farewell(const Run& run, Terminal& terminal) {
    if (!run.has_session() || run.conversation->turn_count() == 0 || run.flags.json) return;
    terminal.note(fmt::format("session {} is kept; go on with\n  {}", run.conversation->session(),
                              resume_command(run)));
}

// Says what went wrong with one message; the chat goes on.
Status report_failure(const Run& run, const Status& status, Terminal& terminal) {
    if (status.message().empty()) return {};  // an answer that Ctrl-C stopped: it was shown
    if (run.flags.json) return terminal.print(error_json(status));
    if (status.code() == Code::cancelled) {
        terminal.note(status.to_string());
    } else {
        terminal.fail(status);
    }
    return {};
}

Status handle(Run& run, std::string message, Terminal& terminal, bool& is_leaving) {
    if (message.starts_with("//")) {
        message.erase(0, 1);
    } else if (message.starts_with('/')) {
        return run_command(run, std::string_view(message).substr(1), terminal, is_leaving);
    }
    return run_turn(run, std::move(message), terminal);
}

// Reads and handles messages until there are no more. Answers what the process should report.
Status converse(Run& run, std::string message, LineReader& reader, Terminal& terminal) {
    const bool is_interactive = terminal.is_interactive();
    bool was_interrupted = false;
    bool is_leaving = false;
    Status last_failure;
    while (!is_leaving) {
        if (is_blank(message)) {
            STET_ASSIGN(const Input input, read_message(reader, message));
            if (input == Input::end) break;
            if (input == Input::interrupted) {
                if (!is_interactive) return Status(Code::cancelled, "");
                if (std::exchange(was_interrupted, true)) break;
                terminal.note("Ctrl-C again or Ctrl-D leaves");
                message.clear();
                continue;
            }
        }
        was_interrupted = false;
        if (is_blank(message)) continue;
        const Status status = handle(run, std::exchange(message, {}), terminal, is_leaving);
        interrupt_flag().store(false);
        STET_TRY(terminal.output_status());
        if (status.is_ok()) continue;
        STET_TRY(report_failure(run, status, terminal));
        if (status.code() != Code::cancelled) last_failure = Status(status.code(), "");
    }
    // Somebody at a terminal has seen it; a script has only the exit code.
    return is_interactive ? Status() : last_failure;
}

}  // namespace

Status chat(Run& run, const std::optional<std::string>& first, Terminal& terminal) {
    greet(run, terminal);
    const auto reader = LineReader::create(terminal);
    const Status status = converse(run, first.value_or(""), *reader, terminal);
    say_farewell(run, terminal);
    return status;
}

}  // namespace stet::cli
