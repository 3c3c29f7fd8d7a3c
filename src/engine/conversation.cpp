#include "engine/conversation.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/stopwatch.h"
#include "base/try.h"
#include "engine/turn_text.h"
#include "grammar/begin.h"
#include "state/checkpoint.h"

namespace stet::engine {
namespace {

// Takes the answer to a rendered prompt apart. What was asked for raw is content as it is.
class Answer {
  public:
    Answer(const TurnRequest& request, const text::ChatFormat& format, std::string_view prompt)
        : on_part_(request.on_part) {
        if (!request.raw) parser_.emplace(text::chat_options_of(format, prompt, ""));
    }
    void add(std::string_view text) {
        give(parser_ ? parser_->add(text) : text::ChatDelta{{}, std::string(text), {}});
    }
    void finish() {
        if (parser_) give(parser_->finish());
    }
    const std::string& content() const { return content_; }
    const std::string& reasoning() const { return reasoning_; }

  private:
    void give(const text::ChatDelta& part) {
        content_ += part.content;
        reasoning_ += part.reasoning;
        if (on_part_ && !part.is_empty()) on_part_(part);
    }

    const std::function<void(const text::ChatDelta&)>& on_part_;
    std::optional<text::ChatParser> parser_;
    std::string content_;
    std::string reasoning_;
};

}  // namespace

Conversation::Conversation(Engine& engine, store::Store* store, std::string session,
                           const Hash256& fingerprint, std::string system_prompt)
    : engine_(engine),
      store_(store),
      session_(std::move(session)),
      fingerprint_(fingerprint),
      system_prompt_(std::move(system_prompt)),
      sequence_(state::Sequence::empty(engine.schema())) {}

Result<std::unique_ptr<Conversation>> Conversation::open(Engine& engine, store::Store* store,
                                                         std::string session,
                                                         const Hash256& fingerprint,
                                                         std::string system_prompt) {
    std::unique_ptr<Conversation> conversation(
        new Conversation(engine, store, std::move(session), fingerprint, std::move(system_prompt)));
    STET_ASSIGN(conversation->template_, text::ChatTemplate::for_model(*engine.model().file));
    conversation->format_ = &text::chat_format_of(conversation->template_->source());
    if (store != nullptr) STET_TRY(conversation->resume());
    return conversation;
}

Status Conversation::resume() {
    const Result<store::SessionInfo> info = store_->find(session_);
    if (!info && info.status().code() == Code::not_found) return {};
    STET_TRY(info.status());
    resume_.tokens = info->tokens;
    STET_ASSIGN(const auto turns, store_->turns(session_));
    turns_.clear();
    for (const store::Turn& turn : turns) {
        STET_ASSIGN(auto content, decode_turn_content(turn.content));
        turns_.push_back(
            {turn.id, std::move(content.messages), std::move(content.text), turn.sampler, {}});
    }
    const Stopwatch watch;
    auto loaded = store_->load(session_, fingerprint_, engine_.pool());
    resume_.restore_ms = watch.ms();
    if (loaded) {
        resume_.restored_tokens = loaded->sequence.position();
        resume_.bytes_read = loaded->bytes_read;
        sequence_ = std::move(loaded->sequence);
        if (!turns_.empty()) turns_.back().end = sequence_;
        return {};
    }
    const Code code = loaded.status().code();
    if (code != Code::corruption && code != Code::unavailable) return loaded.status();
    resume_.reason = loaded.status().to_string();
    STET_ASSIGN(lost_, store_->tokens(session_));
    sequence_ = state::Sequence::empty(engine_.schema());
    return {};
}

std::vector<Message> Conversation::messages() const {
    std::vector<Message> all;
    for (const TurnRecord& turn : turns_) {
        all.insert(all.end(), turn.messages.begin(), turn.messages.end());
    }
    return all;
}

Result<std::string> Conversation::render(const std::vector<Message>& messages,
                                         bool generation_prompt) const {
    const text::Tokenizer& tokenizer = engine_.tokenizer();
    const auto piece = [&](Token token) {
        return token == text::kNoToken ? std::string() : tokenizer.piece(token, true);
    };
    return template_->render(template_variables(messages, generation_prompt, piece(tokenizer.bos()),
                                                piece(tokenizer.eos())),
                             std::chrono::system_clock::now());
}

// The text that messages `after` add to what the turns' tokens already stand for.
Result<std::string> Conversation::new_text(const std::vector<Message>& before,
                                           const std::vector<Message>& after) const {
    std::string so_far;
    for (const TurnRecord& turn : turns_) so_far += turn.text;
    const auto render_messages = [this](const std::vector<Message>& messages,
                                        bool generation_prompt) {
        return render(messages, generation_prompt);
    };
    return new_turn_text(render_messages, so_far, before, after);
}

Result<Conversation::Prompt> Conversation::make_prompt(const TurnRequest& request) const {
    Prompt prompt;
    const std::vector<Message> before = messages();
    if (before.empty() && !system_prompt_.empty() && !request.raw) {
        prompt.messages.push_back({"system", system_prompt_});
    }
    prompt.messages.push_back({"user", request.text});
    if (request.raw) {
        prompt.text = request.text;
    } else {
        std::vector<Message> after = before;
        after.insert(after.end(), prompt.messages.begin(), prompt.messages.end());
        STET_ASSIGN(prompt.text, new_text(before, after));
    }
    const text::Tokenizer& tokenizer = engine_.tokenizer();
    const bool first = turns_.empty();
    std::string_view to_encode = prompt.text;
    if (first && !request.raw && tokenizer.adds_bos() && tokenizer.bos() != text::kNoToken) {
        const std::string bos = tokenizer.piece(tokenizer.bos(), true);
        if (to_encode.starts_with(bos)) to_encode.remove_prefix(bos.size());
    }
    STET_ASSIGN(const auto encoded,
                tokenizer.encode(to_encode, {.add_special = first, .parse_special = true}));
    prompt.tokens = lost_;
    prompt.tokens.insert(prompt.tokens.end(), encoded.begin(), encoded.end());
    return prompt;
}

// The parser sees the control tokens that it goes by; a form begins where the answer does.
Result<GenerateOptions> Conversation::options_of(const TurnRequest& request,
                                                 std::string_view prompt) const {
    GenerateOptions options = request.options;
    if (request.raw) return options;
    const text::Tokenizer& tokenizer = engine_.tokenizer();
    options.shown = text::marker_tokens(*format_, tokenizer, false);
    if (options.constraint) {
        STET_ASSIGN(
            options.constraint.begin,
            grammar::begin_of_answer(text::chat_options_of(*format_, prompt, ""), tokenizer));
    }
    return options;
}

Status Conversation::answer(const TurnRequest& request, Generation& generation) {
    generation.on_denoise = request.on_denoise;
    if (!turns_.empty() && !turns_.back().sampler.empty()) {
        STET_ASSIGN(Sampler sampler,
                    Sampler::decode(turns_.back().sampler, request.options.sampling));
        const std::uint64_t seed = request.options.sampling.seed;
        if (seed == 0 || seed == sampler.seed()) generation.set_sampler(std::move(sampler));
    }
    STET_TRY(engine_.submit(generation));
    while (!generation.is_done()) {
        if (request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed)) {
            generation.cancel();
        }
        const Result<bool> stepped = engine_.step();
        if (!stepped) {
            engine_.withdraw(generation);
            return stepped.status();
        }
    }
    if (generation.stop() == StopReason::cancelled && generation.output().empty()) {
        return Status(Code::cancelled, "stopped before the first token of the answer");
    }
    return generation.failure();
}

