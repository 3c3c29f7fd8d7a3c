// Real models against the reference: token ids of every prompt, and the greedy continuation with its
// best logits (tests/data/real).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "support/golden.h"

namespace stet {
namespace {

using engine::Engine;
using nlohmann::json;

// The reference's own choice is only certain where its best two logits differ by more than this.
constexpr double kCertain = 0.05;
constexpr double kLogitLimit = 0.15;

class RealModels : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        const std::string name = GetParam();
        const auto path = test::test_cache() / "models" / (name + ".gguf");
        if (!std::filesystem::exists(path)) {
            if (std::getenv("CI") != nullptr) FAIL() << path << " is missing";
            GTEST_SKIP() << path << " is missing; run scripts/fetch_test_data.py";
        }
        auto file = gguf::File::open(Env::posix(), path);
        ASSERT_TRUE(file) << file.status().to_string();
        engine::EngineOptions options;
        options.model.threads = 2;
        auto created = Engine::create(std::move(file).value(), options);
        ASSERT_TRUE(created) << created.status().to_string();
        engine_ = std::move(created).value();
        std::ifstream lines(std::string(STET_TEST_DATA "/real/") + name + ".jsonl");
        for (std::string line; std::getline(lines, line);) prompts_.push_back(json::parse(line));
        ASSERT_FALSE(prompts_.empty());
    }

    // Compares the best logits of one step; answers whether the choice was the reference's.
    void compare(const json& expected, std::span<const float> logits, const std::string& where) {
        for (const json& pair : expected) {
            const auto token = pair[0].get<std::size_t>();
            EXPECT_NEAR(logits[token], pair[1].get<double>(), kLogitLimit) << where << " token " << token;
        }
    }

    std::unique_ptr<Engine> engine_;
    std::vector<json> prompts_;
};

TEST_P(RealModels, PromptsHaveTheSameTokens) {
    for (const json& line : prompts_) {
        const auto prompt = line["prompt"].get<std::string>();
        const auto tokens =
            engine_->tokenizer().encode(prompt, {.add_special = true, .parse_special = true});
        ASSERT_TRUE(tokens) << tokens.status().to_string();
        EXPECT_EQ(*tokens, line["tokens"].get<std::vector<state::Token>>()) << prompt;
    }
}

TEST_P(RealModels, GreedyContinuationEqualsTheReference) {
    int compared = 0;
    for (const json& line : prompts_) {
        auto tokens = line["tokens"].get<std::vector<state::Token>>();
        state::Sequence sequence = state::Sequence::empty(engine_->schema());
        int step_number = 0;
        for (const json& expected : line["steps"]) {
            const Engine::Part part{&sequence, tokens, Engine::Logits::last};
            const auto logits = engine_->run(std::span(&part, 1));
            ASSERT_TRUE(logits) << logits.status().to_string();
            const std::string where = line["prompt"].get<std::string>().substr(0, 30) + " step " +
                                      std::to_string(step_number++);
            compare(expected, *logits, where);
            ++compared;
            const auto best = static_cast<state::Token>(
                std::max_element(logits->begin(), logits->end()) - logits->begin());
            const auto reference = expected[0][0].get<state::Token>();
            const double margin = expected[0][1].get<double>() - expected[1][1].get<double>();
            if (margin > kCertain) {
                ASSERT_EQ(best, reference) << where;
            } else if (best != reference) {
                break;  // a coin toss went the other way: the rest is another text
            }
            tokens = {best};
        }
    }
    std::printf("%d steps compared\n", compared);
    EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(All, RealModels,
                         testing::Values("smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m"),
                         [](const auto& parameter) {
                             std::string name = parameter.param;
                             std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                             return name;
                         });

}  // namespace
}  // namespace stet
