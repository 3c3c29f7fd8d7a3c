// `stet tokenize` and `stet detokenize`: a text as the ids that a model would see, and back. Only
// the vocabulary of the file is read.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/stopwatch.h"
#include "base/try.h"
#include "cli/line_reader.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace stet::cli {
namespace {

using text::Token;
using text::Tokenizer;

constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;  // what Tokenizer::encode() takes
constexpr std::size_t kPrintBytes = std::size_t{1} << 16;    // written at once
constexpr std::string_view kBetweenIds = " \t\r\n,[]";       // lists of a shell, of JSON

struct VocabularyFlags {
    std::string model;
    bool special = false;
    bool null = false;
    bool json = false;
};

struct TokenizeFlags : VocabularyFlags {
    std::optional<std::string> text;
    bool no_bos = false;
};

struct DetokenizeFlags : VocabularyFlags {
    std::vector<std::string> ids;
};

// Prints in blocks what comes in small parts.
class Printer {
  public:
    explicit Printer(Terminal& terminal) : terminal_(terminal) {}
    Status add(std::string_view text) {
        waiting_ += text;
        return waiting_.size() < kPrintBytes ? Status() : flush();
    }
    Status flush() {
        const Status status = terminal_.print(waiting_);
        waiting_.clear();
        return status;
    }

  private:
    Terminal& terminal_;
    std::string waiting_;
};

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path) {
    STET_ASSIGN(const auto file, gguf::File::open(Env::posix(), path));
    return Tokenizer::load(*file);
}

// As of llama-server's /tokenize: a piece that is no text by itself is a list of its bytes.
Json piece_json(const std::string& piece) {
    if (text::utf8_valid_prefix(piece) == piece.size()) return piece;
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    return bytes;
}

Status print_plain(std::span<const Token> tokens, Terminal& terminal) {
    Printer printer(terminal);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        STET_TRY(printer.add(fmt::format("{}{}", i == 0 ? "" : " ", tokens[i])));
    }
    STET_TRY(printer.add("\n"));
    return printer.flush();
}

// Written token by token: as one value a long text would take a hundred times its size.
Status print_json(const Tokenizer& tokenizer, std::span<const Token> tokens, const Json& figures,
                  Terminal& terminal) {
    Printer printer(terminal);
    STET_TRY(printer.add("{\"tokens\":["));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const Json token = {{"id", tokens[i]},
                            {"piece", piece_json(tokenizer.piece(tokens[i], true))}};
        STET_TRY(printer.add(i == 0 ? token.dump() : "," + token.dump()));
    }
    STET_TRY(printer.add("],"));
    STET_TRY(printer.add(json_line(figures).substr(1)));
    return printer.flush();
}

Status tokenize_text(const Tokenizer& tokenizer, const TokenizeFlags& flags, std::string_view text,
                     double load_ms, Terminal& terminal) {
    const Stopwatch encoding;
    STET_ASSIGN(const auto tokens, tokenizer.encode(text, {.add_special = !flags.no_bos,
                                                           .parse_special = flags.special}));
    const double encode_ms = encoding.ms();
    if (!flags.json) return print_plain(tokens, terminal);
    const Json figures = {{"count", tokens.size()},
                          {"bytes", text.size()},
                          {"timings", {{"load_ms", load_ms}, {"tokenize_ms", encode_ms}}}};
    return print_json(tokenizer, tokens, figures, terminal);
}

// take(part) for each part that `separator` ends; the last may lack it.
template <typename Take>
Status for_each_part(std::string_view text, char separator, const Take& take) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(separator), text.size());
        STET_TRY(take(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return {};
}

Status tokenize(const TokenizeFlags& flags, Terminal& terminal) {
    const Stopwatch loading;
    STET_ASSIGN(const auto tokenizer, load_tokenizer(flags.model));
    const double load_ms = loading.ms();
    const auto take = [&](std::string_view text) {
        return tokenize_text(*tokenizer, flags, text, load_ms, terminal);
    };
    if (flags.text) return take(*flags.text);
    STET_ASSIGN(const std::string text, read_all(STDIN_FILENO, "standard input", kTextBytesMax));
    return flags.null ? for_each_part(text, '\0', take) : take(text);
}

// `word` is the `number`th of the list, from 1.
Result<Token> parse_id(std::string_view word, std::size_t number, const Tokenizer& tokenizer) {
    std::int64_t id = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, id);
    if (error == std::errc::invalid_argument || stop != end) {
        return Status(Code::invalid_argument,
                      fmt::format("'{}' (number {} of the list) is no token id; expected whole "
                                  "numbers with blanks or commas between",
                                  one_line(word.substr(0, 40)), number));
    }
    if (tokenizer.size() == 0) {
        return Status(Code::invalid_argument, "the vocabulary of this model is empty");
    }
    if (error != std::errc() || id < 0 || static_cast<std::uint64_t>(id) >= tokenizer.size()) {
        return Status(Code::invalid_argument,
                      fmt::format("{} (number {} of the list) is not in the vocabulary, whose ids "
                                  "are 0 to {}",
                                  word.substr(0, 40), number, tokenizer.size() - 1));
    }
    return static_cast<Token>(id);
}

