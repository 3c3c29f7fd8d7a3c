// `stet run`: the parts that one-shot and chat share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/store_access.h"
#include "cli/terminal.h"
#include "engine/conversation.h"
#include "engine/engine.h"
#include "stet/status.h"
#include "store/store.h"

namespace stet::cli {

struct RunFlags {
    std::string program;  // as the person called it
    std::string model;
    std::optional<std::string> prompt;
    std::string prompt_file;
    std::string system;
    std::string session;
    StoreFlags store;
    StoreLimits limits;
    std::string ram;  // of state; empty: half of the machine
    std::string k_type = "f16";
    std::string v_type = "f16";
    std::vector<std::string> stop;
    std::string json_schema;  // of answers: JSON, or a file of it
    std::string grammar;      // of answers: a file of GBNF
    engine::SamplerOptions sampling;
    engine::DenoiseOptions denoise;
    std::string denoise_flag;  // one of its options that was given
    std::int64_t predict = -1;
    std::uint32_t context = 0;
    std::uint32_t threads = 0;
    std::uint32_t batch = 512;
    bool chat = false;
    bool raw = false;
    bool json = false;
    bool ignore_eos = false;
    bool no_session = false;
    bool quiet = false;
};

// A model that is ready to answer. Members are destroyed last first: a conversation holds pages of
// its engine's pool.
struct Run {
    RunFlags flags;
    std::unique_ptr<engine::Engine> engine;
    std::unique_ptr<store::Store> store;  // null: nothing is kept
    std::unique_ptr<engine::Conversation> conversation;
    std::shared_ptr<const grammar::Grammar> grammar;  // of answers; null: anything goes
    double load_ms = 0.0;

    bool has_session() const { return store != nullptr; }
    engine::TurnRequest request(std::string text) const;
};

// One turn for a program or for a person: streams the text unless it is to be JSON, prints the
// JSON only after the turn is durable. cancelled (with an empty message) when Ctrl-C stopped it;
// what there is of the answer is kept then.
Status run_turn(Run& run, std::string text, Terminal& terminal);
// Messages until there are no more; `first` is one to begin with.
Status chat(Run& run, const std::optional<std::string>& first, Terminal& terminal);

}  // namespace stet::cli
