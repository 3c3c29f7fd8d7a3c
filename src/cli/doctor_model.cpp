// The model's part of `stet doctor`.
#include <fmt/format.h>

#include <algorithm>

#include "base/env.h"
#include "base/stopwatch.h"
#include "cli/doctor_checks.h"
#include "cli/report.h"
#include "cli/state_types.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "text/chat_parser.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace stet::cli {
namespace {

using Outcome = Finding::Outcome;

void check_identity(const gguf::File& file, const std::filesystem::path& cache,
                    Findings& findings) {
    const Stopwatch stopwatch;
    const auto fingerprint = gguf::fingerprint(Env::posix(), file, cache);
    const double passed_s = stopwatch.seconds();
    if (fingerprint) {
        findings.push_back({Outcome::ok, "identity",
                            fmt::format("{} (known in {:.1f} s, remembered in {})",
                                        fingerprint->hex().substr(0, 12), passed_s, cache.string()),
                            ""});
    } else {
        findings.push_back({Outcome::fail, "identity", fingerprint.status().to_string(),
                            "the file can't be read whole; fetch it again"});
    }
}

void check_text(const gguf::File& file, Findings& findings) {
    const auto tokenizer = text::Tokenizer::load(file);
    if (tokenizer) {
        findings.push_back(
            {Outcome::ok, "tokenizer",
             fmt::format("{}, {} tokens", (*tokenizer)->kind(), (*tokenizer)->size()), ""});
    } else {
        findings.push_back({Outcome::fail, "tokenizer", tokenizer.status().to_string(),
                            "without it the model takes no text"});
    }
    const auto chat_template = text::ChatTemplate::for_model(file);
    if (chat_template) {
        const auto& format = text::chat_format_of(chat_template->source());
        findings.push_back({Outcome::ok, "chat template",
                            fmt::format("parses; calls of tools as '{}'", format.name), ""});
    } else {
        findings.push_back({Outcome::fail, "chat template", chat_template.status().to_string(),
                            "chats are not possible; stet run --raw and /completion are"});
    }
}

void check_needs(const gguf::File& file, const server::Settings& settings,
                 const MemoryLimits& limits, Findings& findings) {
    const auto config = model::resolve(file, state_types(settings.k_type, settings.v_type));
    if (!config) {
        findings.push_back({Outcome::fail, "architecture", config.status().to_string(),
                            "this program can't compute the model"});
        return;
    }
    findings.push_back({Outcome::ok, "architecture",
                        fmt::format("{}, trained for {} tokens", config->architecture->name,
                                    config->context_length),
                        ""});
    const std::uint64_t weights = file.size_bytes();
    const std::uint64_t usable = limits.usable_bytes();
    const bool fits = weights < usable;
    findings.push_back(
        {fits ? Outcome::ok : Outcome::warn, "weights",
         fmt::format("{} of {} memory", format_bytes(weights), format_bytes(usable)),
         fits ? "" : "it is read from the disk again and again; take a smaller one"});
    const std::uint64_t context = settings.context == 0 ? config->context_length : settings.context;
    const std::uint64_t each = config->schema.bytes_at(context);
    const std::uint64_t state = each * settings.parallel;
    const std::uint64_t bound =
        settings.ram_mib == 0 ? usable / 2 : std::uint64_t{settings.ram_mib} << 20U;
    const bool has_room = state <= bound && weights + std::min(state, bound) <= usable;
    findings.push_back(
        {has_room ? Outcome::ok : Outcome::warn, "state",
         fmt::format("{} for a conversation of {} tokens, {} for {} of them", format_bytes(each),
                     context, format_bytes(state), settings.parallel),
         has_room ? "" : "not all of them fit at once; lower --ctx, --parallel, or use -ctk q8_0"});
}

}  // namespace

void check_model(const server::Settings& settings, const std::filesystem::path& cache,
                 const MemoryLimits& limits, Findings& findings) {
    const auto file = gguf::File::open(Env::posix(), settings.model);
    if (!file) {
        findings.push_back(
            {Outcome::fail, "model", file.status().to_string(), "give a whole GGUF file"});
        return;
    }
    findings.push_back({Outcome::ok, "model",
                        fmt::format("{} tensors, {}", (*file)->tensors().size(),
                                    format_bytes((*file)->size_bytes())),
                        ""});
    check_needs(**file, settings, limits, findings);
    check_text(**file, findings);
    check_identity(**file, cache, findings);
}

}  // namespace stet::cli
