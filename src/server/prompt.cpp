#include "server/prompt.h"

#include <fmt/format.h>

#include <chrono>

#include "base/try.h"

namespace stet::server {
namespace {

constexpr std::size_t kMessagesMax = 16384;

std::string special_piece(const text::Tokenizer& tokenizer, Token token) {
    return token == text::kNoToken ? std::string() : tokenizer.piece(token, true);
}

Status add_ids(const Context& context, const Json& list, std::string_view name,
               std::vector<Token>& tokens) {
    for (const Json& item : list) {
        if (item.is_string()) {
            STET_ASSIGN(
                const auto encoded,
                context.tokenizer().encode(item.get<std::string>(),
                                           {.add_special = tokens.empty(), .parse_special = true}));
            tokens.insert(tokens.end(), encoded.begin(), encoded.end());
            continue;
        }
        const bool is_id =
            item.is_number_unsigned() && item.get<std::uint64_t>() < context.engine->vocabulary();
        if (!is_id) {
            return Status(Code::invalid_argument,
                          fmt::format("'{}' has something that is no token id from 0 to {}", name,
                                      context.engine->vocabulary() - 1));
        }
        tokens.push_back(static_cast<Token>(item.get<std::uint64_t>()));
    }
    return {};
}

// The text of a message's content: a string, or a list of parts.
Status flatten(const Json& content, const std::string& where, std::string& text) {
    if (content.is_string()) {
        text = content.get<std::string>();
        return {};
    }
    if (content.is_null()) return {};
    if (!content.is_array()) {
        return Status(Code::invalid_argument, where + " must be a string or a list of parts");
    }
    for (const Json& part : content) {
        const auto type = part.is_object() ? part.find("type") : part.end();
        if (!part.is_object() || type == part.end() || !type->is_string()) {
            return Status(Code::invalid_argument, where + " has a part without a type");
        }
        const std::string kind = type->get<std::string>();
        if (kind != "text" && kind != "input_text" && kind != "output_text") {
            return Status(Code::unimplemented,
                          fmt::format("{} has a part of a kind that this model can't take; only "
                                      "text is supported",
                                      where));
        }
        const auto body = part.find("text");
        if (body == part.end() || !body->is_string()) {
            return Status(Code::invalid_argument, where + " has a text part without text");
        }
        text += body->get<std::string>();
    }
    return {};
}

}  // namespace

Result<std::vector<Token>> encode_prompt(const Context& context, std::string_view text) {
    return context.tokenizer().encode(text, {.add_special = true, .parse_special = true});
}

Result<std::vector<Token>> tokens_of_prompt(const Context& context, const Json& prompt,
                                            std::string_view name) {
    std::vector<Token> tokens;
    if (prompt.is_string()) {
        STET_ASSIGN(tokens, encode_prompt(context, prompt.get<std::string>()));
    } else if (prompt.is_array()) {
        STET_TRY(add_ids(context, prompt, name, tokens));
    } else {
        return Status(Code::invalid_argument,
                      fmt::format("'{}' must be a string or a list of token ids", name));
    }
    if (tokens.empty()) {
        return Status(Code::invalid_argument, fmt::format("'{}' has no tokens", name));
    }
    return tokens;
}

Result<std::vector<std::vector<Token>>> prompts_of(const Context& context, const Json& prompt,
                                                   std::string_view name, std::size_t count_max) {
    std::vector<std::vector<Token>> prompts;
    const bool is_list = prompt.is_array() && !prompt.empty() &&
                         (prompt.front().is_string() || prompt.front().is_array());
    if (!is_list) {
        STET_ASSIGN(auto tokens, tokens_of_prompt(context, prompt, name));
        prompts.push_back(std::move(tokens));
        return prompts;
    }
    if (prompt.size() > count_max) {
        return Status(Code::invalid_argument,
                      fmt::format("'{}' has more than {} prompts", name, count_max));
    }
    for (const Json& item : prompt) {
        STET_ASSIGN(auto tokens, tokens_of_prompt(context, item, name));
        prompts.push_back(std::move(tokens));
    }
    return prompts;
}

Status read_messages(const Json& messages, ChatInput& input) {
    if (!messages.is_array() || messages.empty() || messages.size() > kMessagesMax) {
        return Status(Code::invalid_argument,
                      fmt::format("'messages' must be a list of 1 to {} messages", kMessagesMax));
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const Json& message = messages[i];
        const std::string where = fmt::format("'messages[{}]", i);
        const auto role = message.is_object() ? message.find("role") : message.end();
        if (!message.is_object() || role == message.end() || !role->is_string()) {
            return Status(Code::invalid_argument, where + "' has no role");
        }
        Json copy = message;
        if (*role == "developer") copy["role"] = "system";
        std::string text;
        if (message.contains("content")) {
            STET_TRY(flatten(message["content"], where + ".content'", text));
        }
        copy["content"] = text;
        // Templates want arguments as an object; clients send them as JSON in a string.
        const auto calls = copy.find("tool_calls");
        if (calls != copy.end() && calls->is_array()) {
            for (Json& call : *calls) {
                if (!call.is_object() || !call.contains("function") ||
                    !call["function"].is_object()) {
                    return Status(Code::invalid_argument, where + ".tool_calls' has no function");
                }
                Json& function = call["function"];
                if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
                auto arguments = parse_object(function["arguments"].get<std::string>());
                if (arguments) function["arguments"] = std::move(*arguments);
            }
        }
        input.messages.push_back(std::move(copy));
    }
    return {};
}

Result<std::string> render_chat(const Context& context, const ChatInput& input) {
    const text::Tokenizer& tokenizer = context.tokenizer();
    Json variables = input.template_options;
    variables["messages"] = input.messages;
    variables["add_generation_prompt"] = input.add_generation_prompt;
    variables["bos_token"] = special_piece(tokenizer, tokenizer.bos());
    variables["eos_token"] = special_piece(tokenizer, tokenizer.eos());
    if (!input.tools.is_null()) variables["tools"] = input.tools;
    return context.chat_template->render(dump(variables), std::chrono::system_clock::now());
}

Result<std::vector<Token>> encode_rendered(const Context& context, std::string_view text,
                                           bool is_first) {
    const text::Tokenizer& tokenizer = context.tokenizer();
    if (is_first && tokenizer.adds_bos() && tokenizer.bos() != text::kNoToken) {
        const std::string bos = tokenizer.piece(tokenizer.bos(), true);
        if (text.starts_with(bos)) text.remove_prefix(bos.size());
    }
    return tokenizer.encode(text, {.add_special = is_first, .parse_special = true});
}

std::vector<engine::Message> plain_messages(const Json& messages) {
    std::vector<engine::Message> list;
    for (const Json& message : messages) {
        list.push_back({message.value("role", ""), message.value("content", "")});
    }
    return list;
}

}  // namespace stet::server
