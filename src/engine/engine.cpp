#include "engine/engine.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>

#include "base/memory_size.h"
#include "base/try.h"
#include "state/checkpoint.h"

namespace stet::engine {
namespace {

constexpr std::uint32_t kBatchMax = 1U << 16;

double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Gives each part that wants them the logits of its last token.
void keep_logits(std::span<const Part> parts, std::span<const float> logits,
                 std::size_t vocabulary) {
    std::size_t row = 0;
    for (const Part& part : parts) {
        const RowRange wanted = part.wanted();
        row += wanted.end - wanted.begin;
        if (!part.keep_logits) continue;
        const auto kept = logits.subspan((row - 1) * vocabulary, vocabulary);
        part.sequence->logits =
            std::make_shared<const std::vector<float>>(kept.begin(), kept.end());
    }
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
    constexpr std::array<std::string_view, 7> kNames = {"running", "end",       "length", "stop",
                                                        "context", "cancelled", "failed"};
    return kNames.at(static_cast<std::size_t>(reason));
}

Generation::Generation(state::Sequence sequence, std::vector<Token> prompt, GenerateOptions options)
    : sequence_(std::move(sequence)),
      prompt_(std::move(prompt)),
      options_(std::move(options)),
      sampler_(options_.sampling) {}

std::span<const Token> Generation::pending() const {
    return next_ ? std::span(&*next_, 1) : std::span<const Token>();
}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<gguf::File> file,
                                               const EngineOptions& options, bool without_text) {
    std::unique_ptr<Engine> engine(new Engine());
    if (!without_text) {
        STET_ASSIGN(engine->tokenizer_, text::Tokenizer::load(*file));
    }
    STET_ASSIGN(engine->model_, model::Model::load(std::move(file), options.model));
    const model::Config& config = engine->model_->config;
    if (engine->tokenizer_ && engine->tokenizer_->size() > config.vocabulary) {
        return Status(Code::corruption,
                      fmt::format("{}: the tokenizer has {} tokens, the model {} rows",
                                  engine->model_->file->path().string(), engine->tokenizer_->size(),
                                  config.vocabulary));
    }
    engine->context_ = options.context == 0 ? config.context_length : options.context;
    engine->batch_ = std::clamp<std::uint32_t>(options.batch, 1, kBatchMax);
    const std::uint64_t limit =
        options.state_limit_bytes == 0 ? half_of_memory() : options.state_limit_bytes;
    engine->pool_ = std::make_unique<memory::PagePool>(config.schema, limit);
    engine->runner_ = std::make_unique<model::Runner>(*engine->model_);
    return engine;
}

Status Engine::check_tokens(std::span<const Token> tokens) const {
    for (const Token token : tokens) {
        if (token < 0 || static_cast<std::uint32_t>(token) >= vocabulary()) {
            return Status(Code::invalid_argument, fmt::format("token id {} is not between 0 and {}",
                                                              token, vocabulary() - 1));
        }
    }
    return {};
}

// What an encoder reads is a step of its own, and so is what answers hidden states.
Status Engine::check_kinds(std::span<const Part> parts) const {
    for (const Part& part : parts) {
        if (part.hidden != parts[0].hidden || (part.hidden && part.keep_logits)) {
            return Status(Code::invalid_argument, "a step answers either logits or hidden states");
        }
        if (part.encodes != parts[0].encodes) {
            return Status(Code::invalid_argument,
                          "a step either encodes all of its sequences or none");
        }
        if (!part.encodes) continue;
        if (!has_encoder()) {
            return Status(Code::invalid_argument,
                          fmt::format("{} has no encoder", model_->config.architecture->name));
        }
        const Logits answered = part.hidden ? Logits::all : Logits::none;
        if (part.sequence->position() != 0 || part.logits != answered) {
            return Status(Code::invalid_argument,
                          fmt::format("an encoder reads the begin of a sequence and gives no "
                                      "logits; this one has {} tokens",
                                      part.sequence->position()));
        }
    }
    return {};
}

Result<std::span<const float>> Engine::run(std::span<const Part> parts) {
    Batch batch(*pool_);
    STET_TRY(check_kinds(parts));
    for (const Part& part : parts) {
        const std::uint64_t position = part.sequence->position();
        if (part.tokens.empty() ||
            part.tokens.size() > context_ - std::min<std::uint64_t>(context_, position)) {
            return Status(Code::invalid_argument,
                          fmt::format("{} tokens at position {} do not fit a context of {}",
                                      part.tokens.size(), position, context_));
        }
        STET_TRY(check_tokens(part.tokens));
        STET_TRY(batch.add(part));
    }
    STET_ASSIGN(const auto logits, runner_->run(batch.step()));
    batch.commit();
    keep_logits(parts, logits, vocabulary());
    return logits;
}

Status Engine::submit(Generation& generation) {
    if (generation.prompt_.empty())
        return Status(Code::invalid_argument, "the prompt has no tokens");
    STET_TRY(generation.options_.sampling.validate());
    STET_TRY(check_tokens(generation.prompt_));
    const std::uint64_t total = generation.sequence_.position() + generation.prompt_.size();
    if (total > context_) {
        return Status(
            Code::resource_exhausted,
            fmt::format("the conversation needs {} tokens, the context has {}; raise --ctx "
                        "or start anew",
                        total, context_));
    }
    if (is_diffusion()) STET_TRY(begin_denoising(generation));
    if (generation.options_.constraint) STET_TRY(begin_constraint(generation));
    if (tokenizer_) {
        generation.decoder_ =
            std::make_unique<text::StreamDecoder>(*tokenizer_, false, generation.options_.shown);
    }
    generation.submitted_ms_ = now_ms();
    generations_.push_back(&generation);
    return {};
}

Status Engine::begin_constraint(Generation& generation) const {
    if (is_diffusion() || !tokenizer_) {
        return Status(Code::unimplemented,
                      fmt::format("answers of this model ({}) can't be held to a grammar: {}",
                                  model_->config.architecture->name,
                                  is_diffusion() ? "it does not write from left to right"
                                                 : "it has no tokenizer"));
    }
    STET_ASSIGN(generation.matcher_,
                grammar::Matcher::create(generation.options_.constraint, *tokenizer_));
    return {};
}

void Engine::withdraw(Generation& generation) {
    std::erase(generations_, &generation);
}

// Every generation that decodes gets its token; what is left of the batch goes to prompts in order.
std::vector<Part> Engine::schedule(std::vector<Generation*>& chosen) {
    std::vector<Part> parts;
    for (Generation* generation : generations_) {
        if (!must_encode(*generation)) continue;
        chosen.push_back(generation);
        return {{.sequence = &generation->sequence_,
                 .tokens = generation->prompt_,
                 .logits = Logits::none,
                 .encodes = true}};
    }
    std::size_t budget = batch_;
    for (Generation* generation : generations_) {
        if (!generation->next_ || budget == 0) continue;
        parts.push_back({&generation->sequence_, std::span(&*generation->next_, 1), Logits::last});
        chosen.push_back(generation);
        --budget;
    }
    for (Generation* generation : generations_) {
        if (generation->next_ || budget == 0) continue;
        const auto rest = std::span(generation->prompt_).subspan(generation->prompt_done_);
        const std::size_t count =
            std::min({rest.size(), budget,
                      state::step_tokens_max(schema(), generation->sequence_.position())});
        parts.push_back({&generation->sequence_, rest.first(count),
                         count == rest.size() ? Logits::last : Logits::none});
        chosen.push_back(generation);
        budget -= count;
    }
    return parts;
}

Result<bool> Engine::step() {
    for (Generation* generation : std::vector(generations_)) {
        if (generation->cancelled_.load(std::memory_order_relaxed)) {
            finish(*generation, StopReason::cancelled);
        }
    }
    if (generations_.empty()) return false;
    if (is_diffusion()) {
        // In turn: each step computes a whole sequence.
        std::rotate(generations_.begin(), generations_.begin() + 1, generations_.end());
        STET_TRY(denoise(*generations_.back()));
        return true;
    }
    std::vector<Generation*> chosen;
    const std::vector<Part> parts = schedule(chosen);
    if (parts.empty()) return false;
    STET_ASSIGN(std::span<const float> logits, run(parts));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        Generation& generation = *chosen[i];
        if (!generation.next_) {
            const std::size_t count = parts[i].tokens.size();
            for (const Token token : parts[i].tokens) generation.sampler_.accept(token);
            generation.prompt_done_ += count;
        }
        generation.next_.reset();
        if (parts[i].encodes) generation.next_ = model_->config.encoder.start_token;
        if (parts[i].logits == Logits::none) continue;
        sample(generation, logits.first(vocabulary()));
        logits = logits.subspan(vocabulary());
    }
    return true;
}

