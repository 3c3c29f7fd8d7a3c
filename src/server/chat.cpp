#include "server/chat.h"

#include <fmt/format.h>

#include "base/try.h"
#include "engine/turn_text.h"
#include "grammar/begin.h"
#include "server/grammars.h"
#include "store/names.h"

namespace stet::server {
namespace {

struct Prompt {
    std::vector<Token> tokens;
    text::ChatOptions output;
};

Result<Prompt> finish_prompt(const Context& context, const ChatTurn& turn, std::string_view text,
                             std::vector<Token> before) {
    Prompt prompt;
    STET_ASSIGN(const auto encoded, encode_rendered(context, text, before.empty()));
    prompt.tokens = std::move(before);
    prompt.tokens.insert(prompt.tokens.end(), encoded.begin(), encoded.end());
    if (prompt.tokens.empty()) {
        return Status(Code::invalid_argument, "the chat template made an empty prompt");
    }
    const bool has_tools = turn.input.tools.is_array() && !turn.input.tools.empty();
    prompt.output = text::chat_options_of(*context.chat_format, text,
                                          has_tools ? dump(turn.input.tools) : std::string());
    return prompt;
}

// Calls stand where the format puts them, other answers where answers begin.
Result<grammar::Begin> begin_of(const Call& call, const ChatTurn& turn,
                                const text::ChatOptions& output) {
    const text::Tokenizer& tokenizer = call.context.tokenizer();
    if (turn.tool_choice.kind == ToolChoice::Kind::required) {
        return grammar::begin_of_calls(output, tokenizer);
    }
    return grammar::begin_of_answer(output, tokenizer);
}

Status start(Call& call, const ChatTurn& turn, Prompt prompt, std::vector<engine::Message> messages,
             const FormatMaker& make_format) {
    std::vector<std::shared_ptr<Job>> jobs;
    grammar::Begin begin;
    if (turn.options.constraint) {
        STET_ASSIGN(begin, begin_of(call, turn, prompt.output));
    }
    const auto shown = text::marker_tokens(*call.context.chat_format, call.context.tokenizer(),
                                           prompt.output.has_tools);
    for (std::int64_t i = 0; i < turn.choices; ++i) {
        auto job = std::make_shared<Job>();
        job->prompt = prompt.tokens;
        job->options = turn.options;
        job->options.shown = shown;
        job->options.constraint.begin = begin;
        if (job->options.sampling.seed != 0) {
            job->options.sampling.seed += static_cast<std::uint64_t>(i);
        }
        job->slot = turn.slot;
        job->may_reuse = turn.may_reuse;
        job->may_commit = turn.may_commit;
        job->session = turn.session;
        job->key = turn.key;
        job->messages = messages;
        jobs.push_back(std::move(job));
    }
    return deliver(call, std::move(jobs), make_format(prompt.output), turn.is_stream);
}

// What a session remembers.
struct History {
    std::vector<engine::Message> messages;
    std::string text;
    std::vector<Token> tokens;
    std::optional<Answer> made;  // by an earlier request with the same key
};

Answer answer_again(const std::string& session, const store::Turn& turn,
                    const engine::TurnContent& content) {
    Answer answer;
    if (!content.messages.empty()) answer.text = content.messages.back().content;
    answer.rest.text = answer.text;
    answer.stop = engine::StopReason::end;
    answer.prompt_tokens = turn.token_end;
    answer.reuse = {turn.token_end, turn.token_end, "stored", ""};
    answer.session = session;
    answer.turn_id = turn.id;
    answer.turn_number = turn.number;
    answer.is_durable = true;
    return answer;
}

Result<History> read_history(Keeper& keeper, store::Store& store, const std::string& tenant,
                             const ChatTurn& turn) {
    History history;
    if (!turn.fork_from.empty()) {
        STET_TRY(store.fork(turn.fork_from, turn.session).status());
        keeper.refresh(tenant, turn.session);
    }
    const auto info = store.find(turn.session);
    if (!info && info.status().code() == Code::not_found && !turn.must_exist) return history;
    STET_TRY(info.status());
    if (info->fingerprint != keeper.fingerprint()) {
        return Status(
            Code::incompatible,
            fmt::format("session '{}' was made with the model '{}' ({}); this is {}", turn.session,
                        info->model_name, info->fingerprint.hex(), keeper.fingerprint().hex()));
    }
    STET_ASSIGN(const auto turns, store.turns(turn.session));
    STET_ASSIGN(history.tokens, store.tokens(turn.session));
    for (const store::Turn& stored : turns) {
        STET_ASSIGN(const auto content, engine::decode_turn_content(stored.content));
        history.messages.insert(history.messages.end(), content.messages.begin(),
                                content.messages.end());
        history.text += content.text;
        if (!turn.key.empty() && content.key == turn.key) {
            history.made = answer_again(turn.session, stored, content);
        }
    }
    return history;
}

Status go_on(Call& call, ChatTurn turn, Keeper& keeper, store::Store& store,
             const FormatMaker& make_format) {
    STET_ASSIGN(History history, read_history(keeper, store, call.tenant, turn));
    if (history.made) {
        text::ChatOptions output;
        output.format = call.context.chat_format;
        deliver_made(call, std::move(*history.made), make_format(output), turn.is_stream);
        return {};
    }
    const auto render = [&](const std::vector<engine::Message>& messages, bool generation_prompt) {
        ChatInput input = turn.input;
        input.messages = Json::array();
        for (const auto& message : messages) {
            input.messages.push_back({{"role", message.role}, {"content", message.content}});
        }
        input.add_generation_prompt = generation_prompt;
        return render_chat(call.context, input);
    };
    std::vector<engine::Message> after = history.messages;
    for (auto& message : plain_messages(turn.input.messages)) after.push_back(std::move(message));
    std::string text;
    if (history.tokens.empty()) {
        STET_ASSIGN(text, render(after, true));
    } else {
        STET_ASSIGN(text, engine::new_turn_text(render, history.text, history.messages, after));
    }
    STET_ASSIGN(Prompt prompt, finish_prompt(call.context, turn, text, std::move(history.tokens)));
    return start(call, turn, std::move(prompt), std::move(after), make_format);
}

Status run_with_grammar(Call& call, ChatTurn turn, const FormatMaker& make_format) {
    constexpr std::size_t kKeyMax = 255;
    turn.key = call.request.header("idempotency-key");
    if (turn.key.size() > kKeyMax) {
        return Status(Code::invalid_argument,
                      fmt::format("the Idempotency-Key is longer than {} bytes", kKeyMax));
    }
    if (turn.session.empty()) {
        STET_ASSIGN(const std::string text, render_chat(call.context, turn.input));
        STET_ASSIGN(Prompt prompt, finish_prompt(call.context, turn, text, {}));
        auto messages = plain_messages(turn.input.messages);
        return start(call, turn, std::move(prompt), std::move(messages), make_format);
    }
    STET_TRY(store::check_name(turn.session));
    if (call.context.keeper == nullptr) {
        return Status(Code::unimplemented, "this server keeps no sessions (--durability none)");
    }
    if (turn.choices != 1) {
        return Status(Code::invalid_argument, "a session goes on with one answer: 'n' must be 1");
    }
    return call.context.keeper->run(call.tenant, [call, turn = std::move(turn), make_format](
                                                     Keeper& keeper, store::Store& store) mutable {
        if (Status status = go_on(call, std::move(turn), keeper, store, make_format); !status) {
            call.send_failure(failure_of(status));
        }
    });
}

}  // namespace

Status run_chat(Call& call, ChatTurn turn, const FormatMaker& make_format) {
    if (turn.tool_choice.kind == ToolChoice::Kind::none) turn.input.tools = Json();
    STET_ASSIGN(turn.form,
                form_with_tools(call.context, turn.input.tools, turn.tool_choice, turn.form));
    if (!turn.form) return run_with_grammar(call, std::move(turn), make_format);
    grammar::Source source = *turn.form;
    return call.context.grammars->compile(
        call, std::move(source),
        [turn = std::move(turn), make_format](Call& later, Grammars::GrammarPtr grammar) mutable {
            turn.options.constraint.grammar = std::move(grammar);
            return run_with_grammar(later, std::move(turn), make_format);
        });
}

}  // namespace stet::server
