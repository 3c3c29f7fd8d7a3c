// What no small reference model has, as equalities between two edits of one: both give the same
// bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "engine/engine.h"
#include "support/model_editor.h"
#include "support/models.h"
#include "support/temp_directory.h"

namespace stet {
namespace {

using engine::Engine;

class EditedModel : public testing::Test {
  protected:
    Result<std::vector<float>> logits(const gguf::File& file, const test::ModelEdits& edits) {
        auto edited = test::edit_model(file, edits, directory_ / "edited.gguf");
        if (!edited) return Status(Code::internal, "the edited file can't be opened");
        engine::EngineOptions options;
        options.model.threads = 1;
        auto engine = Engine::create(std::move(edited), options, true);
        if (!engine) return engine.status();
        state::Sequence sequence = state::Sequence::empty((*engine)->schema());
        const std::vector<state::Token> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
        const engine::Part part{&sequence, tokens, engine::Logits::all};
        const auto answer = (*engine)->run(std::span(&part, 1));
        if (!answer) return answer.status();
        return std::vector(answer->begin(), answer->end());
    }

    test::TempDirectory directory_;
};

std::vector<std::uint64_t> shape_of(const gguf::Tensor& tensor) {
    return {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions};
}

// A model that runs its two layers twice is one of four layers, of which each two are the same.
TEST_F(EditedModel, LoopsAreLayersAgain) {
    const auto file = test::open_model("archs/nanbeige-dense.gguf");
    if (!file) return;
    const auto looped = logits(
        *file, {.key = [](test::GgufWriter& writer, const std::string& key, const gguf::Value&) {
            if (key != "nanbeige.block_count") return false;
            writer.set_u32("nanbeige.num_loops", 2).set_bool("nanbeige.skip_loop_final_norm", true);
            return false;
        }});
    const auto longer = logits(
        *file, {.key =
                    [](test::GgufWriter& writer, const std::string& key, const gguf::Value& value) {
                        if (std::holds_alternative<gguf::FloatArray>(value)) return true;
                        if (key != "nanbeige.block_count") return false;
                        writer.set_u32(key, 4);
                        return true;
                    },
                .tensor =
                    [](test::GgufWriter& writer, const gguf::Tensor& tensor,
                       std::span<const std::byte> data) {
                        for (const auto& [from, to] :
                             {std::pair{"blk.0.", "blk.2."}, {"blk.1.", "blk.3."}}) {
                            if (!tensor.name.starts_with(from)) continue;
                            writer.add_tensor(to + tensor.name.substr(6), tensor.type,
                                              shape_of(tensor), {data.begin(), data.end()});
                        }
                        return false;
                    }});
    const auto once = logits(*file, {});
    ASSERT_TRUE(looped) << looped.status().to_string();
    ASSERT_TRUE(longer) << longer.status().to_string();
    ASSERT_TRUE(once);
    EXPECT_EQ(*looped, *longer);
    EXPECT_NE(*looped, *once);
}

// DeciLM: a layer without heads and without feed-forward is no layer; one without key/value heads
// is a matrix.
TEST_F(EditedModel, LayersMayLackBlocks) {
    const auto file = test::open_model("archs/deci-dense.gguf");
    if (!file) return;
    const auto with = [&](std::vector<std::uint32_t> heads, std::vector<std::uint32_t> kv_heads,
                          std::vector<std::uint32_t> sizes) {
        return logits(*file, {.key = [&](test::GgufWriter& writer, const std::string& key,
                                         const gguf::Value&) {
            if (key == "deci.attention.head_count") {
                writer.set_u32s(key, heads);
            } else if (key == "deci.attention.head_count_kv") {
                writer.set_u32s(key, kv_heads);
            } else if (key == "deci.feed_forward_length") {
                writer.set_u32s(key, sizes);
            } else {
                return false;
            }
            return true;
        }});
    };
    const auto shorter = logits(
        *file, {.key = [](test::GgufWriter& writer, const std::string& key, const gguf::Value&) {
            if (key != "deci.block_count") return false;
            writer.set_u32(key, 1);
            return true;
        }});
    const auto empty = with({2, 0}, {2, 0}, {384, 0});
    const auto projected = with({2, 2}, {2, 0}, {384, 384});
    ASSERT_TRUE(shorter) << shorter.status().to_string();
    ASSERT_TRUE(empty) << empty.status().to_string();
    ASSERT_TRUE(projected) << projected.status().to_string();
    EXPECT_EQ(*empty, *shorter);
    EXPECT_NE(*projected, *shorter);
}

// step35-moe: 4 experts, of which 2 are used.
class ExpertGroups : public EditedModel {
  protected:
    void SetUp() override { file_ = test::open_model("archs/step35-moe.gguf"); }

    Result<std::vector<float>> logits(std::uint32_t groups, std::uint32_t groups_used,
                                      std::array<float, 4> bias) {
        return EditedModel::logits(
            *file_, {.key =
                         [&](test::GgufWriter& writer, const std::string& key, const gguf::Value&) {
                             if (key != "step35.expert_count") return false;
                             writer.set_u32("step35.expert_group_count", groups);
                             writer.set_u32("step35.expert_group_used_count", groups_used);
                             return false;
                         },
                     .tensor =
                         [&](test::GgufWriter& writer, const gguf::Tensor& tensor,
                             std::span<const std::byte>) {
                             if (tensor.name.find("exp_probs_b") == std::string::npos) return false;
                             writer.add_f32(tensor.name, {4}, bias);
                             return true;
                         }});
    }

