// `stet session`: what can be done with kept conversations without a model.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/try.h"
#include "cli/report.h"
#include "cli/session_flags.h"
#include "cli/store_access.h"
#include "cli/verbs.h"
#include "engine/turn_content.h"
#include "state/checkpoint.h"
#include "store/store.h"

namespace stet::cli {
namespace {

// The id of turn `number` of a session; 0 is before the first.
Result<store::TurnId> turn_id(store::Store& store, const std::string& name, std::uint64_t number) {
    if (number == 0) return store::kNoTurn;
    STET_ASSIGN(const auto turns, store.turns(name));
    for (const auto& turn : turns) {
        if (turn.number == number) return turn.id;
    }
    return Status(Code::not_found, fmt::format("session '{}' has no turn {}; it has {}", name,
                                               number, turns.size()));
}

Status list(const SessionFlags& flags, Terminal& terminal) {
    std::vector<store::SessionInfo> sessions;
    SessionUsages usages;
    auto store = open_store(flags.store, true);
    if (store) {
        STET_ASSIGN(sessions, (*store)->list());
        STET_ASSIGN(usages, (*store)->session_usage());
    } else if (store.status().code() != Code::not_found) {
        return store.status();
    }
    if (flags.json) {
        Json json = {{"sessions", Json::array()}};
        for (const auto& session : sessions) {
            json["sessions"].push_back(session_json(session, usages[session.name]));
        }
        return terminal.print(json_line(json));
    }
    if (sessions.empty()) {
        terminal.note(fmt::format("no sessions in {}", store_directory(flags.store).string()));
        return {};
    }
    return terminal.print(session_table(sessions, usages, Env::posix().now()));
}

// The state that a session can be gone on from: everywhere where only token rows count, else the
// ends of its turns.
std::string checkpoints_text(const Result<memory::Schema>& schema) {
    if (!schema) return "unknown (made by an earlier version)";
    return state::needs_checkpoints(*schema) ? "at the end of each turn" : "at every token";
}

Status show(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, true));
    STET_ASSIGN(const auto name, resolve_session(*store, flags.name));
    STET_ASSIGN(const auto session, store->find(name));
    STET_ASSIGN(const auto turns, store->turns(name));
    STET_ASSIGN(auto usages, store->session_usage());
    STET_ASSIGN(const auto shared, store->shared_turns(name));
    const store::SessionUsage& usage = usages[name];
    const auto schema = store->schema(name);
    const auto now = Env::posix().now();
    Json json = {{"session", session_json(session, usage)}, {"turns", Json::array()}};
    json["session"]["can_be_cut_anywhere"] = schema && !state::needs_checkpoints(*schema);
    std::string text = fmt::format(
        "session {}, {} turns, {} tokens, made {}, used {}{}\nmodel {} ({})\n"
        "{} of its own, {} shared with other sessions\ncan be gone on from {}\n",
        session.name, session.turns, session.tokens, format_age(session.created_ns, now),
        format_age(session.used_ns, now), session.is_pinned ? ", pinned" : "", session.model_name,
        session.model_path, format_bytes(usage.own_bytes), format_bytes(usage.shared_bytes),
        checkpoints_text(schema));
    for (const auto& turn : turns) {
        STET_ASSIGN(const auto content, engine::decode_turn_content(turn.content));
        const bool is_shared = turn.number <= shared;
        Json messages = Json::array();
        text += fmt::format("\n-- turn {}, tokens {} to {}{}\n", turn.number, turn.token_begin,
                            turn.token_end, is_shared ? ", shared" : "");
        for (const auto& message : content.messages) {
            messages.push_back({{"role", message.role}, {"content", message.content}});
            text += fmt::format("{}: {}\n", message.role, message.content);
        }
        json["turns"].push_back({{"number", turn.number},
                                 {"token_begin", turn.token_begin},
                                 {"token_end", turn.token_end},
                                 {"created_ns", turn.created_ns},
                                 {"shared", is_shared},
                                 {"messages", std::move(messages)}});
    }
    return terminal.print(flags.json ? json_line(json) : text);
}

// All names are looked up before the first session goes.
Status remove(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, flags.dry_run));
    std::vector<std::string> names;
    for (const auto& typed : flags.names) {
        STET_ASSIGN(names.emplace_back(), resolve_session(*store, typed));
    }
    for (const auto& name : names) {
        if (flags.dry_run) {
            STET_TRY(answer(flags, terminal, {{"removed", name}, {"dry_run", true}},
                            fmt::format("would remove {}", name)));
            continue;
        }
        STET_TRY(store->remove(name));
        STET_TRY(answer(flags, terminal, {{"removed", name}}, fmt::format("removed {}", name)));
    }
    return {};
}

