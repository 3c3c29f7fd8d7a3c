// Every supported architecture against the reference's logits: prompts, single steps, and joint
// steps of two sequences, each within its limit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "model/architectures.h"
#include "support/golden.h"
#include "support/models.h"

namespace stet {
namespace {

using engine::Engine;

// What the reference's encoder read before the first row (archs/README.md): the 20 tokens after the
// prompt in the generator that made both.
Status encode(Engine& engine, state::Sequence& sequence) {
    if (!engine.has_encoder()) return {};
    constexpr std::size_t kPrompt = 96, kEncoded = 20;
    std::vector<state::Token> tokens;
    std::uint32_t x = 12345;
    for (std::size_t i = 0; i < kPrompt + kEncoded; ++i) {
        x = x * 1664525U + 1013904223U;
        if (i >= kPrompt) {
            tokens.push_back(static_cast<state::Token>((x >> 9) % engine.vocabulary()));
        }
    }
    const engine::Part part{
        .sequence = &sequence, .tokens = tokens, .logits = engine::Logits::none, .encodes = true};
    return engine.run(std::span(&part, 1)).status();
}

// Feeds the golden rows in their order: a run of rows of a prompt phase in one step, rows of a step
// phase one by one, and the joint phase with one row of each sequence a step.
Result<std::vector<float>> replay(Engine& engine, const test::Golden& golden) {
    std::vector<float> logits;
    std::vector<state::Sequence> sequences(2, state::Sequence::empty(engine.schema()));
    if (const Status encoded = encode(engine, sequences[0]); !encoded.is_ok()) return encoded;
    std::size_t i = 0;
    while (i < golden.rows.size()) {
        const int phase = golden.rows[i].phase;
        const bool is_prompt = phase == 0 || phase == 2;
        std::vector<std::vector<state::Token>> tokens(2);
        std::size_t end = i;
        while (end < golden.rows.size() && golden.rows[end].phase == phase) {
            auto& mine = tokens[static_cast<std::size_t>(golden.rows[end].sequence)];
            if (!is_prompt && !mine.empty()) break;
            mine.push_back(golden.rows[end].token);
            ++end;
        }
        std::vector<engine::Part> parts;
        for (std::size_t s = 0; s < 2; ++s) {
            const auto sequence = static_cast<std::size_t>(golden.rows[i].sequence);
            const std::size_t which = s == 0 ? sequence : 1 - sequence;
            if (!tokens[which].empty()) {
                parts.push_back({&sequences[which], tokens[which], engine::Logits::all});
            }
        }
        auto step = engine.run(parts);
        if (!step) return step.status();
        logits.insert(logits.end(), step->begin(), step->end());
        i = end;
    }
    return logits;
}

class Architectures : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const std::filesystem::path data = STET_TEST_DATA "/archs";
        auto file = test::open_model("archs/" + GetParam() + ".gguf");
        if (!file) return;
        golden_ = test::read_golden(data / "logits" / (GetParam() + ".logits"));
        ASSERT_FALSE(golden_.rows.empty());
        const auto limits = test::read_limits(data / "tolerance.tsv");
        ASSERT_TRUE(limits.contains(GetParam()));
        limit_ = limits.at(GetParam());
        engine::EngineOptions options;
        options.model.threads = 2;
        auto engine = Engine::create(std::move(file), options, true);
        ASSERT_TRUE(engine) << engine.status().to_string();
        engine_ = *std::move(engine);
    }

    test::Golden golden_;
    double limit_ = 0;
    std::unique_ptr<Engine> engine_;  // null: the model isn't there
};

TEST_P(Architectures, LogitsEqualTheReference) {
    if (!engine_) return;
    const auto logits = replay(*engine_, golden_);
    ASSERT_TRUE(logits) << logits.status().to_string();
    ASSERT_EQ(logits->size(), golden_.logits.size());
    const double error = test::nmse(golden_.logits, *logits);
    fmt::print("{:<24} nmse {:.1e}  limit {:.1e}\n", GetParam(), error, limit_);
    EXPECT_LE(error, limit_);
}

// Steps that only fill the state, of any length, leave the same state as one step over all.
TEST_P(Architectures, PromptsMayBeCutAnywhere) {
    if (!engine_) return;
    std::vector<state::Token> prompt;
    for (const auto& row : golden_.rows) {
        if (row.phase == 0) prompt.push_back(row.token);
    }
    const std::size_t silent = prompt.size() * 5 / 8;
    state::Sequence sequence = state::Sequence::empty(engine_->schema());
    ASSERT_TRUE(encode(*engine_, sequence).is_ok());
    const auto run = [&](std::size_t begin, std::size_t end, engine::Logits wanted) {
        const engine::Part part{&sequence, std::span(prompt).subspan(begin, end - begin), wanted};
        return engine_->run(std::span(&part, 1));
    };
    for (const auto& [begin, end] : {std::pair{std::size_t{0}, silent / 2}, {silent / 2, silent}}) {
        const auto nothing = run(begin, end, engine::Logits::none);
        ASSERT_TRUE(nothing) << nothing.status().to_string();
        EXPECT_TRUE(nothing->empty());
    }
    const auto logits = run(silent, prompt.size(), engine::Logits::all);
    ASSERT_TRUE(logits) << logits.status().to_string();
    const std::size_t vocabulary = golden_.logits.size() / golden_.rows.size();
    const auto expected =
        std::span<const float>(golden_.logits).subspan(silent * vocabulary, logits->size());
    EXPECT_LE(test::nmse(expected, *logits), limit_);
}

INSTANTIATE_TEST_SUITE_P(All, Architectures,
                         testing::ValuesIn(test::read_model_names(STET_TEST_DATA
                                                                  "/archs/models.txt")),
                         test::ModelTestName());

}  // namespace
}  // namespace stet
