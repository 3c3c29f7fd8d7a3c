#include "cli/chat_commands.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/try.h"
#include "cli/report.h"
#include "store/names.h"

namespace stet::cli {
namespace {

struct Call {
    Run& run;
    std::string_view argument;
    Terminal& terminal;
    bool& is_leaving;

    Status answer(const Json& json, std::string_view text) const {
        return terminal.print(run.flags.json ? json_line(json) : fmt::format("{}\n", text));
    }
};

struct Command {
    std::string_view name;
    std::string_view argument;  // empty: takes none
    std::string_view help;
    Status (*run)(const Call&);
};

Status help(const Call& call);

Status undo(const Call& call) {
    STET_TRY(call.run.conversation->undo());
    const auto left = call.run.conversation->turn_count();
    return call.answer({{"undone", true}, {"turn", left}},
                       fmt::format("undone; {} turn{} left", left, left == 1 ? " is" : "s are"));
}

Status fork(const Call& call) {
    STET_TRY(call.run.conversation->fork(call.argument));
    return call.answer({{"forked", call.argument}},
                       fmt::format("forked; /switch {} goes on there", call.argument));
}

Status switch_to(const Call& call) {
    engine::Conversation& conversation = *call.run.conversation;
    STET_TRY(conversation.switch_to(call.argument));
    call.terminal.note(resume_line(conversation.session(), conversation.resume_report()));
    return call.answer(
        {{"switched", call.argument}, {"turn", conversation.turn_count()}},
        fmt::format("this is {} now, after turn {}", call.argument, conversation.turn_count()));
}

Status sessions(const Call& call) {
    std::vector<store::SessionInfo> list;
    SessionUsages usages;
    if (call.run.store != nullptr) {
        STET_ASSIGN(list, call.run.store->list());
        STET_ASSIGN(usages, call.run.store->session_usage());
    }
    Json json = {{"sessions", Json::array()}};
    for (const auto& session : list) {
        json["sessions"].push_back(session_json(session, usages[session.name]));
    }
    if (call.run.flags.json) return call.terminal.print(json_line(json));
    return call.terminal.print(session_table(list, usages, Env::posix().now()));
}

Status save(const Call& call) {
    const engine::Conversation& conversation = *call.run.conversation;
    if (!call.run.has_session()) {
        return Status(Code::unavailable,
                      "this chat was started with --no-session, there is nowhere to save it");
    }
    const auto turns = conversation.turn_count();
    return call.answer(
        {{"saved", conversation.session()}, {"turn", turns}},
        fmt::format("every turn is saved when it ends; {} has {} in {}", conversation.session(),
                    turns, call.run.store->directory().string()));
}

Status quit(const Call& call) {
    call.is_leaving = true;
    return {};
}

constexpr std::array kCommands = {
    Command{"help", "", "list the commands", help},
    Command{"undo", "", "take the last turn back", undo},
    Command{"fork", "NAME", "begin the session NAME with the same turns", fork},
    Command{"switch", "NAME", "go on with the session NAME", switch_to},
    Command{"sessions", "", "list the sessions", sessions},
    Command{"save", "", "say where this session is kept", save},
    Command{"quit", "", "leave; so does Ctrl-D", quit},
};

Status help(const Call& call) {
    Json json = {{"commands", Json::array()}};
    std::string text;
    for (const Command& command : kCommands) {
        json["commands"].push_back(command.name);
        text += fmt::format("/{:<15} {}\n", fmt::format("{} {}", command.name, command.argument),
                            command.help);
    }
    text +=
        "A line that ends in \\ goes on in the next; \"\"\" begins and ends several lines.\n"
        "//TEXT sends /TEXT. Ctrl-C stops an answer and keeps what there is of it.";
    return call.answer(json, text);
}

const Command& nearest(std::string_view name) {
    const Command* best = &kCommands.front();
    std::size_t best_distance = std::numeric_limits<std::size_t>::max();
    for (const Command& command : kCommands) {
        const std::size_t distance = store::edit_distance(name, command.name);
        if (distance < best_distance) {
            best = &command;
            best_distance = distance;
        }
    }
    return *best;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

Status run_command(Run& run, std::string_view line, Terminal& terminal, bool& is_leaving) {
    line = trimmed(line);
    const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
    const std::string_view name = line.substr(0, space);
    const std::string_view argument = trimmed(line.substr(space));
    for (const Command& command : kCommands) {
        if (command.name != name && !(name == "exit" && command.name == "quit")) continue;
        if (command.argument.empty() != argument.empty()) {
            return Status(Code::invalid_argument,
                          fmt::format("usage: /{}{}{}", command.name,
                                      command.argument.empty() ? "" : " ", command.argument));
        }
        return command.run({run, argument, terminal, is_leaving});
    }
    return Status(Code::invalid_argument,
                  fmt::format("there is no command /{}; did you mean /{}? /help lists them", name,
                              nearest(name).name));
}

}  // namespace stet::cli
