// `stet completion bash|zsh|fish`: a script made of what the parser and the table of settings know,
// so that it can't fall behind. Names of sessions are asked for when they are wanted.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/try.h"
#include "cli/store_access.h"
#include "cli/verbs.h"
#include "server/settings.h"

namespace stet::cli {
namespace {

enum class Values : std::uint8_t { none, models, sessions, files };

struct Flag {
    std::vector<std::string> shorts;  // without dashes
    std::vector<std::string> longs;
    std::string help;
    bool has_value = false;
    std::string choices;  // of the value, separated by spaces
};

struct Verb {
    std::string path;  // "session show"; empty: the program
    std::string help;
    std::vector<Flag> flags;
    std::vector<std::string> below;            // names
    std::map<std::string, std::string> helps;  // of those below
    Values values = Values::none;              // of positional arguments
};

std::string choices_of(const std::string& name) {
    for (const server::SettingRow& row : server::setting_rows()) {
        if (row.name == name) return std::string(row.choices);
    }
    return {};
}

Flag flag_of(const CLI::Option& option) {
    Flag flag;
    flag.shorts = option.get_snames();
    flag.longs = option.get_lnames();
    flag.help = option.get_description();
    flag.has_value = option.get_items_expected_max() > 0;
    for (const std::string& name : flag.longs) {
        if (flag.has_value && flag.choices.empty()) flag.choices = choices_of(name);
    }
    return flag;
}

Values values_of(const std::string& path, const CLI::App& app) {
    if (path == "session import" || path == "inspect") return Values::files;
    if (path.starts_with("session ")) return Values::sessions;
    for (const CLI::Option* option : app.get_options()) {
        const std::string& name = option->get_single_name();
        if (option->get_positional() && (name == "model" || name == "MODEL")) return Values::models;
    }
    return Values::none;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Verb>& verbs) {
    Verb verb;
    verb.path = path;
    verb.help = app.get_description();
    verb.values = values_of(path, app);
    for (const CLI::Option* option : app.get_options()) {
        if (option->nonpositional()) verb.flags.push_back(flag_of(*option));
    }
    std::vector<const CLI::App*> below;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
        below.push_back(sub);
        verb.below.push_back(sub->get_name());
        verb.helps[sub->get_name()] = sub->get_description();
    }
    if (path == "completion") {
        verb.below = {"bash", "zsh", "fish"};
        for (const std::string& shell : verb.below) verb.helps[shell] = "Its script";
    }
    verbs.push_back(std::move(verb));
    for (const CLI::App* sub : below) {
        collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), verbs);
    }
}

std::string written(const Flag& flag, std::string_view separator) {
    std::vector<std::string> names;
    for (const std::string& name : flag.longs) names.push_back("--" + name);
    for (const std::string& name : flag.shorts) names.push_back("-" + name);
    return fmt::format("{}", fmt::join(names, separator));
}

// --- bash, and zsh through its emulation ---

std::string bash_values(const std::vector<Verb>& verbs) {
    std::map<std::string, std::string> choices;  // by pattern
    for (const Verb& verb : verbs) {
        for (const Flag& flag : verb.flags) {
            if (!flag.choices.empty()) choices[written(flag, "|")] = flag.choices;
        }
    }
    std::string text;
    for (const auto& [pattern, words] : choices) {
        text += fmt::format("        {}) _stet_words '{}'; return ;;\n", pattern, words);
    }
    return text;
}

std::string bash_words(const Verb& verb) {
    std::vector<std::string> words;
    for (const Flag& flag : verb.flags) words.push_back(written(flag, " "));
    return fmt::format("{}", fmt::join(words, " "));
}

std::string bash_positionals(const Verb& verb) {
    switch (verb.values) {
        case Values::models:
            return "_stet_models";
        case Values::sessions:
            return "_stet_words \"$(stet completion sessions 2>/dev/null)\"";
        case Values::files:
            return "_stet_files";
        default:
            return fmt::format("_stet_words '{}'", fmt::join(verb.below, " "));
    }
}