    std::unique_ptr<gguf::File> file_;  // null: the model isn't there
};

TEST_F(ExpertGroups, AGroupIsWorthItsTwoBest) {
    if (!file_) return;
    // The best expert is the first, but the second group has the greater sum.
    const auto grouped = logits(2, 1, {10.0F, -5.0F, 9.0F, 7.0F});
    const auto forced = logits(0, 0, {-90.0F, -90.0F, 9.0F, 7.0F});
    const auto free = logits(0, 0, {10.0F, -5.0F, 9.0F, 7.0F});
    ASSERT_TRUE(grouped) << grouped.status().to_string();
    ASSERT_TRUE(forced && free);
    EXPECT_EQ(*grouped, *forced);
    EXPECT_NE(*grouped, *free);
}

TEST_F(ExpertGroups, AllGroupsAreNoChoice) {
    if (!file_) return;
    const auto grouped = logits(2, 2, {0.3F, -0.1F, 0.2F, 0.0F});
    const auto free = logits(0, 0, {0.3F, -0.1F, 0.2F, 0.0F});
    ASSERT_TRUE(grouped && free);
    EXPECT_EQ(*grouped, *free);
}

TEST_F(ExpertGroups, WithTooFewExpertsAreRefused) {
    if (!file_) return;
    const auto alone = logits(4, 2, {});  // groups of one expert have no two best
    ASSERT_FALSE(alone);
    EXPECT_EQ(alone.status().code(), Code::corruption);
    const auto none = logits(2, 0, {});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.status().code(), Code::corruption);
}

// Pooled indexers whose choice is smaller than what is seen: the small models choose everything.
class PooledChoice : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const auto file = test::open_model("archs/" + GetParam() + "-moe.gguf");
        if (!file) return;
        const std::string chosen = GetParam() + ".attention.indexer.top_k";
        edited_ = test::edit_model(
            *file,
            {.key =
                 [&](test::GgufWriter& writer, const std::string& key, const gguf::Value&) {
                     if (key != chosen) return false;
                     writer.set_u32(key, 8);  // two keys of four tokens
                     return true;
                 }},
            directory_ / "edited.gguf");
        ASSERT_NE(edited_, nullptr);
        for (std::int32_t i = 0; i < 96; ++i) tokens_.push_back(i * 37 % 101);
    }
    std::unique_ptr<Engine> engine(int threads) {
        auto file = gguf::File::open(Env::posix(), edited_->path());
        EXPECT_TRUE(file);
        engine::EngineOptions options;
        options.model.threads = threads;
        auto engine = Engine::create(*std::move(file), options, true);
        EXPECT_TRUE(engine) << engine.status().to_string();
        return *std::move(engine);
    }
    // Logits of the last token after steps that end before the tokens named.
    std::vector<float> last(Engine& engine, const std::vector<std::size_t>& ends) {
        state::Sequence sequence = state::Sequence::empty(engine.schema());
        std::vector<float> logits;
        std::size_t begin = 0;
        for (const std::size_t end : ends) {
            const engine::Part part{&sequence, std::span(tokens_).subspan(begin, end - begin),
                                    engine::Logits::last};
            const auto answer = engine.run(std::span(&part, 1));
            EXPECT_TRUE(answer) << answer.status().to_string();
            if (!answer) return {};
            logits.assign(answer->begin(), answer->end());
            begin = end;
        }
        return logits;
    }

    test::TempDirectory directory_;
    std::unique_ptr<gguf::File> edited_;  // null: the model isn't there
    std::vector<state::Token> tokens_;
};

TEST_P(PooledChoice, CutsAndThreadsChangeNothing) {
    if (!edited_) return;
    const auto two = engine(2);
    const auto whole = last(*two, {96});
    EXPECT_EQ(last(*engine(1), {96}), whole);
    for (const auto& ends : {std::vector<std::size_t>{60, 96}, {1, 2, 3, 5, 8, 50, 51, 95, 96}}) {
        EXPECT_LT(test::nmse(whole, last(*two, ends)), 1e-9);
    }
}

TEST_P(PooledChoice, IsOfTheBestKeysAndTheLastTokens) {
    if (!edited_) return;
    const auto one = engine(1);
    const auto chosen = last(*one, {96});
    // Whatever was chosen of four pools, it is not all of them; of two it is.
    tokens_.resize(11);
    const auto all = last(*one, {11});
    const auto file = test::open_model("archs/" + GetParam() + "-moe.gguf");
    edited_ = test::edit_model(*file, {}, directory_ / "whole.gguf");
    const auto whole = engine(1);
    EXPECT_EQ(last(*whole, {11}), all);
    tokens_.clear();
    for (std::int32_t i = 0; i < 96; ++i) tokens_.push_back(i * 37 % 101);
    EXPECT_GT(test::nmse(last(*whole, {96}), chosen), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, PooledChoice, testing::Values("glm5-next", "qwen4exp"),
                         [](const auto& parameter) {
                             std::string name = parameter.param;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace stet
