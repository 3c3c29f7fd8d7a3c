// The engine: sequences in, tokens out. One loop, each turn of it a transaction:
//
//   step():  schedule -> run -> sample
//
// Prompts are computed in chunks between decode steps, and sequences share a step. A step that
// fails leaves every sequence as it was.
//
// Thread rules: one thread at a time, except Generation::cancel().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch.h"
#include "engine/denoise.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "grammar/matcher.h"
#include "memory/page_pool.h"
#include "model/model.h"
#include "state/sequence.h"
#include "state/snapshot.h"
#include "stet/status.h"
#include "text/tokenizer.h"

namespace stet::engine {

struct EngineOptions {
    model::ModelOptions model;
    std::uint32_t context = 0;            // tokens a sequence may have; 0: as trained
    std::uint32_t batch = 512;            // tokens of a step at most
    std::uint64_t state_limit_bytes = 0;  // pages of all sequences; 0: half of the machine's memory
};

enum class StopReason : std::uint8_t {
    running,    // not stopped yet
    end,        // the model ended its turn
    length,     // tokens_max reached
    stop_text,  // one of the stop texts appeared
    context,    // the sequence has as many tokens as the context allows
    cancelled,
    failed,  // failure() says why
};
std::string_view stop_reason_name(StopReason reason);  // "end", "length", "stop", ...

struct GenerateOptions {
    SamplerOptions sampling;
    std::uint64_t tokens_max = 0;   // 0: until the model ends or the context is full
    std::vector<std::string> stop;  // texts that end the answer; not part of it
    std::vector<Token> shown;       // control tokens that the text shows, sorted
    bool ignore_end = false;        // go on past end-of-generation tokens
    bool prompt_only = false;       // compute the prompt and end there, by length
    // Log-probabilities of each token of the answer and of so many of its rivals.
    std::optional<std::uint32_t> logprobs;
    // What the answer may look like. Where nothing more can come it ends; with an end that the
    // grammar does not want it ends by length. It fails when it can be read in too many ways.
    grammar::Constraint constraint;
    DenoiseOptions denoise;  // of diffusion models; the others don't look at it
};

struct Timings {  // milliseconds
    double prompt = 0.0;
    double decode = 0.0;
    double first_token = 0.0;  // from submit to the first sampled token
};

// One answer in the making.
class Generation {
  public:
    // `sequence` is the state so far, `prompt` the tokens to add to it (at least one).
    Generation(state::Sequence sequence, std::vector<Token> prompt, GenerateOptions options);

    // Called with each piece of text as it becomes certain (never half a character, never part of a
    // stop text). May be empty.
    std::function<void(std::string_view)> on_text;
    // Diffusion models: called with the answer as each step leaves it. May be empty.
    std::function<void(const Denoiser&)> on_denoise;
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

    bool is_done() const { return stop_ != StopReason::running; }
    StopReason stop() const { return stop_; }
    // Why it can't go on, with stop() failed: a fault of this answer alone.
    const Status& failure() const { return failure_; }
    const std::vector<Token>& output() const { return output_; }  // sampled, without the end token
    const std::string& text() const { return text_; }
    // One for each token of output() when they were asked for.
    const std::vector<TokenLogprobs>& logprobs() const { return logprobs_; }
    // Which of the stop texts appeared; empty unless stop() is stop_text.
    const std::string& stop_text() const { return stop_text_; }
    std::uint64_t prompt_tokens() const { return prompt_.size(); }
    const Timings& timings() const { return timings_; }
    const Sampler& sampler() const { return sampler_; }
    void set_sampler(Sampler sampler) { sampler_ = std::move(sampler); }
    // The state after the last step: everything but the last sampled token was computed.
    const state::Sequence& sequence() const { return sequence_; }
    // Tokens sampled but not yet part of the state (the last one, unless it ended the turn).
    std::span<const Token> pending() const;

  private:
    friend class Engine;

