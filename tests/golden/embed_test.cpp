// Embeddings: hidden states against the logits that the head makes of them, in models of different
// blocks, and pooled rows of a real model against llama-server b11434 (tests/data/embeddings; made
// with --embeddings --pooling mean and last, and the texts as they stand there).
#include "engine/embed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/models.h"

namespace stet::engine {
namespace {

std::vector<Token> some_tokens(std::size_t count) {
    std::vector<Token> tokens(count);
    std::uint32_t x = 99;
    for (Token& token : tokens) {
        x = x * 1664525U + 1013904223U;
        token = static_cast<Token>((x >> 9) % 128);
    }
    return tokens;
}

std::unique_ptr<Engine> open_engine(const std::string& model, bool without_text,
                                    std::uint32_t batch = 512) {
    auto file = test::open_model(model);
    if (!file) return nullptr;
    EngineOptions options;
    options.model.threads = 2;
    options.batch = batch;
    auto engine = Engine::create(std::move(file), options, without_text);
    EXPECT_TRUE(engine) << engine.status().to_string();
    return engine ? std::move(engine).value() : nullptr;
}

std::vector<float> embedding(Engine& engine, const std::vector<Token>& tokens, Pooling pooling,
                             std::int32_t norm = -1) {
    auto rows = embed(engine, tokens, {pooling, norm});
    EXPECT_TRUE(rows) << rows.status().to_string();
    return rows ? std::move(rows).value() : std::vector<float>();
}

class Embeddings : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { engine_ = open_engine("archs/" + GetParam() + ".gguf", true); }
    std::unique_ptr<Engine> engine_;
};

// The head times the hidden state is the logits.
TEST_P(Embeddings, AreWhatTheHeadReads) {
    if (!engine_) return;
    const auto tokens = some_tokens(40);
    const auto hidden = embedding(*engine_, tokens, Pooling::none);
    const std::size_t width = engine_->model().config.width;
    ASSERT_EQ(hidden.size(), tokens.size() * width);
    state::Sequence sequence = state::Sequence::empty(engine_->schema());
    const Part part{&sequence, tokens, Logits::all};
    const auto logits = engine_->run(std::span(&part, 1));
    ASSERT_TRUE(logits) << logits.status().to_string();
    const gguf::File& file = *engine_->model().file;
    const gguf::Tensor* head = file.find_tensor("output.weight");
    if (head == nullptr) head = file.find_tensor("token_embd.weight");
    ASSERT_NE(head, nullptr);
    ASSERT_EQ(head->type, gguf::TensorType::f32);
    const auto* weights = reinterpret_cast<const float*>(file.data(*head).data());
    std::vector<float> made;
    for (std::size_t row = 0; row < tokens.size(); ++row) {
        for (std::size_t token = 0; token < engine_->vocabulary(); ++token) {
            double sum = 0;
            for (std::size_t i = 0; i < width; ++i) {
                sum += double{weights[token * width + i]} * double{hidden[row * width + i]};
            }
            const double cap = double{engine_->model().config.final_softcap};
            if (cap != 0.0) sum = cap * std::tanh(sum / cap);
            made.push_back(static_cast<float>(sum));
        }
    }
    EXPECT_LE(test::nmse(made, *logits), 1e-6);
}

TEST_P(Embeddings, PoolingIsOfTheTokensRows) {
    if (!engine_) return;
    const auto tokens = some_tokens(33);
    const std::size_t width = engine_->model().config.width;
    const auto all = embedding(*engine_, tokens, Pooling::none);
    const auto at = [&](std::size_t row) {
        return std::vector(all.begin() + static_cast<std::ptrdiff_t>(row * width),
                           all.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
    };
    EXPECT_EQ(embedding(*engine_, tokens, Pooling::cls), at(0));
    EXPECT_EQ(embedding(*engine_, tokens, Pooling::last), at(tokens.size() - 1));
    const auto mean = embedding(*engine_, tokens, Pooling::mean);
    ASSERT_EQ(mean.size(), width);
    double length = 0;
    for (std::size_t i = 0; i < width; ++i) {
        double sum = 0;
        for (std::size_t row = 0; row < tokens.size(); ++row) sum += double{all[row * width + i]};
        EXPECT_NEAR(mean[i], sum / 33, 1e-5);
        length += double{mean[i]} * double{mean[i]};
    }
    const auto unit = embedding(*engine_, tokens, Pooling::mean, 2);
    for (std::size_t i = 0; i < width; ++i) {
        EXPECT_NEAR(unit[i], double{mean[i]} / std::sqrt(length), 1e-6);
    }
}

// A text may be computed in several steps.
TEST_P(Embeddings, StepsAreNoMatter) {
    if (!engine_) return;
    const auto tokens = some_tokens(90);
    const auto small = open_engine("archs/" + GetParam() + ".gguf", true, 16);
    const auto whole = embedding(*engine_, tokens, Pooling::none);
    EXPECT_LE(test::nmse(whole, embedding(*small, tokens, Pooling::none)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, Embeddings,
                         testing::Values("llama-dense", "qwen3moe-moe", "gemma3-dense",
                                         "deepseek2-moe", "mamba2-dense", "rwkv7-dense",
                                         "qwen3next-moe", "falcon-h1-dense", "gemma3n-dense",
                                         "hrm_text-dense", "glm5-next-moe", "kimi-k3-moe",
                                         "dream-dense"),
                         test::ModelTestName());

TEST(EncoderEmbedding, IsTheEncodersAnswer) {
    const auto engine = open_engine("archs/t5-dense.gguf", true);
    if (!engine) return;
    auto tokens = some_tokens(20);
    const std::size_t width = engine->model().config.width;
    const auto rows = embedding(*engine, tokens, Pooling::none);
    ASSERT_EQ(rows.size(), tokens.size() * width);
    // Its last step is an RMS norm: without the weights, rows have a mean square of 1.
    const gguf::File& file = *engine->model().file;
    const gguf::Tensor* norm = file.find_tensor("enc.output_norm.weight");
    ASSERT_NE(norm, nullptr);
    const auto* weights = reinterpret_cast<const float*>(file.data(*norm).data());
    for (std::size_t row = 0; row < tokens.size(); ++row) {
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) {
            squares += std::pow(double{rows[row * width + i]} / double{weights[i]}, 2);
        }
        EXPECT_NEAR(squares / static_cast<double>(width), 1.0, 1e-3);
    }
    // It reads both ways: the first row knows the last token.
    const auto before = embedding(*engine, tokens, Pooling::cls);
    tokens.back() = (tokens.back() + 1) % 128;
    EXPECT_NE(embedding(*engine, tokens, Pooling::cls), before);
}

TEST(Embedding, NormsAreTheReferences) {
    const std::vector<float> row = {3.0F, -4.0F, 0.0F};
    const auto with = [&](std::int32_t norm) {
        auto copy = row;
        normalize(copy, norm);
        return copy;
    };
    EXPECT_EQ(with(-1), row);
    EXPECT_EQ(with(0), (std::vector<float>{24570.0F, -32760.0F, 0.0F}));
    EXPECT_EQ(with(1), (std::vector<float>{3.0F / 7, -4.0F / 7, 0.0F}));
    EXPECT_EQ(with(2), (std::vector<float>{0.6F, -0.8F, 0.0F}));
    EXPECT_NEAR(with(3)[0], 3.0 / std::cbrt(91.0), 1e-6);
    std::vector<float> zero(3, 0.0F);
    normalize(zero, 2);
    EXPECT_EQ(zero, std::vector<float>(3, 0.0F));
}

TEST(Embedding, WhatCannotBeIsRefused) {
    const auto engine = open_engine("archs/llama-dense.gguf", true);
    if (!engine) return;
    const auto code = [&](std::vector<Token> tokens, std::int32_t norm = 2) {
        return embed(*engine, std::move(tokens), {Pooling::mean, norm}).status().code();
    };
    EXPECT_EQ(code({}), Code::invalid_argument);
    EXPECT_EQ(code({128}), Code::invalid_argument);
    EXPECT_EQ(code({1}, -2), Code::invalid_argument);
    EXPECT_EQ(code(std::vector<Token>(engine->context() + 1, 1)), Code::resource_exhausted);
    EXPECT_EQ(code({1}), Code::ok);
}

struct RealCase {
    const char* type;
    const char* pooling;
    double cosine;  // at least
};

class RealEmbeddings : public testing::TestWithParam<RealCase> {};

TEST_P(RealEmbeddings, EqualTheReferences) {
    const RealCase& its = GetParam();
    const auto engine =
        open_engine(fmt::format("models/smollm2-135m-instruct-{}.gguf", its.type), false);
    if (!engine) return;
    std::ifstream lines(STET_TEST_DATA "/embeddings/smollm2-135m-instruct.jsonl");
    int texts = 0;
    for (std::string line; std::getline(lines, line); ++texts) {
        const auto expected = nlohmann::json::parse(line);
        const auto tokens = engine->tokenizer().encode(
            expected["text"].get<std::string>(), {.add_special = true, .parse_special = true});
        ASSERT_TRUE(tokens);
        const auto row = embedding(*engine, *tokens, *parse_pooling(its.pooling), 2);
        const auto reference = expected[its.type][its.pooling].get<std::vector<float>>();
        ASSERT_EQ(row.size(), reference.size());
        double cosine = 0;
        for (std::size_t i = 0; i < row.size(); ++i)
            cosine += double{row[i]} * double{reference[i]};
        fmt::print("{} {} text {}: cosine {:.7f}\n", its.type, its.pooling, texts, cosine);
        EXPECT_GE(cosine, its.cosine);
    }
    EXPECT_EQ(texts, 5);
}

INSTANTIATE_TEST_SUITE_P(All, RealEmbeddings,
                         testing::Values(RealCase{"f32", "mean", 0.99999},
                                         RealCase{"f32", "last", 0.99999},
                                         RealCase{"q4_1", "mean", 0.999}),
                         [](const auto& parameter) {
                             return fmt::format("{}_{}", parameter.param.type,
                                                parameter.param.pooling);
                         });

}  // namespace
}  // namespace stet::engine
