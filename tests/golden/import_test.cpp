// State that llama.cpp saved, imported and continued: the logits that follow are the reference's.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "engine/import_state.h"
#include "support/golden.h"
#include "support/models.h"

namespace stet {
namespace {

using engine::Engine;

// Models with files, of those that are supported.
std::vector<std::string> legacy_names() {
    const auto supported = test::read_model_names(STET_TEST_DATA "/archs/models.txt");
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(STET_TEST_DATA "/legacy")) {
        const std::string name = entry.path().stem().string();
        if (entry.path().extension() == ".seq" && std::ranges::count(supported, name) > 0) {
            names.push_back(name);
        }
    }
    std::ranges::sort(names);
    return names;
}

class Import : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        auto file = test::open_model("archs/" + GetParam() + ".gguf");
        if (!file) return;
        golden_ = test::read_golden(legacy(".logits"));
        ASSERT_FALSE(golden_.rows.empty());
        const auto limits = test::read_limits(STET_TEST_DATA "/archs/tolerance.tsv");
        ASSERT_TRUE(limits.contains(GetParam()));
        limit_ = limits.at(GetParam());
        engine::EngineOptions options;
        options.model.threads = 2;
        auto engine = Engine::create(std::move(file), options, true);
        ASSERT_TRUE(engine) << engine.status().to_string();
        engine_ = std::move(engine).value();
        engine_->pool().set_poison(std::byte{0x3e});
    }

    static std::filesystem::path legacy(const std::string& extension) {
        return std::string(STET_TEST_DATA "/legacy/") + GetParam() + extension;
    }

    void expect_continues(state::Sequence sequence) {
        ASSERT_EQ(sequence.position(), static_cast<std::uint64_t>(golden_.rows[0].position));
        std::vector<float> logits;
        for (const test::GoldenRow& row : golden_.rows) {
            const engine::Part part{&sequence, std::span(&row.token, 1), engine::Logits::last};
            const auto step = engine_->run(std::span(&part, 1));
            ASSERT_TRUE(step) << step.status().to_string();
            logits.insert(logits.end(), step->begin(), step->end());
        }
        const double error = test::nmse(golden_.logits, logits);
        RecordProperty("nmse", std::to_string(error));
        EXPECT_LE(error, limit_);
    }

    std::unique_ptr<Engine> engine_;
    test::Golden golden_;
    double limit_ = 0;
};

TEST_P(Import, SequenceFileContinues) {
    if (!engine_) return;
    const auto imported = engine::import_state(*engine_, Env::posix(), legacy(".seq"));
    ASSERT_TRUE(imported) << imported.status().to_string();
    ASSERT_EQ(imported->sequences.size(), 1U);
    EXPECT_EQ(imported->kind, state::ImportKind::sequence);
    expect_continues(imported->sequences[0].sequence);
}

TEST_P(Import, SessionFileContinues) {
    if (!engine_) return;
    const auto imported = engine::import_state(*engine_, Env::posix(), legacy(".session"));
    ASSERT_TRUE(imported) << imported.status().to_string();
    ASSERT_EQ(imported->sequences.size(), 1U);
    EXPECT_EQ(imported->kind, state::ImportKind::session);
    expect_continues(imported->sequences[0].sequence);
}

// A real file cut anywhere is refused, and takes no page.
TEST_P(Import, CutFileIsRefused) {
    if (!engine_) return;
    for (const char* extension : {".seq", ".session"}) {
        const auto mapping = Env::posix().map(legacy(extension));
        ASSERT_TRUE(mapping);
        const auto bytes = (*mapping)->bytes();
        const auto target = engine::import_target(*engine_);
        for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 64) {
            const auto imported =
                state::import_llama_state(bytes.first(size), "cut", target, engine_->pool());
            ASSERT_FALSE(imported) << size;
            ASSERT_EQ(engine_->pool().stats().pages_in_use, 0U);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Legacy, Import, testing::ValuesIn(legacy_names()), test::ModelTestName());

}  // namespace
}  // namespace stet