Result<std::vector<Token>> parse_ids(std::string_view list, const Tokenizer& tokenizer) {
    std::vector<Token> ids;
    for (std::size_t at = list.find_first_not_of(kBetweenIds); at != std::string_view::npos;) {
        const std::size_t end = std::min(list.find_first_of(kBetweenIds, at), list.size());
        STET_ASSIGN(const Token id, parse_id(list.substr(at, end - at), ids.size() + 1, tokenizer));
        ids.push_back(id);
        at = list.find_first_not_of(kBetweenIds, end);
    }
    return ids;
}

Status detokenize_list(const Tokenizer& tokenizer, const DetokenizeFlags& flags,
                       std::string_view list, Terminal& terminal) {
    STET_ASSIGN(const auto ids, parse_ids(list, tokenizer));
    std::string text = tokenizer.decode(ids, flags.special);
    if (flags.json) return terminal.print(json_line({{"content", text}}));
    if (flags.null) {
        text += '\0';
    } else if (terminal.has_output_terminal() && !text.ends_with('\n')) {
        text += '\n';  // elsewhere the bytes are exactly those of the text
    }
    return terminal.print(text);
}

Status detokenize(const DetokenizeFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto tokenizer, load_tokenizer(flags.model));
    const auto take = [&](std::string_view list) {
        return detokenize_list(*tokenizer, flags, list, terminal);
    };
    if (!flags.ids.empty()) return take(fmt::format("{}", fmt::join(flags.ids, " ")));
    STET_ASSIGN(const std::string list, read_all(STDIN_FILENO, "standard input", kTextBytesMax));
    return flags.null ? for_each_part(list, '\n', take) : take(list);
}

// A verb with what both have; `run` does it.
template <typename Flags>
CLI::App* add_verb(CLI::App& app, Action& action, const char* name, const char* help,
                   const std::shared_ptr<Flags>& flags, Status (*run)(const Flags&, Terminal&)) {
    auto* verb = app.add_subcommand(name, help);
    verb->add_option("model", flags->model, "Model file (GGUF); only its vocabulary is read")
        ->required();
    verb->callback([flags, run, &action] {
        action.is_json = flags->json;
        action.run = [flags, run](Terminal& terminal) { return run(*flags, terminal); };
    });
    return verb;
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
    const auto flags = std::make_shared<TokenizeFlags>();
    auto* verb = add_verb(app, action, "tokenize", "Say a text as the token ids of a model", flags,
                          tokenize);
    verb->add_option("text", flags->text, "The text; without it, all of stdin");
    verb->add_flag("--special", flags->special, "Special tokens written in the text are tokens");
    verb->add_flag("--no-bos", flags->no_bos, "Only the text, without what begins and ends it");
    verb->add_flag("--null", flags->null,
                   "Stdin is many texts, a zero byte ends each; a line each");
    verb->add_flag("--json", flags->json, "One JSON object a text, with the piece of each token");
}

void add_detokenize(CLI::App& app, Action& action) {
    const auto flags = std::make_shared<DetokenizeFlags>();
    auto* verb = add_verb(app, action, "detokenize", "Say token ids as the text of a model", flags,
                          detokenize);
    verb->add_option("ids", flags->ids, "The ids; without any, all of stdin");
    verb->add_flag("--special", flags->special, "Special tokens are part of the text");
    verb->add_flag("--null", flags->null, "Each line of stdin is a text; a zero byte ends each");
    verb->add_flag("--json", flags->json, "One JSON object a text");
}

}  // namespace stet::cli
