// Model files that are valid GGUF but lie: every hyper-parameter at the edges of its type, every
// tensor missing or of another shape. Loading and a step either work or fail with a message that
// names what is wrong; they never crash and never ask for memory without bounds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "engine/engine.h"
#include "support/golden.h"
#include "support/model_editor.h"
#include "support/models.h"
#include "support/temp_directory.h"

namespace stet {
namespace {

using engine::Engine;

class ModelFile : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { original_ = test::open_model("archs/" + GetParam() + ".gguf"); }

    // Loads the edited copy and runs two steps; answers what failed, or ok.
    Status try_out(const test::ModelEdits& edits) {
        auto file = test::edit_model(*original_, edits, directory_ / "edited.gguf");
        if (!file) return Status(Code::internal, "the edited file can't be opened");
        engine::EngineOptions options;
        options.model.threads = 1;
        auto engine = Engine::create(std::move(file), options, true);
        if (!engine) return engine.status();
        state::Sequence sequence = state::Sequence::empty((*engine)->schema());
        const std::vector<state::Token> tokens = {1, 2, 3};
        for (const auto wanted : {engine::Logits::none, engine::Logits::all}) {
            const engine::Part part{&sequence, tokens, wanted};
            const auto logits = (*engine)->run(std::span(&part, 1));
            if (!logits) return logits.status();
        }
        return {};
    }

    std::unique_ptr<gguf::File> original_;  // null: the model isn't there
    test::TempDirectory directory_;
};

// Keys that only recurrent layers, and what comes with them, read.
bool has_recurrent_keys(std::string_view prefix, std::string_view name) {
    if (!prefix.starts_with("kimi") && !prefix.starts_with("qwen3next")) return false;
    constexpr std::string_view kTheirs[] = {"ssm.", "kda.", "attn_res.", "activation.situ"};
    return std::ranges::any_of(kTheirs,
                               [&](std::string_view of) { return name.starts_with(of); }) ||
           name.find("lora") != std::string_view::npos ||
           name.find("mla") != std::string_view::npos;
}

// Of the model itself: generated files have keys of all other families too.
bool is_hyper_parameter(const gguf::File& file, const std::string& key) {
    const std::string prefix = fmt::format("{}.", *file.get_string("general.architecture"));
    if (!key.starts_with(prefix)) return false;
    constexpr std::string_view kOthers[] = {
        "ssm.",       "kda.",     "wkv.",       "posnet.",    "convnext.",        "classifier.",
        "dense_",     "time_",    "shortconv.", "attn_res.",  "hyper_connection", "hrm.",
        "activation", "decoder_", "token_",     "deepstack_", "n_deepstack",      "hash_",
    };
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (has_recurrent_keys(prefix, name)) return true;
    return std::ranges::none_of(kOthers,
                                [&](std::string_view of) { return name.starts_with(of); }) &&
           name.find("indexer") == std::string_view::npos &&
           name.find("lora") == std::string_view::npos &&
           name.find("mla") == std::string_view::npos;
}

// The key with every value, or every entry, at an edge of what its type can hold.
void write_edge(test::GgufWriter& writer, const std::string& key, const gguf::Value& was,
                std::uint64_t edge) {
    constexpr std::uint64_t kIntMax = 0x7fffffff;
    const float real =
        edge > kIntMax ? -std::numeric_limits<float>::infinity() : static_cast<float>(edge);
    const auto integer = static_cast<std::int32_t>(edge > kIntMax ? -1 : edge);
    if (std::holds_alternative<double>(was)) {
        writer.set_f32(key, real);
    } else if (const auto* integers = std::get_if<gguf::IntArray>(&was)) {
        writer.set_i32s(key, std::vector(integers->values.size(), integer));
    } else if (const auto* reals = std::get_if<gguf::FloatArray>(&was)) {
        writer.set_f32s(key, std::vector(reals->values.size(), real));
    } else {
        writer.set_u64(key, edge);
    }
}

TEST_P(ModelFile, EdgesOfHyperParametersAreRefusedOrWork) {
    if (!original_) return;
    constexpr std::uint64_t kEdges[] = {0, 3, 0x7fffffff, ~0ULL};
    for (const auto& [name, value] : original_->metadata()) {
        if (!is_hyper_parameter(*original_, name)) continue;
        for (const std::uint64_t edge : kEdges) {
            SCOPED_TRACE(fmt::format("{} = {}", name, edge));
            const Status status =
                try_out({.key = [&](test::GgufWriter& writer, const std::string& key,
                                    const gguf::Value& was) {
                    if (key != name) return false;
                    write_edge(writer, key, was, edge);
                    return true;
                }});
            EXPECT_NE(status.code(), Code::internal) << status.to_string();
        }
    }
}

TEST_P(ModelFile, MissingKeysTakeDefaultsOrAreNamed) {
    if (!original_) return;
    for (const auto& [name, value] : original_->metadata()) {
        if (!is_hyper_parameter(*original_, name)) continue;
        SCOPED_TRACE(name);
        const Status status = try_out({.key = [&](test::GgufWriter&, const std::string& key,
                                                  const gguf::Value&) { return key == name; }});
        EXPECT_NE(status.code(), Code::internal) << status.to_string();
    }
}

TEST_P(ModelFile, MissingAndMisshapenTensorsAreNamed) {
    if (!original_) return;
    for (const gguf::Tensor& chosen : original_->tensors()) {
        const bool later_layer = chosen.name.starts_with("blk.") &&
                                 !chosen.name.starts_with("blk.0.") &&
                                 !chosen.name.starts_with("blk.1.");
        if (later_layer || chosen.name.ends_with("scale")) continue;
        SCOPED_TRACE(chosen.name);
        const Status missing = try_out(
            {.tensor = [&](test::GgufWriter&, const gguf::Tensor& tensor,
                           std::span<const std::byte>) { return tensor.name == chosen.name; }});
        EXPECT_NE(missing.code(), Code::internal) << missing.to_string();
        for (const auto type : {gguf::TensorType::f32, gguf::TensorType::i32}) {
            const Status wrong =
                try_out({.tensor = [&](test::GgufWriter& writer, const gguf::Tensor& tensor,
                                       std::span<const std::byte> data) {
                    if (tensor.name != chosen.name) return false;
                    auto shape =
                        std::vector(tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions);
                    std::vector<std::byte> bytes(data.begin(), data.end());
                    if (type == gguf::TensorType::f32) {
                        shape.back() += 1;
                        std::uint64_t elements = 1;
                        for (const std::uint64_t size : shape) elements *= size;
                        bytes.resize(4 * elements);
                    }
                    writer.add_tensor(tensor.name, type, shape, bytes);
                    return true;
                }});
            EXPECT_NE(wrong.code(), Code::internal) << wrong.to_string();
        }
    }
}

// Between them these have every switch of layers, experts and streams, and few keys.
INSTANTIATE_TEST_SUITE_P(All, ModelFile,
                         testing::Values("gemma3n-dense", "gemma4-moe", "kimi-k3-moe", "llama4-moe",
                                         "qwen3next-moe", "step35-moe"),
                         test::ModelTestName());

}  // namespace
}  // namespace stet
