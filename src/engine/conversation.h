// A conversation: turns of text over one sequence, durable when it has a session in a store.
//
// A turn is a transaction: its prompt is rendered and fed, the answer sampled, and the result
// committed to the store before the turn is reported. A turn that fails, or a process that dies,
// leaves the session at its last committed turn.
//
// Thread rules: one thread at a time, except the cancel flag of a TurnRequest.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/turn_content.h"
#include "state/sequence.h"
#include "stet/status.h"
#include "store/store.h"
#include "text/chat_parser.h"
#include "text/chat_template.h"

namespace stet::engine {

struct TurnRequest {
    std::string text;
    bool raw = false;  // the text as it is: no template; special tokens are parsed
    GenerateOptions options;
    std::function<void(const text::ChatDelta&)> on_part;  // of the answer, as it becomes certain
    std::function<void(const Denoiser&)> on_denoise;      // as of a Generation
    const std::atomic<bool>* cancel = nullptr;            // polled between steps
};

struct TurnResult {
    std::string text;                   // of the answer, without its reasoning
    std::string reasoning;              // where the model's form sets it apart
    std::vector<Token> tokens;          // of the answer
    std::uint64_t prompt_tokens = 0;    // the whole prompt, reused and computed
    std::uint64_t reused_tokens = 0;    // of it, those whose state was there
    std::uint64_t computed_tokens = 0;  // of it, those computed now
    StopReason stop = StopReason::running;
    Timings timings;  // milliseconds
    double commit_ms = 0.0;
    std::uint64_t turn_number = 0;  // 1 for the first
    bool is_durable = false;        // committed to the store
};

// Why a conversation that was opened has less state than its session has tokens.
struct ResumeReport {
    std::uint64_t tokens = 0;           // of the session
    std::uint64_t restored_tokens = 0;  // whose state was read back
    std::string reason;                 // empty when all were
    double restore_ms = 0.0;
    std::uint64_t bytes_read = 0;
};

class Conversation {
  public:
    // `store` may be null: nothing is kept. A `session` that exists is resumed, else created with
    // its first committed turn. Damaged pages are reported and recomputed from the tokens at the
    // next turn; another model's session is refused (incompatible).
    static Result<std::unique_ptr<Conversation>> open(Engine& engine, store::Store* store,
                                                      std::string session,
                                                      const Hash256& fingerprint,
                                                      std::string system_prompt);

    Result<TurnResult> run_turn(const TurnRequest& request);

    // Back to before the last turn, here and in the store. unavailable when there is none.
    Status undo();
    // A new session with the same turns; this conversation goes on unchanged.
    Status fork(std::string_view name);
    // This conversation goes on as the session `name` (after fork()).
    Status switch_to(std::string_view name);

    const std::string& session() const { return session_; }
    const ResumeReport& resume_report() const { return resume_; }
    std::uint64_t turn_count() const { return turns_.size(); }
    std::vector<Message> messages() const;  // of all turns, in order
    const state::Sequence& sequence() const { return sequence_; }

  private:
    // What is remembered of a turn; messages and text are stored as JSON in store::Turn::content.
    struct TurnRecord {
        store::TurnId id = store::kNoTurn;
        std::vector<Message> messages;
        std::string text;  // what the turn's tokens stand for, special tokens written out
        std::vector<std::byte> sampler;      // state after the turn
        std::optional<state::Sequence> end;  // checkpoint; missing when only the store has it
    };
    // New text and tokens of a turn, and the messages that it adds.
    struct Prompt {
        std::vector<Message> messages;
        std::string text;
        std::vector<Token> tokens;
    };

    Conversation(Engine& engine, store::Store* store, std::string session,
                 const Hash256& fingerprint, std::string system_prompt);
    Status resume();
    Result<Prompt> make_prompt(const TurnRequest& request) const;
    Result<std::string> new_text(const std::vector<Message>& before,
                                 const std::vector<Message>& after) const;
    Result<std::string> render(const std::vector<Message>& messages, bool generation_prompt) const;
    Status answer(const TurnRequest& request, Generation& generation);
    Result<GenerateOptions> options_of(const TurnRequest& request, std::string_view prompt) const;
    Status commit(TurnRecord& record, const state::Sequence& end);

    Engine& engine_;
    store::Store* store_;
    std::string session_;
    Hash256 fingerprint_;
    std::string system_prompt_;
    std::optional<text::ChatTemplate> template_;
    const text::ChatFormat* format_ = nullptr;  // that the template teaches
    state::Sequence sequence_;
    std::vector<Token> lost_;  // tokens whose state was damaged: fed again with the next turn
    std::vector<TurnRecord> turns_;
    ResumeReport resume_;
};

}  // namespace stet::engine
