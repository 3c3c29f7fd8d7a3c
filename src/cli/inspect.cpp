// `stet inspect`: what a model file is, how it is computed and what its state costs, without
// reading a weight; and what a file with state holds (inspect_state.h).
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/try.h"
#include "cli/inspect_state.h"
#include "cli/report.h"
#include "cli/schema_report.h"
#include "cli/state_types.h"
#include "cli/verbs.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/describe.h"

namespace stet::cli {
namespace {

struct InspectFlags {
    std::string file;
    std::string k_type = "f16";
    std::string v_type = "f16";
    bool json = false;
};

struct WeightType {
    std::uint64_t tensors = 0;
    std::uint64_t bytes = 0;
    std::uint64_t elements = 0;
};

// By type, as the file has them.
std::map<std::string, WeightType> weight_types(const gguf::File& file) {
    std::map<std::string, WeightType> types;
    for (const gguf::Tensor& tensor : file.tensors()) {
        WeightType& type = types[std::string(gguf::type_traits(tensor.type)->name)];
        ++type.tensors;
        type.bytes += tensor.size_bytes;
        type.elements += tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
    }
    return types;
}

std::uint64_t element_count(const std::map<std::string, WeightType>& types) {
    std::uint64_t sum = 0;
    for (const auto& [name, type] : types) sum += type.elements;
    return sum;
}

// Lengths worth naming: round ones, and what the model was trained with.
std::set<std::uint64_t> lengths(const model::Config& config) {
    std::set<std::uint64_t> found = {1, config.context_length};
    for (const std::uint64_t tokens : {4096U, 32768U}) {
        if (tokens < config.context_length) found.insert(tokens);
    }
    found.erase(0);
    return found;
}

std::string layer_range(const model::LayerFacts& layers) {
    return layers.first == layers.last ? fmt::format("{}", layers.first)
                                       : fmt::format("{}-{}", layers.first, layers.last);
}

std::string layers_text(const model::Config& config) {
    std::string text = fmt::format("\n{} layers\n", config.layers.size());
    const model::Facts encoder = model::describe_encoder(config);
    if (!encoder.kind.empty()) text += fmt::format("{:7}  {}\n", "before", to_line(encoder));
    for (const model::LayerFacts& layers : model::describe_layers(config)) {
        std::string head = fmt::format("{:>7}", layer_range(layers));
        for (const model::Facts& mixer : layers.mixers) {
            text += fmt::format("{}  {}\n", head, to_line(mixer));
            head = std::string(7, ' ');
        }
        if (!layers.ffn.kind.empty()) text += fmt::format("{}  {}\n", head, to_line(layers.ffn));
        if (!layers.groups.empty()) {
            text += fmt::format("{:7}  keeps {}\n", "", fmt::join(layers.groups, ", "));
        }
    }
    return text;
}

std::string schema_text(const model::Config& config) {
    const memory::Schema& schema = config.schema;
    if (schema.groups.empty()) return "\nno memory: each step is over the whole history\n";
    std::string text = "\nstate\n" + groups_text(schema);
    text += "\na sequence takes\n";
    for (const std::uint64_t tokens : lengths(config)) {
        text += fmt::format("  {:>10}  at {} {}\n", format_bytes(schema.bytes_at(tokens)), tokens,
                            tokens == 1 ? "token" : "tokens");
    }
    return text;
}

std::string model_text(const gguf::File& file, const model::Config& config) {
    const auto types = weight_types(file);
    std::vector<std::string> parts;
    for (const auto& [name, type] : types) {
        parts.push_back(fmt::format("{} {} ({})", type.tensors, name, format_bytes(type.bytes)));
    }
    std::string text = fmt::format(
        "{}: {}, architecture {}\n{:.1f} million weights in {} tensors: {}\n"
        "trained for {} tokens, vocabulary {}, width {}\n",
        one_line(file.path().filename().string()),
        one_line(config.name.empty() ? "no name" : config.name), config.architecture->name,
        static_cast<double>(element_count(types)) / 1e6, file.tensors().size(),
        fmt::join(parts, ", "), config.context_length, config.vocabulary, config.width);
    return text + layers_text(config) + schema_text(config);
}

Json facts_json(const model::Facts& facts) {
    Json json = {{"kind", facts.kind}};
    for (const auto& [name, value] : facts.values) {
        std::visit([&, key = std::string(name)](const auto& v) { json[key] = v; }, value);
    }
    return json;
}

Json facts_or_null(const model::Facts& facts) {
    return facts.kind.empty() ? Json() : facts_json(facts);
}

Json layers_json(const model::Config& config) {
    Json json = Json::array();
    for (const model::LayerFacts& layers : model::describe_layers(config)) {
        Json mixers = Json::array();
        for (const model::Facts& mixer : layers.mixers) mixers.push_back(facts_json(mixer));
        json.push_back({{"first", layers.first},
                        {"last", layers.last},
                        {"mixers", std::move(mixers)},
                        {"ffn", facts_or_null(layers.ffn)},
                        {"groups", layers.groups}});
    }
    return json;
}

Json model_json(const gguf::File& file, const model::Config& config) {
    const auto types = weight_types(file);
    Json weights = Json::object();
    for (const auto& [name, type] : types) {
        weights[name] = {{"tensors", type.tensors}, {"bytes", type.bytes}};
    }
    Json costs = Json::array();
    for (const std::uint64_t tokens : lengths(config)) {
        costs.push_back({{"tokens", tokens}, {"bytes", config.schema.bytes_at(tokens)}});
    }
    return {{"model",
             {{"path", file.path().string()},
              {"name", config.name},
              {"architecture", config.architecture->name},
              {"weights", element_count(types)},
              {"bytes", file.size_bytes()},
              {"types", std::move(weights)},
              {"context_length", config.context_length},
              {"vocabulary", config.vocabulary},
              {"width", config.width}}},
            {"encoder", facts_or_null(model::describe_encoder(config))},
            {"layers", layers_json(config)},
            {"state",
             {{"schema_hash", config.schema.hash().hex()},
              {"groups", groups_json(config.schema)},
              {"sequence_bytes", std::move(costs)}}}};
}

Status inspect(const InspectFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto opened, Env::posix().open(flags.file, OpenMode::read));
    STET_ASSIGN(const std::uint64_t size_bytes, opened->size());
    if (const auto kind = state_file_kind(*opened, size_bytes)) {
        return inspect_state(flags.file, *opened, size_bytes, *kind, flags.json, terminal);
    }
    STET_ASSIGN(const auto file, gguf::File::open(Env::posix(), flags.file));
    STET_ASSIGN(const model::Config config,
                model::resolve(*file, state_types(flags.k_type, flags.v_type)));
    return terminal.print(flags.json ? json_line(model_json(*file, config))
                                     : model_text(*file, config));
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand(
        "inspect", "Say what is in a file: a model, or state (ours or llama.cpp's)");
    auto flags = std::make_shared<InspectFlags>();
    verb->add_option("file", flags->file, "A model (GGUF), a state, slot or session file")
        ->required();
    add_state_types(*verb, flags->k_type, flags->v_type);
    verb->add_flag("--json", flags->json, "Answer in JSON");
    verb->callback([flags, &action] {
        action.is_json = flags->json;
        action.run = [flags](Terminal& terminal) { return inspect(*flags, terminal); };
    });
}

}  // namespace stet::cli
