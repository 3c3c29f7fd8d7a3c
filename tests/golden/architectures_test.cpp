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

// Feeds the golden rows in their order: a run of rows of a prompt phase in one step, rows of a step
// phase one by one, and the joint phase with one row of each sequence a step.
Result<std::vector<float>> replay(Engine& engine, const test::Golden& golden) {
    std::vector<float> logits;
    std::vector<state::Sequence> sequences(2, state::Sequence::empty(engine.schema()));
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

class Architectures : public testing::TestWithParam<std::string> {};

TEST_P(Architectures, LogitsEqualTheReference) {
    const std::string& name = GetParam();
    const std::filesystem::path data = STET_TEST_DATA "/archs";
    auto file = test::open_model("archs/" + name + ".gguf");
    if (!file) return;
    const test::Golden golden = test::read_golden(data / "logits" / (name + ".logits"));
    ASSERT_FALSE(golden.rows.empty());
    const auto limits = test::read_limits(data / "tolerance.tsv");
    ASSERT_TRUE(limits.contains(name));

    engine::EngineOptions options;
    options.model.threads = 2;
    auto engine = Engine::create(std::move(file), options, true);
    ASSERT_TRUE(engine) << engine.status().to_string();
    const auto logits = replay(**engine, golden);
    ASSERT_TRUE(logits) << logits.status().to_string();
    ASSERT_EQ(logits->size(), golden.logits.size());
    const double error = test::nmse(golden.logits, *logits);
    fmt::print("{:<24} nmse {:.1e}  limit {:.1e}\n", name, error, limits.at(name));
    EXPECT_LE(error, limits.at(name));
}

INSTANTIATE_TEST_SUITE_P(All, Architectures,
                         testing::ValuesIn(test::read_model_names(STET_TEST_DATA
                                                                  "/archs/models.txt")),
                         [](const auto& parameter) {
                             std::string name = parameter.param;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace stet
