// Plans in words: every model can be described, and what is alike stands together.
#include "model/describe.h"

#include <gtest/gtest.h>

#include "support/golden.h"
#include "support/models.h"

namespace stet::model {
namespace {

class Description : public testing::TestWithParam<std::string> {};

TEST_P(Description, CoversEveryLayerOnce) {
    const auto file = test::open_model("archs/" + GetParam() + ".gguf");
    if (!file) return;
    const auto config = resolve(*file, {});
    ASSERT_TRUE(config) << config.status().to_string();
    std::size_t next = 0;
    for (const LayerFacts& layers : describe_layers(*config)) {
        EXPECT_EQ(layers.first, next);
        EXPECT_GE(layers.last, layers.first);
        next = layers.last + 1;
        const LayerPlan& plan = config->layers[layers.first];
        const bool is_t5 = config->encoder.encoder_layers != 0;
        EXPECT_EQ(layers.mixers.size(),
                  is_t5 ? 2U : plan.mixers.size() + (plan.ngram.has_value() ? 1U : 0U));
        for (const Facts& mixer : layers.mixers) EXPECT_FALSE(to_line(mixer).empty());
        EXPECT_EQ(layers.groups.empty() && !config->schema.groups.empty(),
                  !config->layers[layers.first].has_rows)
            << "layers " << layers.first << " to " << layers.last;
    }
    EXPECT_EQ(next, config->layers.size());
}

INSTANTIATE_TEST_SUITE_P(All, Description,
                         testing::ValuesIn(test::read_model_names(STET_TEST_DATA
                                                                  "/archs/models.txt")),
                         test::ModelTestName());

TEST(DescriptionOf, Gemma3SaysWindowsAndFullLayers) {
    const auto file = test::open_model("models/gemma-3-270m-q4_k_m.gguf");
    if (!file) return;
    const auto config = resolve(*file, {});
    ASSERT_TRUE(config);
    const auto layers = describe_layers(*config);
    ASSERT_EQ(layers.size(), 6U);
    EXPECT_EQ(layers[0].last, 4U);
    EXPECT_EQ(layers[0].groups, std::vector<std::string>{"window"});
    EXPECT_EQ(layers[1].groups, std::vector<std::string>{"attention"});
    EXPECT_EQ(to_line(layers[1].mixers[0]),
              "attention, heads 4, kv_heads 1, key_size 256, rope neox, rope_dimensions 256, "
              "rope_base 1000000");
    EXPECT_EQ(to_line(layers[1].ffn), "gated feed-forward, size 2048, activation gelu");
}

std::string lines_of(const char* model) {
    const auto file = test::open_model(std::string("archs/") + model + ".gguf");
    if (!file) return {};
    const auto config = resolve(*file, {});
    EXPECT_TRUE(config) << config.status().to_string();
    std::string text = to_line(describe_encoder(*config)) + "\n";
    for (const LayerFacts& layers : describe_layers(*config)) {
        for (const Facts& mixer : layers.mixers) text += to_line(mixer) + "\n";
        text += to_line(layers.ffn) + "\n";
    }
    return text;
}

TEST(DescriptionOf, WhatIsSpecialIsSaid) {
    const std::string t5 = lines_of("t5-dense");
    if (t5.empty()) return;
    EXPECT_NE(t5.find("encoder, attention both ways, layers 3, heads 4, key_size 32"), t5.npos);
    EXPECT_NE(t5.find("attention to what was encoded, heads 4"), t5.npos) << t5;
    EXPECT_NE(t5.find("feed-forward, size 384"), t5.npos) << t5;
    const std::string glm = lines_of("glm5-next-moe");
    EXPECT_NE(glm.find("tokens_a_pooled_key 4"), glm.npos) << glm;
    EXPECT_NE(glm.find("pooled_keys_chosen"), glm.npos) << glm;
    const std::string qwen = lines_of("qwen4exp-moe");
    EXPECT_NE(qwen.find("n-gram embeddings, longest"), qwen.npos) << qwen;
    EXPECT_NE(qwen.find("tokens_a_pooled_key"), qwen.npos) << qwen;
    EXPECT_EQ(lines_of("llama-dense").find("pooled"), std::string::npos);
}

}  // namespace
}  // namespace stet::model