void Engine::sample(Generation& generation, std::span<const float> logits) {
    if (generation.options_.prompt_only) {
        generation.timings_.prompt = now_ms() - generation.submitted_ms_;
        return finish(generation, StopReason::length);
    }
    std::span<const float> allowed = logits;
    if (generation.matcher_) {
        const Result<std::span<const float>> masked = generation.matcher_->mask(logits);
        if (!masked) return fail(generation, masked.status());
        allowed = *masked;
        if (allowed.empty()) {
            const bool is_complete = generation.matcher_->is_complete();
            return finish(generation, is_complete ? StopReason::end : StopReason::length);
        }
    }
    const Token token = generation.sampler_.sample(allowed);
    std::optional<TokenLogprobs> logprobs;
    if (generation.options_.logprobs) {
        logprobs = token_logprobs(logits, token, *generation.options_.logprobs);
    }
    if (!take(generation, token, std::move(logprobs))) return;
    generation.next_ = token;
    if (generation.is_done()) return;
    const std::uint64_t tokens_max = generation.options_.tokens_max;
    if (tokens_max != 0 && generation.output_.size() >= tokens_max) {
        finish(generation, StopReason::length);
    } else if (generation.sequence_.position() >= context_) {
        finish(generation, StopReason::context);
    }
}

