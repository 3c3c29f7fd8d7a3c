// A request for text as the engine loop takes it, and what comes back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/turn_content.h"
#include "stet/status.h"

namespace stet::server {

using engine::Token;

// What one or more steps added.
struct Progress {
    std::string text;
    std::vector<Token> tokens;
    std::vector<engine::TokenLogprobs> logprobs;
};

// Where the state that a prompt began with came from, and why it was not more.
struct ReuseReport {
    std::uint64_t matched_tokens = 0;  // of the prompt, found in some sequence of the tenant
    std::uint64_t reused_tokens = 0;   // of them, those whose state was used
    std::string source = "none";       // "live", "kept", "stored", "none"
    std::string reason;                // empty unless less was reused than matched
};

struct Answer {
    Status status;  // everything else says how far it got
    std::string text;
    std::vector<Token> tokens;
    std::vector<engine::TokenLogprobs> logprobs;
    Progress rest;  // what no progress() has brought yet
    engine::StopReason stop = engine::StopReason::running;
    std::string stop_text;
    engine::Timings timings;  // milliseconds
    std::uint64_t prompt_tokens = 0;
    ReuseReport reuse;
    std::uint32_t slot = 0;
    std::uint64_t seed = 0;
    double queue_ms = 0.0;
    // Of the store; empty when the answer was not committed.
    std::string session;
    std::int64_t turn_id = 0;
    std::uint64_t turn_number = 0;
    bool is_durable = false;
    double commit_ms = 0.0;

    std::uint64_t computed_tokens() const { return prompt_tokens - reuse.reused_tokens; }
};

// Who waits for an answer. Called on the engine's thread: must not block.
class AnswerSink {
  public:
    virtual ~AnswerSink() = default;
    // Whether another progress() is wanted now. What was not passed on waits, and comes later in
    // one piece: a slow client costs no memory.
    virtual bool can_take() const = 0;
    virtual void progress(Progress progress) = 0;
    virtual void done(Answer answer) = 0;  // once, last
};

struct Job {
    std::string request_id;
    std::string tenant;
    std::vector<Token> prompt;  // at least one
    engine::GenerateOptions options;
    std::optional<std::uint32_t> slot;  // wanted
    bool may_reuse = true;
    // What the store keeps of the turn, besides its state.
    std::string session;                    // empty: one without a name of its own
    std::vector<engine::Message> messages;  // all, without the answer; may be empty
    std::string key;                        // Idempotency-Key; goes into the turn
    bool may_commit = true;
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::shared_ptr<AnswerSink> sink;
    std::atomic<bool> is_cancelled{false};
};

}  // namespace stet::server
