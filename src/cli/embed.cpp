// `stet embed`: texts as numbers, one answer a text.
#include "engine/embed.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/try.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/report.h"
#include "cli/verbs.h"

namespace stet::cli {
namespace {

struct EmbedFlags {
    std::string model;
    std::vector<std::string> texts;
    std::string pooling;  // empty: as the file says
    std::int32_t norm = engine::kNormDefault;
    std::uint32_t context = 0;
    std::uint32_t threads = 0;
    std::uint32_t batch = 512;
    bool json = false;
};

std::string plain_rows(std::span<const float> values, std::size_t width) {
    std::string text;
    for (std::size_t i = 0; i < values.size(); ++i) {
        text += fmt::format("{}", values[i]);
        text += (i + 1) % width == 0 ? '\n' : ' ';
    }
    return text;
}

std::string json_rows(std::size_t index, std::size_t tokens, engine::Pooling pooling,
                      std::span<const float> values, std::size_t width) {
    Json rows = Json::array();
    for (std::size_t i = 0; i < values.size(); i += width) {
        const auto row = values.subspan(i, width);
        rows.push_back(std::vector<float>(row.begin(), row.end()));
    }
    Json json = {{"index", index},
                 {"tokens", tokens},
                 {"pooling", engine::pooling_name(pooling)},
                 {"embedding", pooling == engine::Pooling::none ? rows : rows[0]}};
    return json_line(json);
}

Status embed_all(engine::Engine& engine, const EmbedFlags& flags, Terminal& terminal) {
    engine::EmbedOptions options;
    options.norm = flags.norm;
    if (flags.pooling.empty()) {
        STET_ASSIGN(options.pooling, engine::pooling_of(*engine.model().file));
    } else {
        STET_ASSIGN(options.pooling, engine::parse_pooling(flags.pooling));
    }
    const std::size_t width = engine.model().config.width;
    const bool from_lines = flags.texts.empty();
    const auto reader = from_lines ? LineReader::create(terminal) : nullptr;
    for (std::size_t i = 0; from_lines || i < flags.texts.size(); ++i) {
        std::string text;
        if (from_lines) {
            STET_ASSIGN(const Input input, reader->read("text> ", text));
            if (input != Input::line) break;
        } else {
            text = flags.texts[i];
        }
        if (interrupt_flag().load()) return Status(Code::cancelled, "");
        STET_ASSIGN(const auto tokens,
                    engine.tokenizer().encode(text, {.add_special = true, .parse_special = true}));
        const auto values = engine::embed(engine, tokens, options);
        if (!values) {
            return Status(values.status().code(),
                          fmt::format("text {}: {}", i + 1, values.status().to_string()));
        }
        STET_TRY(terminal.print(flags.json
                                    ? json_rows(i, tokens.size(), options.pooling, *values, width)
                                    : plain_rows(*values, width)));
    }
    return {};
}

Status embed_model(const EmbedFlags& flags, Terminal& terminal) {
    if (!flags.pooling.empty()) STET_TRY(engine::parse_pooling(flags.pooling).status());
    STET_ASSIGN(auto file, gguf::File::open(Env::posix(), flags.model));
    engine::EngineOptions options;
    options.model.threads = static_cast<int>(flags.threads);
    options.context = flags.context;
    options.batch = flags.batch;
    STET_ASSIGN(const auto engine, engine::Engine::create(std::move(file), options));
    return embed_all(*engine, flags, terminal);
}

}  // namespace

void add_embed(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand("embed", "Say texts as numbers (embeddings)");
    auto flags = std::make_shared<EmbedFlags>();
    const auto range = [](auto low, auto high) { return CLI::Range(low, high).description(""); };
    verb->add_option("model", flags->model, "Model file (GGUF)")->required();
    verb->add_option("text", flags->texts, "Texts; without any, each line of stdin is one");
    verb->add_flag("--json", flags->json, "One JSON object for each text");
    verb->add_option("--pooling", flags->pooling,
                     "none (a row for each token), mean, cls or last; else as the model says");
    verb->add_option("--embd-normalize", flags->norm,
                     "Of pooled rows: -1 none, 0 largest is 32760, 2 length 1, else p-norm 1")
        ->check(range(-1, engine::kNormMax))
        ->capture_default_str();
    verb->add_option("-c,--ctx", flags->context, "Tokens of context; 0 is as trained")
        ->check(range(0U, 1U << 30U));
    verb->add_option("-t,--threads", flags->threads, "Threads; 0 is one for each core")
        ->check(range(0U, 512U));
    verb->add_option("-b,--batch", flags->batch, "Tokens computed in one step")
        ->check(range(1U, 65536U))
        ->capture_default_str();
    verb->callback([flags, &action] {
        action.is_json = flags->json;
        action.run = [flags](Terminal& terminal) { return embed_model(*flags, terminal); };
    });
}

}  // namespace stet::cli
