// Text to tokens and back, and messages to the text that the model would see.
#include <fmt/format.h>

#include "base/try.h"
#include "server/context.h"
#include "server/json.h"
#include "server/prompt.h"

namespace stet::server {
namespace {

// A piece that is not text by itself is a list of its bytes.
Json piece_json(const std::string& piece) {
    try {
        static_cast<void>(Json(piece).dump());
        return piece;
    } catch (const Json::type_error&) {
        Json bytes = Json::array();
        for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
        return bytes;
    }
}

Status tokenize(Call& call) {
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    std::string content;
    bool add_special = false;
    bool parse_special = true;
    bool with_pieces = false;
    fields.text("content", content);
    fields.flag("add_special", add_special);
    fields.flag("parse_special", parse_special);
    fields.flag("with_pieces", with_pieces);
    STET_TRY(fields.status());
    const text::Tokenizer& tokenizer = call.context.tokenizer();
    STET_ASSIGN(const auto tokens, tokenizer.encode(content, {.add_special = add_special,
                                                              .parse_special = parse_special}));
    Json list = Json::array();
    for (const Token token : tokens) {
        if (with_pieces) {
            list.push_back({{"id", token}, {"piece", piece_json(tokenizer.piece(token, true))}});
        } else {
            list.push_back(token);
        }
    }
    call.send_json({{"tokens", std::move(list)}});
    return {};
}

Status detokenize(Call& call) {
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    const Json* list = fields.find("tokens");
    std::vector<Token> tokens;
    if (list != nullptr) {
        if (!list->is_array()) fields.fail("tokens", "a list of token ids");
        STET_TRY(fields.status());
        if (!list->empty()) {
            STET_ASSIGN(tokens, tokens_of_prompt(call.context, *list, "tokens"));
        }
    }
    call.send_json({{"content", call.context.tokenizer().decode(tokens, true)}});
    return {};
}

Status apply_template(Call& call) {
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    ChatInput input;
    fields.require("messages");
    STET_TRY(fields.status());
    STET_TRY(read_messages(*fields.find("messages"), input));
    if (const Json* tools = fields.find("tools")) input.tools = *tools;
    fields.flag("add_generation_prompt", input.add_generation_prompt);
    STET_TRY(fields.status());
    STET_ASSIGN(const std::string prompt, render_chat(call.context, input));
    call.send_json({{"prompt", prompt}});
    return {};
}

}  // namespace

void add_text_routes(std::vector<Route>& routes) {
    routes.push_back({"POST", "/tokenize", tokenize});
    routes.push_back({"POST", "/detokenize", detokenize});
    routes.push_back({"POST", "/apply-template", apply_template});
}

}  // namespace stet::server