Status fork(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, false));
    STET_ASSIGN(const auto name, resolve_session(*store, flags.name));
    std::optional<store::TurnId> turn;
    if (flags.turn) {
        STET_ASSIGN(turn, turn_id(*store, name, *flags.turn));
    }
    STET_ASSIGN(const auto made, store->fork(name, flags.other, turn));
    return answer(flags, terminal, {{"forked", made.name}, {"from", name}, {"turn", made.turns}},
                  fmt::format("{} begins as {} after turn {}", made.name, name, made.turns));
}

Status roll_back(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, false));
    STET_ASSIGN(const auto name, resolve_session(*store, flags.name));
    STET_ASSIGN(const auto session, store->find(name));
    if (!flags.turn && session.turns == 0) {
        return Status(Code::unavailable,
                      fmt::format("session '{}' has no turn to take back", name));
    }
    const std::uint64_t number = flags.turn ? *flags.turn : session.turns - 1;
    STET_ASSIGN(const auto id, turn_id(*store, name, number));
    STET_TRY(store->rollback(name, id));
    return answer(
        flags, terminal, {{"rolled_back", name}, {"turn", number}},
        fmt::format("{} is back after turn {} (it was after {})", name, number, session.turns));
}

Status rename(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, false));
    STET_ASSIGN(const auto name, resolve_session(*store, flags.name));
    STET_TRY(store->rename(name, flags.other));
    return answer(flags, terminal, {{"renamed", flags.other}, {"from", name}},
                  fmt::format("{} is {} now", name, flags.other));
}

}  // namespace

void add_session(CLI::App& app, Action& action) {
    auto* group = app.add_subcommand("session", "List, show and change kept conversations");
    group->require_subcommand(1);
    auto flags = std::make_shared<SessionFlags>();
    const auto add = [&](const char* name, const char* help,
                         Status (*run)(const SessionFlags&, Terminal&)) {
        auto* verb = group->add_subcommand(name, help);
        add_store_options(*verb, flags->store, "Options");
        verb->add_flag("--json", flags->json, "Answer in JSON");
        verb->callback([flags, run, &action] {
            action.is_json = flags->json;
            action.run = [flags, run](Terminal& terminal) { return run(*flags, terminal); };
        });
        return verb;
    };
    add("ls", "List the sessions, last used first", list);
    add("show", "Print the messages of a session", show)
        ->add_option("name", flags->name, "Session")
        ->required();
    auto* removed = add("rm", "Remove sessions", remove);
    removed->add_option("name", flags->names, "Sessions")->required();
    removed->add_flag("--dry-run", flags->dry_run, "Only say what would go");
    auto* forked = add("fork", "Begin a session with the turns of another", fork);
    forked->add_option("from", flags->name, "Session to fork")->required();
    forked->add_option("to", flags->other, "Name of the new one")->required();
    forked->add_option("--turn", flags->turn, "Fork after this turn; default is the last");
    auto* back = add("rollback", "Take turns of a session back", roll_back);
    back->add_option("name", flags->name, "Session")->required();
    back->add_option("--turn", flags->turn, "Go back to after this turn; default is one back");
    auto* renamed = add("rename", "Give a session another name", rename);
    renamed->add_option("from", flags->name, "Session")->required();
    renamed->add_option("to", flags->other, "New name")->required();
    auto* exported =
        add("export", "Write a session into one file, to be taken elsewhere", export_session);
    exported->add_option("name", flags->name, "Session")->required();
    exported->add_option("file", flags->other, "File; default is NAME.stet");
    exported->add_flag("--zstd", flags->zstd, "Compress it");
    exported->add_flag("--force", flags->force, "Replace a file that is there");
    auto* imported = add("import", "Make a session of an exported file", import_session);
    imported->add_option("file", flags->name, "File that export wrote")->required();
    imported->add_option("--name", flags->other, "Name of the session; default is the old one");
    imported->add_option("-m,--model", flags->model,
                         "Refuse the session unless it is of this model (GGUF)");
    auto* pinned = add("pin", "Keep sessions from eviction and expiry", pin_session);
    pinned->add_option("name", flags->names, "Sessions")->required();
    pinned->add_flag("--off", flags->off, "Let them go again");
    add("du", "Print what the sessions take on the disk", show_usage);
    auto* collected = add("gc", "Give back the space of what no session needs", collect_garbage);
    collected->add_flag("--dry-run", flags->dry_run, "Only say what would go");
    collected->add_option("--ttl", flags->ttl,
                          "Remove sessions unused for longer (s, m, h or d: 30d), not pinned ones");
    add("verify", "Read and prove every record of the store", verify_store);
}

}  // namespace stet::cli