// A token joins the answer, or ends it.
bool Engine::take(Generation& generation, Token token, std::optional<TokenLogprobs> logprobs) {
    const double now = now_ms();
    Timings& timings = generation.timings_;
    if (generation.output_.empty()) {
        timings.first_token = timings.prompt = now - generation.submitted_ms_;
    } else {
        timings.decode = now - generation.submitted_ms_ - timings.prompt;
    }
    const bool is_end = tokenizer_ && tokenizer_->is_end_of_generation(token);
    grammar::Matcher* matcher = generation.matcher_.get();
    if (is_end && (matcher != nullptr || !generation.options_.ignore_end)) {
        const bool is_cut = matcher != nullptr && !matcher->is_complete();
        finish(generation, is_cut ? StopReason::length : StopReason::end);
        return false;
    }
    const Result<bool> accepted = matcher == nullptr ? Result<bool>(true) : matcher->accept(token);
    if (!accepted) {
        fail(generation, accepted.status());
        return false;
    }
    if (!*accepted) {  // whatever was allowed has been banned
        finish(generation, StopReason::length);
        return false;
    }
    generation.sampler_.accept(token);
    generation.output_.push_back(token);
    if (logprobs) generation.logprobs_.push_back(*std::move(logprobs));
    if (generation.decoder_) emit(generation, generation.decoder_->add(token));
    return true;
}

// Passes text on, except what could still become a stop text.
void Engine::emit(Generation& generation, std::string_view text) {
    std::string& held = generation.held_text_;
    held += text;
    std::size_t stop_at = std::string::npos;
    std::size_t hold = 0;
    for (const std::string& stop : generation.options_.stop) {
        if (stop.empty()) continue;
        if (const std::size_t found = held.find(stop); found < stop_at) {
            stop_at = found;
            generation.stop_text_ = stop;
        }
        for (std::size_t n = std::min(stop.size() - 1, held.size()); n > hold; --n) {
            if (held.ends_with(std::string_view(stop).substr(0, n))) hold = n;
        }
    }
    const bool stopped = stop_at != std::string::npos;
    const std::string ready = held.substr(0, stopped ? stop_at : held.size() - hold);
    held.erase(0, ready.size());
    generation.text_ += ready;
    if (!ready.empty() && generation.on_text) generation.on_text(ready);
    if (stopped) {
        held.clear();
        finish(generation, StopReason::stop_text);
    }
}

void Engine::finish(Generation& generation, StopReason reason) {
    if (generation.is_done()) return;
    generation.stop_ = reason;
    if (generation.decoder_ && reason != StopReason::stop_text) {
        const std::string rest =
            std::exchange(generation.held_text_, {}) + generation.decoder_->finish();
        generation.text_ += rest;
        if (!rest.empty() && generation.on_text) generation.on_text(rest);
    }
    withdraw(generation);
}

void Engine::fail(Generation& generation, Status failure) {
    generation.failure_ = std::move(failure);
    finish(generation, StopReason::failed);
}

Status Engine::generate(Generation& generation) {
    STET_TRY(submit(generation));
    while (!generation.is_done()) {
        const Result<bool> stepped = step();
        if (!stepped) {
            withdraw(generation);
            return stepped.status();
        }
    }
    return generation.failure();
}

Result<state::Sequence> Engine::settle(const Generation& generation, bool keep_logits) {
    state::Sequence end = generation.sequence();
    if (!generation.pending().empty() && end.position() < context_) {
        const Logits logits = keep_logits ? Logits::last : Logits::none;
        const Part part{&end, generation.pending(), logits, keep_logits};
        STET_TRY(run(std::span(&part, 1)).status());
    }
    end.sampler = std::make_shared<const std::vector<std::byte>>(generation.sampler().encode());
    return end;
}

state::Limits Engine::limits(std::uint32_t sequences_max) const {
    state::Limits limits;
    limits.tokens_max = context_;
    limits.sequences_max = sequences_max;
    limits.vocabulary = vocabulary();
    limits.check_sampler = [](std::span<const std::byte> data) {
        return Sampler::decode(data, {}).status();
    };
    return limits;
}

}  // namespace stet::engine
