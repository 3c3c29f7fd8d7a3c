#include "cli/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/env.h"
#include "base/stopwatch.h"
#include "base/try.h"
#include "base/units.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/paths.h"
#include "cli/report.h"
#include "cli/state_types.h"
#include "cli/store_access.h"
#include "cli/verbs.h"
#include "gguf/gguf.h"
#include "grammar/grammar.h"
#include "store/names.h"

namespace stet::cli {
namespace {

constexpr std::uint32_t kContextMax = 1U << 30U;  // tokens
constexpr std::uint32_t kThreadsMax = 512;
constexpr std::uint32_t kBatchMax = 65536;  // tokens

// Without the range's description, which makes the help hard to read.
template <typename T>
CLI::Validator in_range(T low, T high) {
    return CLI::Range(low, high).description("");
}

void add_sampling_options(CLI::App& verb, RunFlags& flags) {
    auto& sampling = flags.sampling;
    const char* group = "Sampling";
    const auto add = [&](const char* name, auto& value, const char* help) {
        verb.add_option(name, value, help)->capture_default_str()->group(group);
    };
    add("--temp", sampling.temperature, "Temperature; 0 always takes the most likely token");
    add("--top-k", sampling.top_k, "Keep the K most likely tokens; 0 keeps all");
    add("--top-p", sampling.top_p, "Keep the likeliest tokens that make P together; 1 is off");
    add("--min-p", sampling.min_p, "Keep tokens at least P times as likely as the best; 0 is off");
    add("--repeat-penalty", sampling.repeat_penalty, "Divide logits of recent tokens; 1 is off");
    add("--presence-penalty", sampling.presence_penalty, "Subtract for a token seen recently");
    add("--frequency-penalty", sampling.frequency_penalty, "Subtract each time it was seen");
    verb.add_option("--seed", sampling.seed, "Seed of the draws; 0 or -1 takes a new one")
        ->group(group);
    verb.add_option("-n,--predict", flags.predict, "Tokens of an answer at most; -1 is no limit")
        ->check(in_range(std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()))
        ->capture_default_str()
        ->group(group);
    verb.add_option("--stop", flags.stop, "Text that ends the answer; may be given again")
        ->allow_extra_args(false)
        ->group(group);
    auto* schema = verb.add_option("--json-schema", flags.json_schema,
                                   "Answers are JSON that this schema (JSON or a file) allows");
    schema->group(group);
    verb.add_option("--grammar", flags.grammar, "Answers are what the GBNF in this file allows")
        ->excludes(schema)
        ->group(group);
    verb.add_flag("--ignore-eos", flags.ignore_eos, "Go on when the model ends its answer")
        ->group(group);
}

// Names and numbers as of llama.cpp's diffusion example.
void add_denoise_options(CLI::App& verb, RunFlags& flags) {
    auto& denoise = flags.denoise;
    const auto add = [&](const std::string& name, auto& value, const char* help) {
        return verb.add_option(name, value, help)
            ->capture_default_str()
            ->each([&flags, name](const std::string&) { flags.denoise_flag = name; })
            ->group("Diffusion models");
    };
    add("--diffusion-steps", denoise.steps, "Steps of an answer");
    auto* block = add("--diffusion-block-length", denoise.block_length,
                      "Tokens that are filled in before those after them; 0 is all");
    add("--diffusion-eps", denoise.eps, "Steps by time, down to this, over the whole answer")
        ->excludes(block);
    add("--diffusion-algorithm", denoise.algorithm,
        "What is filled first: 0 by chance, 1 entropy, 2 margin, 3 random, 4 confidence");
    add("--diffusion-alg-temp", denoise.algorithm_temperature,
        "Draw what is filled by its certainty over this; 0 takes the surest");
    add("--diffusion-cfg-scale", denoise.guidance,
        "Guidance by what the model says without the prompt; doubles the time");
}

void add_model_options(CLI::App& verb, RunFlags& flags) {
    const char* group = "Model";
    verb.add_option("-c,--ctx", flags.context, "Tokens of context; 0 is what it was trained with")
        ->check(in_range(0U, kContextMax))
        ->group(group);
    verb.add_option("-t,--threads", flags.threads, "Threads; 0 is one for each core")
        ->check(in_range(0U, kThreadsMax))
        ->group(group);
    verb.add_option("-b,--batch", flags.batch, "Prompt tokens computed in one step")
        ->check(in_range(1U, kBatchMax))
        ->capture_default_str()
        ->group(group);
    add_state_types(verb, flags.k_type, flags.v_type, group);
}

void add_session_options(CLI::App& verb, RunFlags& flags) {
    const char* group = "Session";
    auto* name =
        verb.add_option("--session", flags.session, "Resume or begin this session")->group(group);
    add_store_options(verb, flags.store, group);
    verb.add_flag("--no-session", flags.no_session, "Keep nothing")->excludes(name)->group(group);
    verb.add_option("--ram", flags.ram, "State in memory at most (4G); default is half of it all")
        ->group(group);
    verb.add_option("--disk", flags.limits.disk, "Bound of the sessions' directory (20G)")
        ->group(group);
    verb.add_option("--disk-free", flags.limits.disk_free, "Left free on its disk (1G)")
        ->group(group);
}

Status check_flags(RunFlags& flags) {
    // "-1" arrives as the largest number; both are how people ask for a fresh seed.
    if (flags.sampling.seed == std::numeric_limits<std::uint64_t>::max()) flags.sampling.seed = 0;
    STET_TRY(flags.sampling.validate());
    STET_TRY(flags.denoise.validate());
    if (flags.prompt && !flags.prompt_file.empty()) {
        return Status(Code::invalid_argument, "a prompt and --file were given; give one of them");
    }
    for (const std::string& stop : flags.stop) {
        if (stop.empty()) return Status(Code::invalid_argument, "--stop is empty");
    }
    if (!flags.session.empty()) STET_TRY(store::check_name(flags.session));
    return {};
}

// A final newline belongs to the file, not to the prompt.
std::string without_newline(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

Result<std::string> read_text_file(const std::string& path) {
    if (path == "-") return read_all(STDIN_FILENO, "standard input");
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        const Code code = errno == ENOENT ? Code::not_found : Code::io;
        return Status(code, fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
    }
    auto text = read_all(descriptor, path);
    ::close(descriptor);
    return text;
}

// Where the prompt comes from decides between one answer and a chat.
Result<std::optional<std::string>> find_prompt(RunFlags& flags) {
    std::optional<std::string> prompt = flags.prompt;
    if (!flags.prompt_file.empty()) {
        STET_ASSIGN(std::string text, read_text_file(flags.prompt_file));
        prompt = without_newline(std::move(text));
    } else if (!prompt && !flags.chat) {
        if (isatty(STDIN_FILENO) == 1) {
            flags.chat = true;
        } else {
            STET_ASSIGN(std::string text, read_all(STDIN_FILENO, "standard input"));
            prompt = without_newline(std::move(text));
        }
    }
    if (prompt && prompt->empty()) return Status(Code::invalid_argument, "the prompt is empty");
    return prompt;
}

// A schema may be given as it is: JSON begins with a brace, names of files mostly don't.
Result<std::optional<grammar::Source>> find_grammar(const RunFlags& flags) {
    std::optional<grammar::Source> source;
    if (!flags.json_schema.empty()) {
        source = {grammar::Kind::json_schema, flags.json_schema};
        const std::size_t first = flags.json_schema.find_first_not_of(" \t\n");
        if (first == std::string::npos || flags.json_schema[first] != '{') {
            STET_ASSIGN(source->text, read_text_file(flags.json_schema));
        }
    } else if (!flags.grammar.empty()) {
        STET_ASSIGN(std::string text, read_text_file(flags.grammar));
        source = {grammar::Kind::gbnf, std::move(text)};
    }
    return source;
}

Result<Run> load(RunFlags flags, Terminal& terminal) {
    const bool has_session = !flags.no_session && (flags.chat || !flags.session.empty());
    Spinner spinner(terminal, fmt::format("loading {}", flags.model));
    const Stopwatch opening;
    STET_ASSIGN(auto file, gguf::File::open(Env::posix(), flags.model));
    Run run;
    run.load_ms = opening.ms();
    Hash256 fingerprint;
    if (has_session) {
        STET_ASSIGN(fingerprint, gguf::fingerprint(Env::posix(), *file, cache_directory()));
    }
    const Stopwatch loading;
    engine::EngineOptions options;
    options.model.threads = static_cast<int>(flags.threads);
    options.model.state_types = state_types(flags.k_type, flags.v_type);
    options.context = flags.context;
    options.batch = flags.batch;
    if (!flags.ram.empty()) {
        STET_ASSIGN(options.state_limit_bytes, parse_size(flags.ram));
    }
    STET_ASSIGN(run.engine, engine::Engine::create(std::move(file), options));
    run.load_ms += loading.ms();
    if (!flags.denoise_flag.empty() && !run.engine->is_diffusion()) {
        return Status(Code::invalid_argument,
                      fmt::format("{} is for diffusion models, {} is none ({})", flags.denoise_flag,
                                  flags.model, run.engine->model().config.architecture->name));
    }
    STET_ASSIGN(const auto source, find_grammar(flags));
    if (source) {
        grammar::Compiler compiler(run.engine->tokenizer(), run.engine->vocabulary());
        STET_ASSIGN(run.grammar, compiler.compile(*source));
    }
    if (has_session) {
        STET_ASSIGN(run.store, open_store(flags.store, false, flags.limits));
        if (flags.session.empty()) {
            STET_ASSIGN(flags.session, fresh_session_name(*run.store));
        }
    }
    STET_ASSIGN(run.conversation,
                engine::Conversation::open(*run.engine, run.store.get(), flags.session, fingerprint,
                                           flags.system));
    run.flags = std::move(flags);
    return run;
}

Status run_model(RunFlags flags, Terminal& terminal) {
    STET_TRY(check_flags(flags));
    terminal.set_quiet(flags.quiet || flags.json);
    STET_ASSIGN(const std::optional<std::string> prompt, find_prompt(flags));
    STET_ASSIGN(Run run, load(std::move(flags), terminal));
    if (interrupt_flag().load()) return Status(Code::cancelled, "");
    const auto& resumed = run.conversation->resume_report();
    if (const auto line = resume_line(run.conversation->session(), resumed); !line.empty()) {
        terminal.note(line);
        if (!run.flags.system.empty()) terminal.note("it keeps its own system prompt");
    }
    if (run.flags.chat) return chat(run, prompt, terminal);
    return run_turn(run, *prompt, terminal);
}

}  // namespace

void add_run(CLI::App& app, Action& action, const std::string& program) {
    auto* verb = app.add_subcommand("run", "Chat with a model, or answer one prompt");
    auto flags = std::make_shared<RunFlags>();
    flags->program = program;
    verb->add_option("model", flags->model, "Model file (GGUF)")->required();
    verb->add_option("prompt", flags->prompt, "Answer this and exit; without it, chat");
    verb->add_option("-f,--file", flags->prompt_file, "Take the prompt from a file; - is stdin");
    verb->add_flag("--chat", flags->chat, "Chat even if stdin is no terminal, line by line");
    verb->add_option("--system", flags->system, "System prompt of a new conversation");
    verb->add_flag("--raw", flags->raw, "Take the prompt as it is, without the chat template");
    verb->add_flag("--json", flags->json, "One JSON object for each answer");
    verb->add_flag("--quiet", flags->quiet, "Only answers and failures");
    add_sampling_options(*verb, *flags);
    add_denoise_options(*verb, *flags);
    add_model_options(*verb, *flags);
    add_session_options(*verb, *flags);
    verb->callback([flags, &action] {
        action.is_json = flags->json;
        action.run = [flags](Terminal& terminal) { return run_model(*flags, terminal); };
    });
}

}  // namespace stet::cli