    state::Sequence sequence_;
    std::vector<Token> prompt_;
    std::uint64_t prompt_done_ = 0;
    GenerateOptions options_;
    Sampler sampler_;
    std::vector<Token> output_;
    std::string text_;
    std::vector<TokenLogprobs> logprobs_;
    std::string stop_text_;
    std::string held_text_;  // could be the begin of a stop text
    std::unique_ptr<text::StreamDecoder> decoder_;
    std::unique_ptr<grammar::Matcher> matcher_;  // null: anything goes
    std::optional<Token> next_;                  // sampled, to be fed
    std::unique_ptr<Denoiser> denoiser_;         // null: tokens come one after the other
    std::vector<Token> before_;                  // with a denoiser: all before the answer
    StopReason stop_ = StopReason::running;
    Status failure_;
    std::atomic<bool> cancelled_{false};
    Timings timings_;
    double submitted_ms_ = 0.0;
};

class Engine {
  public:
    // Loads model and tokenizer. A model whose tokenizer is unknown is refused; see `without_text`
    // for models that are only fed token ids.
    static Result<std::unique_ptr<Engine>> create(std::unique_ptr<gguf::File> file,
                                                  const EngineOptions& options,
                                                  bool without_text = false);
    ~Engine();

    // Runs one step over all parts: either every sequence has its tokens afterwards, or none has.
    // Answers the logits row after row, [rows][vocabulary], or hidden states where they are asked
    // for, [rows][width]; valid until the next step.
    Result<std::span<const float>> run(std::span<const Part> parts);

    // Adds a generation to the loop. It must stay alive until is_done() or withdraw().
    // invalid_argument: no tokens, ids out of range, more tokens than the context has.
    // unimplemented: a constraint for a diffusion model, or without text.
    Status submit(Generation& generation);
    void withdraw(Generation& generation);
    // One turn of the loop over everything submitted. False when nothing is left to do. A failure
    // names what happened; sequences are as before the step.
    Result<bool> step();
    // submit() and step() until this one is done.
    Status generate(Generation& generation);
    // The state after a whole answer, with its sampler: the last sampled token is computed too,
    // unless it ended the turn or the context is full.
    Result<state::Sequence> settle(const Generation& generation, bool keep_logits);

    const model::Model& model() const { return *model_; }
    bool has_text() const { return tokenizer_ != nullptr; }
    const text::Tokenizer& tokenizer() const { return *tokenizer_; }  // requires has_text()
    memory::PagePool& pool() { return *pool_; }
    const memory::Schema& schema() const { return model_->config.schema; }
    std::uint32_t context() const { return context_; }
    std::uint32_t batch() const { return batch_; }  // tokens of a step at most
    // What a sequence restored into this engine must fit, sampler state included.
    state::Limits limits(std::uint32_t sequences_max) const;
    // Bytes of the buffers that steps compute in; grows only when a new batch shape comes.
    std::size_t reserved_bytes() const { return runner_->buffer_bytes(); }
    // The model reads a prompt with an encoder and answers with a decoder (T5). A generation whose
    // sequence is empty encodes its prompt; later ones give theirs to the decoder.
    bool has_encoder() const { return model_->config.encoder.encoder_layers != 0; }
    // A diffusion model: an answer is filled in block by block (engine/denoise.h). The state of a
    // sequence is its tokens; a block joins them when it is whole.
    bool is_diffusion() const;
    std::uint32_t vocabulary() const { return model_->config.vocabulary; }

  private:
    Engine() = default;

    Status check_kinds(std::span<const Part> parts) const;
    bool must_encode(const Generation& generation) const {
        return has_encoder() && !generation.next_ && generation.sequence_.position() == 0;
    }
    std::vector<Part> schedule(std::vector<Generation*>& chosen);
    void sample(Generation& generation, std::span<const float> logits);
    // Whether the token joined the answer; else it ended it.
    bool take(Generation& generation, Token token, std::optional<TokenLogprobs> logprobs);
    Status begin_constraint(Generation& generation) const;
    // denoise_step.cpp
    Status begin_denoising(Generation& generation) const;
    Status denoise(Generation& generation);
    Status denoise_block(Generation& generation);
    Status finish_block(Generation& generation);
    void emit(Generation& generation, std::string_view text);
    void finish(Generation& generation, StopReason reason);
    void fail(Generation& generation, Status failure);
    Status check_tokens(std::span<const Token> tokens) const;

    std::unique_ptr<model::Model> model_;
    std::unique_ptr<text::Tokenizer> tokenizer_;  // null: without text
    std::unique_ptr<memory::PagePool> pool_;
    std::unique_ptr<model::Runner> runner_;
    std::vector<Generation*> generations_;
    std::uint32_t context_ = 0;
    std::uint32_t batch_ = 0;
};

}  // namespace stet::engine
