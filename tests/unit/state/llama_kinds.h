// Schemas of every memory kind that llama.cpp's state files can hold, and files for them.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "llama_writer.h"
#include "memory/schema.h"

namespace stet::state::test {

inline constexpr std::array<std::string_view, 14> kLlamaKinds = {
    "none", "plain",     "window", "window_only", "mla",           "dsa",          "dsa_window",
    "msa",  "recurrent", "hybrid", "hybrid_mla",  "hybrid_window", "hybrid_index", "dsv4"};

struct LlamaModel {
    std::string kind;
    memory::Schema schema;
    ImportTarget target;
};

class LlamaModelMaker {
  public:
    LlamaModelMaker(std::string_view kind, std::uint32_t seed) : random_(seed) {
        model_.kind = kind;
        model_.target = {.architecture = "test", .layers = kLayers, .vocabulary = 100};
        const auto is = [&](std::string_view part) { return kind.find(part) != kind.npos; };
        const bool is_k_only = is("mla") || is("dsa") || is("dsv4");
        if (kind == "none") return;
        const bool has_attention = kind != "window_only" && kind != "recurrent" && !is("dsv4");
        for (std::int32_t layer = 0; layer < static_cast<std::int32_t>(kLayers); ++layer) {
            if (has_attention && layer % 2 == 0) add_rows("attention", 0, layer, !is_k_only);
            if ((is("window") && layer % 2 == 1) || kind == "window_only" || is("dsv4")) {
                add_rows("window", 5, layer, !is_k_only);
            }
            if ((is("dsa") || is("msa") || is("index")) && layer % 2 == 0) {
                add("indexer", memory::Lifetime::tokens, 0, "k", layer, 64);
            }
            if (is("index") && layer % 2 == 0) {
                if (layer == 0) add("indexer", memory::Lifetime::tokens, 0, "gate", layer, 64);
                add("pooled", memory::Lifetime::every, 3, "k", layer, 64);
            }
            if (kind == "recurrent" || (is("hybrid") && layer != 0)) add_recurrent(layer);
            if (is("dsv4")) add_dsv4(layer);
        }
        if (is("dsa")) model_.target.architecture = "deepseek32";
    }

    LlamaModel take() { return std::move(model_); }

    static constexpr std::uint32_t kLayers = 4;

  private:
    void add(std::string_view name, memory::Lifetime lifetime, std::uint32_t parameter,
             std::string_view plane, std::int32_t layer, std::uint32_t elements,
             memory::ElementType type = memory::ElementType::f16) {
        auto& groups = model_.schema.groups;
        auto group = std::ranges::find(groups, name, &memory::Group::name);
        if (group == groups.end()) {
            groups.push_back({std::string(name), lifetime, parameter, {}});
            group = groups.end() - 1;
        }
        group->planes.push_back(
            {std::string(plane), layer, type, elements, memory::row_bytes(type, elements)});
    }
    std::uint32_t few() { return 1 + static_cast<std::uint32_t>(random_() % 5); }

    void add_rows(std::string_view group, std::uint32_t window, std::int32_t layer, bool has_v) {
        const auto lifetime = window == 0 ? memory::Lifetime::tokens : memory::Lifetime::window;
        add(group, lifetime, window, "k", layer, few());
        if (has_v) add(group, lifetime, window, "v", layer, few());
    }

    void add_recurrent(std::int32_t layer) {
        const auto add_block = [&](std::string_view plane) {
            add("recurrent", memory::Lifetime::fixed, 0, plane, layer, few(),
                memory::ElementType::f32);
        };
        const std::uint32_t which = random_() % 4;
        if (which != 0) add_block("r");
        if (which != 1 || layer == 1) add_block("s");
        if (which == 2) add_block("p");
    }

    void add_dsv4(std::int32_t layer) {
        const auto add_state = [&](const std::string& part) {
            for (const char* suffix : {"_kv", "_score"}) {
                add("compressor", memory::Lifetime::fixed, 0, part + suffix, layer,
                    LlamaWriter::kStateRows * LlamaWriter::kStateWidth, memory::ElementType::f32);
            }
        };
        if (layer == 1 || layer == 2) {
            add("compressed4", memory::Lifetime::every, 4, "k", layer, few());
            add("indexer4", memory::Lifetime::every, 4, "k", layer, few());
            add_state("csa");
            add_state("lid");
        }
        if (layer == 3) {
            add("compressed128", memory::Lifetime::every, 128, "k", layer, few());
            add_state("hca");
        }
    }

    std::mt19937 random_;
    LlamaModel model_;
};

inline std::vector<Token> llama_tokens(std::uint64_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Token> tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(random() % 100);
    return tokens;
}

// A file of one sequence of `length` tokens; what may vary does, by seed.
inline LlamaFile llama_file(const LlamaModel& model, ImportKind kind, std::uint64_t length,
                            std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto coin = [&] { return random() % 2 == 0; };
    LlamaFile file;
    file.kind = kind;
    file.architecture = model.target.architecture;
    file.layers = model.target.layers;
    file.tokens = llama_tokens(length, seed);
    const std::uint64_t window_from = length > 4 && coin() ? length - 4 : 0;
    const std::size_t streams = coin() ? 1 : 3;
    file.streams.resize(streams);
    file.window.resize(streams);
    const std::uint32_t order = coin() ? 0 : seed;
    file.streams[0] = llama_cells(0, length, order);
    file.window[0] = llama_cells(window_from, length, order);
    if (length > 0) file.recurrent = {{static_cast<std::int32_t>(length) - 1, {0}, 0}};
    file.is_transposed = coin();
    file.has_extension = coin();
    file.has_indexer_v = model.kind == "msa";
    file.has_empty_window = coin() && (model.kind == "plain" || model.kind == "hybrid");
    file.has_empty_attention = coin() && model.kind == "recurrent";
    if (model.target.architecture == "deepseek32") file.indexer_rotation = 64;
    return file;
}

}  // namespace stet::state::test
