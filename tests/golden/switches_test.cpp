// Switches that no small reference model uses, as equalities: a model that has one and the same
// function written in another way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "support/golden.h"
#include "support/model_editor.h"
#include "support/models.h"
#include "support/temp_directory.h"

namespace stet {
namespace {

using engine::Engine;
using test::GgufWriter;
using Shape = std::vector<std::uint64_t>;

std::vector<float> floats(std::span<const std::byte> data) {
    const auto* begin = reinterpret_cast<const float*>(data.data());
    return {begin, begin + data.size() / sizeof(float)};
}

std::vector<std::byte> bytes(const std::vector<std::int32_t>& values) {
    const auto all = std::as_bytes(std::span(values));
    return {all.begin(), all.end()};
}

Shape shape_of(const gguf::Tensor& tensor) {
    return {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions};
}

class Switches : public testing::Test {
  protected:
    using Tensor = std::function<bool(GgufWriter&, const gguf::Tensor&, const std::vector<float>&)>;
    using Key = std::function<bool(GgufWriter&, const std::string&)>;

    // Logits of a prompt, after changes of keys and of f32 tensors. State in f32: nothing is
    // rounded that the two ways would round differently.
    Result<std::vector<float>> logits(const std::string& name, const Key& key,
                                      const Tensor& tensor) {
        const auto file = test::open_model("archs/" + name + ".gguf");
        if (!file) return std::vector<float>();
        auto edited = test::edit_model(
            *file,
            {.key = [&](GgufWriter& writer, const std::string& k,
                        const gguf::Value&) { return key && key(writer, k); },
             .tensor =
                 [&](GgufWriter& writer, const gguf::Tensor& t, std::span<const std::byte> data) {
                     return tensor && tensor(writer, t, floats(data));
                 }},
            directory_ / "edited.gguf");
        if (!edited) return Status(Code::internal, "the edited file can't be opened");
        engine::EngineOptions options;
        options.model.threads = 1;
        options.model.state_types.k = memory::ElementType::f32;
        options.model.state_types.v = memory::ElementType::f32;
        auto engine = Engine::create(std::move(edited), options, true);
        if (!engine) return engine.status();
        state::Sequence sequence = state::Sequence::empty((*engine)->schema());
        std::vector<state::Token> tokens(24);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            tokens[i] = static_cast<state::Token>(i * 37 % 101);
        }
        const engine::Part part{&sequence, tokens, engine::Logits::all};
        const auto answer = (*engine)->run(std::span(&part, 1));
        if (!answer) return answer.status();
        return std::vector(answer->begin(), answer->end());
    }

    // Both are there and the same, up to rounding; and differ clearly from a third where given.
    static void expect_same(const Result<std::vector<float>>& a,
                            const Result<std::vector<float>>& b) {
        ASSERT_TRUE(a) << a.status().to_string();
        ASSERT_TRUE(b) << b.status().to_string();
        if (a->empty()) return;
        EXPECT_LE(test::nmse(*a, *b), 1e-8);
    }
    static void expect_other(const Result<std::vector<float>>& a,
                             const Result<std::vector<float>>& b) {
        ASSERT_TRUE(a) << a.status().to_string();
        ASSERT_TRUE(b) << b.status().to_string();
        if (a->empty()) return;
        EXPECT_GE(test::nmse(*a, *b), 1e-5);
    }

