// The table of architectures, and what a plan says about layers that are not all alike.
#include "model/architectures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/config.h"
#include "model/model.h"
#include "support/gguf_writer.h"
#include "support/models.h"
#include "support/temp_directory.h"

namespace stet::model {
namespace {

std::unique_ptr<gguf::File> open(const std::string& name) {
    return test::open_model("archs/" + name + ".gguf");
}

const GqaPlan& attention(const Config& config, std::size_t layer) {
    return std::get<GqaPlan>(config.layers[layer].mixers[0]);
}

TEST(Architectures, NamesAreThereOnce) {
    std::set<std::string_view> names;
    for (const Architecture& row : architectures()) {
        EXPECT_TRUE(names.insert(row.name).second) << row.name;
        EXPECT_EQ(find_architecture(row.name), &row);
    }
    EXPECT_EQ(find_architecture("no-such"), nullptr);
}

TEST(Architectures, TheNearestAreNamed) {
    EXPECT_NE(nearest_architectures("qwen3mo").find("qwen3moe"), std::string::npos);
    EXPECT_NE(nearest_architectures("lama").find("llama"), std::string::npos);
}

// Gemma 4: layers 0 to 3 own rows, two of them in windows; 4 reads those of 2, 5 those of 3.
// By name, with what is near.
TEST(Architectures, UnknownOnesAreRefusedByName) {
    const test::TempDirectory directory;
    const auto refusal = [&](std::string_view name) -> std::string {
        test::GgufWriter writer;
        writer.set_string("general.architecture", name);
        EXPECT_TRUE(writer.save(directory / "unknown.gguf").is_ok());
        auto file = gguf::File::open(Env::posix(), directory / "unknown.gguf");
        EXPECT_TRUE(file) << file.status().to_string();
        const auto config = resolve(**file, {});
        EXPECT_EQ(config.status().code(), Code::unimplemented);
        return std::string(config.status().message());
    };
    for (const auto& [name, near] : {std::pair{"qwen9", "qwen"},
                                     {"lama", "llama"},
                                     {"gemma7", "gemma"},
                                     {"mamba9", "mamba"},
                                     {"deepseek99", "deepseek"},
                                     {"wavtokenizer-dec", ""}}) {
        const std::string message = refusal(name);
        EXPECT_NE(message.find(std::string("\"") + name + "\" is not supported"), message.npos)
            << message;
        EXPECT_NE(message.find(near, message.find("nearest supported: ")), message.npos) << message;
    }
    for (const char* name : {"bert", "nomic-bert", "modern-bert", "jina-bert-v2", "eurobert",
                             "t5encoder", "gemma-embedding"}) {
        const std::string message = refusal(name);
        EXPECT_NE(message.find(std::string(name) + "\" is an encoder alone"), message.npos)
            << message;
    }
}

TEST(Plans, LaterLayersShareRowsOfTheirKind) {
    const auto file = open("gemma4-dense");
    if (!file) return;
    const auto config = resolve(*file, {});
    ASSERT_TRUE(config) << config.status().to_string();
    for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(attention(*config, i).has_rows, i < 4) << i;
        EXPECT_EQ(config->layers[i].has_rows, i < 4) << i;
        EXPECT_EQ(attention(*config, i).window, i == 3 || i == 5 ? 0U : 32U) << i;
    }
    for (const auto& [reader, owner] : {std::pair{4, 2}, {5, 3}}) {
        const GqaPlan& mine = attention(*config, static_cast<std::size_t>(reader));
        const GqaPlan& its = attention(*config, static_cast<std::size_t>(owner));
        EXPECT_EQ(mine.k.group, its.k.group);
        EXPECT_EQ(mine.k.plane, its.k.plane);
        EXPECT_EQ(mine.v.plane, its.v.plane);
    }
    std::size_t planes = 0;
    for (const memory::Group& group : config->schema.groups) planes += group.planes.size();
    EXPECT_EQ(planes, 8U);
    EXPECT_EQ(attention(*config, 3).key_size, 128U);
    EXPECT_EQ(attention(*config, 2).key_size, 64U);
}

// HRM: two low stacks and a high one, twice, of one layer each.
TEST(Plans, StacksRunTheSameWeightsWithRowsOfTheirOwn) {
    const auto file = open("hrm_text-dense");
    if (!file) return;
    const auto config = resolve(*file, {});
    ASSERT_TRUE(config) << config.status().to_string();
    constexpr std::size_t kOrder[] = {0, 0, 1, 0, 0, 1};
    ASSERT_EQ(config->layers.size(), std::size(kOrder));
    ASSERT_EQ(config->schema.groups.size(), 1U);
    const auto& planes = config->schema.groups[0].planes;
    ASSERT_EQ(planes.size(), 12U);
    for (std::size_t i = 0; i < std::size(kOrder); ++i) {
        EXPECT_EQ(config->layers[i].weights, kOrder[i]) << i;
        EXPECT_EQ(attention(*config, i).k.plane, 2 * i);
        EXPECT_EQ(planes[2 * i].layer, static_cast<std::int32_t>(i));
    }
}

TEST(Plans, ModelsWithoutMemoryHaveRowsForOneStep) {
    for (const char* name : {"dream-dense", "llada-dense", "llada-moe-moe", "rnd1-moe"}) {
        const auto file = open(name);
        if (!file) return;
        const auto config = resolve(*file, {});
        ASSERT_TRUE(config) << config.status().to_string();
        EXPECT_TRUE(config->schema.groups.empty()) << name;
        EXPECT_EQ(config->step_rows.planes.size(), 2 * config->layers.size()) << name;
        EXPECT_FALSE(attention(*config, 0).causal) << name;
    }
}

// Llama 4: chunks in layers 0 and 2; only layer 3 has no rotary embedding and warms its queries.
TEST(Plans, ChunksAndUnrotatedLayers) {
    const auto file = open("llama4-moe");
    if (!file) return;
    const auto config = resolve(*file, {});
    ASSERT_TRUE(config) << config.status().to_string();
    for (std::size_t i = 0; i < 4; ++i) {
        const GqaPlan& plan = attention(*config, i);
        EXPECT_EQ(plan.window_kind, i % 2 == 0 ? exec::Window::chunked : exec::Window::none) << i;
        EXPECT_EQ(plan.rope.kind, i == 3 ? RopeKind::none : RopeKind::norm) << i;
        EXPECT_EQ(plan.temperature_scale, i == 3 ? 0.1F : 0.0F) << i;
        EXPECT_EQ(std::holds_alternative<MoePlan>(config->layers[i].ffn), i % 2 == 1) << i;
    }
}

TEST(Runner, PositionsBeyondALearnedTableAreRefused) {
    auto file = open("gpt2-dense");
    if (!file) return;
    auto model = Model::load(std::move(file), {.threads = 1, .state_types = {}});
    ASSERT_TRUE(model) << model.status().to_string();
    ASSERT_EQ((*model)->config.position_limit, 256U);
    exec::Step step;
    const std::vector<std::int32_t> tokens = {1};
    const std::vector<std::int32_t> positions = {256};
    step.tokens = tokens;
    step.positions = positions;
    const auto logits = Runner(**model).run(step);
    ASSERT_FALSE(logits);
    EXPECT_EQ(logits.status().code(), Code::resource_exhausted);
    EXPECT_NE(logits.status().message().find("position 256"), std::string::npos);
}

}  // namespace
}  // namespace stet::model