Status Conversation::commit(TurnRecord& record, const state::Sequence& end) {
    if (store_ == nullptr) return {};
    const memory::Schema& schema = engine_.schema();
    const Result<store::SessionInfo> info = store_->find(session_);
    if (!info) {
        if (info.status().code() != Code::not_found) return info.status();
        const model::Model& model = engine_.model();
        STET_TRY(store_
                     ->create(session_, fingerprint_, schema, model.config.name,
                              model.file->path().string())
                     .status());
    }
    STET_ASSIGN(
        const store::Turn turn,
        store_->commit_turn(session_, schema, end,
                            {encode_turn_content({record.messages, record.text}), record.sampler}));
    record.id = turn.id;
    return {};
}

Result<TurnResult> Conversation::run_turn(const TurnRequest& request) {
    STET_ASSIGN(Prompt prompt, make_prompt(request));
    TurnResult result;
    result.reused_tokens = sequence_.position();
    result.computed_tokens = prompt.tokens.size();
    result.prompt_tokens = result.reused_tokens + result.computed_tokens;
    Answer parts(request, *format_, prompt.text);
    STET_ASSIGN(GenerateOptions options, options_of(request, prompt.text));
    Generation generation(sequence_, prompt.tokens, std::move(options));
    generation.on_text = [&parts](std::string_view piece) { parts.add(piece); };
    STET_TRY(answer(request, generation));
    parts.finish();
    result.text = parts.content();
    result.reasoning = parts.reasoning();
    result.tokens = generation.output();
    result.stop = generation.stop();
    result.timings = generation.timings();

    STET_ASSIGN(state::Sequence end, engine_.settle(generation, false));
    TurnRecord record;
    record.messages = std::move(prompt.messages);
    record.text = std::move(prompt.text);
    record.sampler = *end.sampler;
    state::checkpoint(engine_.schema(), end);
    for (const Token token : generation.output()) {
        record.text += engine_.tokenizer().piece(token, true);
    }
    record.messages.push_back({"assistant", parts.content()});
    const Stopwatch watch;
    STET_TRY(commit(record, end));
    result.commit_ms = watch.ms();
    result.is_durable = store_ != nullptr;
    // Committed: from here on this is the conversation.
    record.end = end;
    sequence_ = std::move(end);
    lost_.clear();
    turns_.push_back(std::move(record));
    result.turn_number = turns_.size();
    return result;
}