    test::TempDirectory directory_;
};

// DeepSeek's older files: one matrix that opens a row into keys and values, instead of one a head
// for each.
TEST_F(Switches, OpenedRowsAreTheAbsorbedOnes) {
    // k_b [plain, rank] of the one head becomes the first rows of kv_b, v_b [rank, values] the
    // rest.
    constexpr std::size_t kPlain = 128, kRank = 512, kValues = 128;
    std::vector<float> k_b;
    const auto opened = [&](const std::string& key_length, const std::string& value_length) {
        return logits(
            "deepseek2-moe",
            [&](GgufWriter& writer, const std::string& key) {
                if (key == "deepseek2.attention.key_length") writer.set_u32(key, 192);
                if (key == "deepseek2.attention.value_length") writer.set_u32(key, 128);
                return key == key_length || key == value_length;
            },
            [&](GgufWriter& writer, const gguf::Tensor& tensor, const std::vector<float>& data) {
                if (tensor.name.ends_with("attn_k_b.weight")) {
                    k_b = data;
                    return true;
                }
                if (!tensor.name.ends_with("attn_v_b.weight")) return false;
                std::vector<float> both;
                for (std::size_t p = 0; p < kPlain; ++p) {
                    for (std::size_t r = 0; r < kRank; ++r) both.push_back(k_b[r * kPlain + p]);
                }
                both.insert(both.end(), data.begin(), data.end());
                writer.add_f32(tensor.name.substr(0, 6) + "attn_kv_b.weight",
                               {kRank, kPlain + kValues}, both);
                return true;
            });
    };
    expect_same(logits("deepseek2-moe", {}, {}),
                opened("deepseek2.attention.key_length", "deepseek2.attention.value_length"));
}

// YaRN (arXiv 2309.00071) with an original context so long that no frequency changes: what is left
// of it is DeepSeek's factor of the scores, (1 + m ln s)^2, m being the file's multiplier.
TEST_F(Switches, YarnScalesTheScoresOfLatentAttention) {
    constexpr float kScale = 4.0F, kMultiplier = 0.07F;
    const auto yarn =
        logits("deepseek2-moe",
               [&](GgufWriter& writer, const std::string& key) {
                   if (key == "deepseek2.rope.scaling.type") {
                       writer.set_string(key, "yarn");
                   } else if (key == "deepseek2.rope.scaling.factor") {
                       writer.set_f32(key, kScale);
                   } else if (key == "deepseek2.rope.scaling.original_context_length") {
                       writer.set_u32(key, 1U << 30);
                   } else if (key == "deepseek2.rope.scaling.yarn_log_multiplier") {
                       writer.set_f32(key, kMultiplier);
                   } else {
                       return false;
                   }
                   return true;
               },
               {});
    const float factor = std::pow(1.0F + kMultiplier * std::log(kScale), 2.0F);
    const auto scaled =
        logits("deepseek2-moe", {},
               [&](GgufWriter& writer, const gguf::Tensor& tensor, std::vector<float> data) {
                   if (!tensor.name.ends_with("attn_q_b.weight")) return false;
                   for (float& x : data) x *= factor;
                   writer.add_f32(tensor.name, shape_of(tensor), data);
                   return true;
               });
    expect_same(yarn, scaled);
    expect_other(yarn, logits("deepseek2-moe", {}, {}));
}

// DeepSeek-V4's first layers choose experts by token.
class TokenExperts : public Switches {
  protected:
    // One of two experts is used, in all layers. `of_token` null: chosen by a bias, always the
    // first.
    Result<std::vector<float>> chosen(const std::function<std::int32_t(std::int32_t)>& of_token,
                                      bool swaps_experts) {
        return logits(
            "deepseek4-moe",
            [&](GgufWriter& writer, const std::string& key) {
                if (key == "deepseek4.expert_used_count") {
                    writer.set_u32(key, 1);
                } else if (key == "deepseek4.hash_layer_count") {
                    writer.set_u32(key, of_token ? 64 : 0);
                } else {
                    return false;
                }
                return true;
            },
            [&](GgufWriter& writer, const gguf::Tensor& tensor, std::vector<float> data) {
                const std::string& name = tensor.name;
                if (name.find("exp_probs_b") != name.npos) return true;
                const bool is_router = name.ends_with("ffn_gate_inp.weight");
                if (is_router) add_choice(writer, name.substr(0, name.find("ffn_")), of_token);
                const bool is_experts = name.find("_exps.weight") != name.npos || is_router;
                if (!is_experts || !swaps_experts) return false;
                std::rotate(data.begin(),
                            data.begin() + static_cast<std::ptrdiff_t>(data.size() / 2),
                            data.end());
                writer.add_f32(name, shape_of(tensor), data);
                return true;
            });
    }