std::string bash_script(const std::vector<Verb>& verbs) {
    std::string paths, cases;
    for (const Verb& verb : verbs) {
        if (!verb.path.empty()) {
            const std::size_t space = verb.path.rfind(' ');
            const std::string known = space == std::string::npos ? " " + verb.path : verb.path;
            paths += fmt::format("            '{}') verb='{}' ;;\n", known, verb.path);
        }
        cases += fmt::format(
            "        '{}') if [[ $cur == -* ]]; then _stet_words '{}'; else {}; fi ;;\n", verb.path,
            bash_words(verb), bash_positionals(verb));
    }
    return "_stet_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$cur\")); }\n"
           "_stet_files() { local IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$cur\")); }\n"
           "_stet_models() {\n"
           "    local IFS=$'\\n'\n"
           "    COMPREPLY=($(compgen -f -X '!*.gguf' -- \"$cur\") $(compgen -d -- \"$cur\"))\n"
           "}\n"
           "_stet() {\n"
           "    local IFS=$' \\t\\n' verb='' i\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case \"$verb ${COMP_WORDS[i]}\" in\n" +
           paths +
           "        esac\n"
           "    done\n"
           "    case $prev in\n"
           "        --session) _stet_words \"$(stet completion sessions "
           "2>/dev/null)\"; return ;;\n"
           "        -m|--model) _stet_models; return ;;\n"
           "    esac\n"
           "    case $prev in\n" +
           bash_values(verbs) +
           "    esac\n"
           "    case $verb in\n" +
           cases +
           "    esac\n"
           "}\n"
           "complete -o filenames -F _stet stet\n";
}

// --- fish ---

std::string fish_quoted(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text) {
        if (c == '\'' || c == '\\') quoted += '\\';
        quoted += c;
    }
    return quoted + "'";
}

std::string fish_condition(const std::string& path) {
    if (path.empty()) return "__fish_use_subcommand";
    std::string condition;
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find(' ', begin), path.size());
        condition += fmt::format("{}__fish_seen_subcommand_from {}", begin == 0 ? "" : "; and ",
                                 path.substr(begin, end - begin));
        begin = end + 1;
    }
    return condition;
}

std::string fish_flag(const std::string& head, const Flag& flag) {
    std::string line = head;
    for (const std::string& name : flag.longs) line += " -l " + name;
    for (const std::string& name : flag.shorts) line += " -s " + name;
    const bool is_session = !flag.longs.empty() && flag.longs.front() == "session";
    if (is_session) {
        line += " -x -a '(stet completion sessions)'";
    } else if (!flag.choices.empty()) {
        line += " -x -a " + fish_quoted(flag.choices);
    } else if (flag.has_value) {
        line += " -r";
    }
    return line + " -d " + fish_quoted(flag.help) + "\n";
}

std::string fish_script(const std::vector<Verb>& verbs) {
    std::string text = "complete -c stet -f\n";
    for (const Verb& verb : verbs) {
        std::string condition = fish_condition(verb.path);
        const std::string head = "complete -c stet -n " + fish_quoted(condition);
        for (const Flag& flag : verb.flags) text += fish_flag(head, flag);
        if (!verb.path.empty() && !verb.below.empty()) {
            condition +=
                fmt::format("; and not __fish_seen_subcommand_from {}", fmt::join(verb.below, " "));
        }
        for (const std::string& name : verb.below) {
            text += fmt::format("complete -c stet -n {} -a {} -d {}\n", fish_quoted(condition),
                                name, fish_quoted(verb.helps.at(name)));
        }
        if (verb.values == Values::models)
            text += head + " -k -a '(__fish_complete_suffix .gguf)'\n";
        if (verb.values == Values::sessions) text += head + " -a '(stet completion sessions)'\n";
        if (verb.values == Values::files) text += head + " -F\n";
    }
    return text;
}

Status print_sessions(Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store({}, true));
    STET_ASSIGN(const auto sessions, store->list());
    std::string text;
    for (const store::SessionInfo& session : sessions) text += session.name + "\n";
    return terminal.print(text);
}

Status complete(const CLI::App& app, const std::string& shell, Terminal& terminal) {
    if (shell == "sessions") return print_sessions(terminal);
    std::vector<Verb> verbs;
    collect(app, "", verbs);
    if (shell == "fish") return terminal.print(fish_script(verbs));
    const std::string script = bash_script(verbs);
    if (shell == "bash") return terminal.print(script);
    return terminal.print("#compdef stet\nautoload -U +X bashcompinit && bashcompinit\n" + script);
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand("completion", "Print a script that completes commands");
    auto shell = std::make_shared<std::string>();
    verb->add_option("shell", *shell, "bash, zsh or fish (or sessions: names of the kept ones)")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish", "sessions"}).description(""));
    verb->callback([shell, &app, &action] {
        action.run = [shell, &app](Terminal& terminal) { return complete(app, *shell, terminal); };
    });
}

}  // namespace stet::cli