Status Conversation::undo() {
    if (turns_.empty()) return Status(Code::unavailable, "there is no turn to undo");
    const bool to_start = turns_.size() == 1;
    const store::TurnId parent = to_start ? store::kNoTurn : turns_[turns_.size() - 2].id;
    state::Sequence before = state::Sequence::empty(engine_.schema());
    if (!to_start) {
        std::optional<state::Sequence>& kept = turns_[turns_.size() - 2].end;
        if (!kept) {
            STET_ASSIGN(auto loaded, store_->load(session_, fingerprint_, engine_.pool(), parent));
            kept = std::move(loaded.sequence);
        }
        before = *kept;
    }
    if (store_ != nullptr) STET_TRY(store_->rollback(session_, parent));
    turns_.pop_back();
    sequence_ = std::move(before);
    lost_.clear();
    return {};
}

Status Conversation::fork(std::string_view name) {
    if (store_ == nullptr)
        return Status(Code::unavailable, "a conversation without a session can't be forked");
    if (turns_.empty())
        return Status(Code::unavailable, "nothing to fork yet: no turn was committed");
    return store_->fork(session_, name).status();
}

Status Conversation::switch_to(std::string_view name) {
    if (store_ == nullptr)
        return Status(Code::unavailable, "a conversation without a session can't switch");
    STET_ASSIGN(const auto other, Conversation::open(engine_, store_, std::string(name),
                                                     fingerprint_, system_prompt_));
    if (other->turns_.empty()) {
        return Status(Code::not_found, fmt::format("there is no session '{}' with a turn", name));
    }
    session_ = other->session_;
    sequence_ = std::move(other->sequence_);
    lost_ = std::move(other->lost_);
    turns_ = std::move(other->turns_);
    resume_ = std::move(other->resume_);
    return {};
}

}  // namespace stet::engine