  private:
    static void add_choice(GgufWriter& writer, const std::string& base,
                           const std::function<std::int32_t(std::int32_t)>& of_token) {
        constexpr std::int32_t kVocabulary = 128;
        if (!of_token) {
            writer.add_f32(base + "exp_probs_b.bias", {2}, std::array{100.0F, -100.0F});
            return;
        }
        std::vector<std::int32_t> table;
        for (std::int32_t token = 0; token < kVocabulary; ++token) table.push_back(of_token(token));
        writer.add_tensor(base + "ffn_gate_tid2eid.weight", gguf::TensorType::i32, {1, kVocabulary},
                          bytes(table));
    }
};

TEST_F(TokenExperts, AreThoseOfTheTable) {
    const auto first = [](std::int32_t) { return 0; };
    const auto mixed = [](std::int32_t token) { return token / 7 % 2; };
    const auto mixed_back = [&](std::int32_t token) { return 1 - mixed(token); };
    expect_same(chosen(first, false), chosen(nullptr, false));
    expect_same(chosen(mixed, false), chosen(mixed_back, true));
    expect_other(chosen(mixed, false), chosen(first, false));
    expect_other(chosen(mixed, false), chosen(mixed_back, false));
}

TEST_F(TokenExperts, ThatAreNotThereAreRefused) {
    const auto beyond = chosen([](std::int32_t token) { return token == 77 ? 2 : 0; }, false);
    ASSERT_FALSE(beyond && !beyond->empty());
    if (beyond) return;  // no model
    EXPECT_EQ(beyond.status().code(), Code::corruption);
    EXPECT_NE(beyond.status().message().find("entry 77 names expert 2 of 2"), std::string::npos);
}

// Nemotron 3's experts work in a smaller space. Here two equal ones, each the dense feed-forward
// behind matrices that undo each other: relu(2 x)^2 / 4 is relu(x)^2.
TEST_F(Switches, LatentExpertsAreReachedThroughTheirProjections) {
    constexpr std::uint64_t kWidth = 256;
    const auto diagonal = [](float value) {
        std::vector<float> matrix(kWidth * kWidth, 0.0F);
        for (std::size_t i = 0; i < kWidth; ++i) matrix[i * (kWidth + 1)] = value;
        return matrix;
    };
    const auto without_bias = [](GgufWriter&, const gguf::Tensor& tensor,
                                 const std::vector<float>&) {
        return tensor.name.find("ffn_") != tensor.name.npos && tensor.name.ends_with(".bias");
    };
    const auto latent = [&](float up_scale) {
        return logits(
            "nemotron_h_moe-dense",
            [](GgufWriter& writer, const std::string& key) {
                const std::string base = "nemotron_h_moe.";
                if (key == base + "expert_count" || key == base + "expert_used_count") {
                    writer.set_u32(key, 2);
                } else if (key == base + "expert_feed_forward_length") {
                    writer.set_u32(key, 384);
                } else if (key == base + "expert_weights_norm") {
                    writer.set_bool(key, true);
                } else {
                    return false;
                }
                return true;
            },
            [&](GgufWriter& writer, const gguf::Tensor& tensor, const std::vector<float>& data) {
                const std::string& name = tensor.name;
                const std::string base = name.substr(0, name.find("ffn_"));
                if (name.find("ffn_") == name.npos || name.find("norm") != name.npos) return false;
                if (name.ends_with("ffn_up.weight")) {
                    writer.add_f32(base + "ffn_gate_inp.weight", {kWidth, 2},
                                   std::vector<float>(kWidth * 2, 0.01F));
                    writer.add_f32(base + "ffn_latent_down.weight", {kWidth, kWidth}, diagonal(2));
                    writer.add_f32(base + "ffn_latent_up.weight", {kWidth, kWidth},
                                   diagonal(up_scale));
                }
                if (name.ends_with("ffn_up.weight") || name.ends_with("ffn_down.weight")) {
                    std::vector<float> twice = data;
                    twice.insert(twice.end(), data.begin(), data.end());
                    writer.add_f32(name.substr(0, name.size() - 7) + "_exps.weight",
                                   {tensor.shape[0], tensor.shape[1], 2}, twice);
                }
                return true;
            });
    };
    const auto dense = logits("nemotron_h_moe-dense", {}, without_bias);
    expect_same(dense, latent(0.25F));
    expect_other(dense, latent(1.0F));
}

// Qwen3-Next's older files: q, k, v and z of each key head side by side in one matrix.
TEST_F(Switches, QwensOldProjectionsAreTheNewOnes) {
    constexpr std::size_t kWidth = 256, kHeads = 2, kSize = 128;  // of keys and of values alike
    std::vector<float> qkv;
    std::vector<float> in(kWidth * 4 * kHeads * kSize, -1.0F);
    const auto put = [&](std::size_t head, std::size_t part, const std::vector<float>& from,
                         std::size_t row) {
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(row * kWidth), kSize * kWidth,
                    in.begin() + static_cast<std::ptrdiff_t>((head * 4 + part) * kSize * kWidth));
    };
    const auto old =
        logits("qwen3next-moe", {},
               [&](GgufWriter& writer, const gguf::Tensor& tensor, const std::vector<float>& data) {
                   const std::string& name = tensor.name;
                   if (name.ends_with("ssm_in.weight")) return true;
                   if (name == "blk.0.attn_qkv.weight") {
                       qkv = data;
                       return true;
                   }
                   if (name != "blk.0.attn_gate.weight") return false;
                   for (std::size_t head = 0; head < kHeads; ++head) {
                       for (std::size_t part = 0; part < 3; ++part) {
                           put(head, part, qkv, (part * kHeads + head) * kSize);
                       }
                       put(head, 3, data, head * kSize);
                   }
                   writer.add_f32("blk.0.ssm_in.weight", {kWidth, 4 * kHeads * kSize}, in);
                   return true;
               });
    ASSERT_TRUE(old) << old.status().to_string();
    EXPECT_EQ(qkv.empty(), old->empty());
    expect_same(logits("qwen3next-moe", {}, {}), old);
}

}  // namespace
}  // namespace stet
