// Tensors: all of a file's are used, or known not to be; those that are missing or of another shape
// are named.
#include "model/weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/model.h"
#include "support/golden.h"
#include "support/model_editor.h"
#include "support/models.h"
#include "support/temp_directory.h"

namespace stet::model {
namespace {

class WeightsOf : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { file_ = test::open_model("archs/" + GetParam() + ".gguf"); }

    Status load(std::unique_ptr<gguf::File> file) {
        if (!file) return Status(Code::internal, "the edited file can't be opened");
        auto model = Model::load(std::move(file), {.threads = 1, .state_types = {}});
        if (!model) return model.status();
        unused_ = (*model)->weights->unused;
        return {};
    }

    std::unique_ptr<gguf::File> file_;  // null: the model isn't there
    std::vector<std::string> unused_;
    test::TempDirectory directory_;
};

// What files have and their graphs don't read. Architecture "": of any.
struct Unread {
    std::string_view architecture;
    std::string_view part;  // of the tensor's name
};
constexpr Unread kUnread[] = {
    {"", ".input_scale"},             // activations are not quantised to four-bit floats here
    {"", "cls.output"},               // heads of classifiers
    {"", "nextn."},                   // prediction layers
    {"", "rope_factors_long"},        // one of two sets applies
    {"cogvlm", ".vis_"},              // matrices for pictures
    {"mimo2", ".ffn_gate."},          // dense matrices beside experts
    {"mimo2", ".ffn_up."},            //
    {"mimo2", ".ffn_down."},          //
    {"hy_v3", ".ffn_gate."},          //
    {"hy_v3", ".ffn_up."},            //
    {"hy_v3", ".ffn_down."},          //
    {"deepseek4", "exp_probs_b_vl"},  // choice of experts for pictures
    {"mpt", ".attn_k_norm."},         // alone, without a norm of queries
    {"refact", ".ffn_"},              // experts
    {"gemma3n", ".attn_k"},           // of layers that read the rows of others
    {"gemma3n", ".attn_v."},          //
    {"hrm_text", ".scale"},           // of executed layers that have no weights of their own
    {"rwkv7", "blk.0.time_mix_v"},    // the first layer's values are what later ones mix in
    {"arwkv7", "blk.0.time_mix_v"},   //
    {"qwen3next", ".ssm_in."},        // the older form of attn_qkv and attn_gate
};

TEST_P(WeightsOf, UseAllOfTheFile) {
    if (!file_) return;
    const std::string architecture(file_->get_string("general.architecture").value());
    const Status status = load(std::move(file_));
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    for (const std::string& name : unused_) {
        EXPECT_TRUE(std::ranges::any_of(kUnread, [&](const Unread& known) {
            return (known.architecture.empty() || known.architecture == architecture) &&
                   name.find(known.part) != std::string::npos;
        })) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(All, WeightsOf,
                         testing::ValuesIn(test::read_model_names(STET_TEST_DATA
                                                                  "/archs/models.txt")),
                         test::ModelTestName());

// A tensor that every model of the kind needs.
struct Needed {
    const char* model;
    const char* tensor;
};

class NeededTensors : public testing::TestWithParam<Needed> {};

TEST_P(NeededTensors, AreNamedWhenMissingOrMisshapen) {
    const auto file = test::open_model(fmt::format("archs/{}.gguf", GetParam().model));
    if (!file) return;
    const test::TempDirectory directory;
    ASSERT_NE(file->find_tensor(GetParam().tensor), nullptr);
    for (const bool is_missing : {true, false}) {
        auto edited = test::edit_model(
            *file,
            {.tensor =
                 [&](test::GgufWriter& writer, const gguf::Tensor& tensor,
                     std::span<const std::byte> data) {
                     if (tensor.name != GetParam().tensor) return false;
                     if (is_missing) return true;
                     std::vector<std::uint64_t> shape(tensor.shape.begin(),
                                                      tensor.shape.begin() + tensor.dimensions);
                     shape[0] += 1;
                     std::vector<std::byte> longer(data.begin(), data.end());
                     longer.resize(data.size() / tensor.shape[0] * shape[0]);
                     writer.add_tensor(tensor.name, tensor.type, shape, longer);
                     return true;
                 }},
            directory / "edited.gguf");
        ASSERT_NE(edited, nullptr);
        const auto model = Model::load(std::move(edited), {.threads = 1, .state_types = {}});
        ASSERT_FALSE(model) << GetParam().tensor;
        EXPECT_EQ(model.status().code(), Code::corruption);
        const std::string message = model.status().to_string();
        EXPECT_NE(message.find(GetParam().tensor), std::string::npos) << message;
        EXPECT_NE(message.find(is_missing ? "is missing" : "expected"), std::string::npos)
            << message;
    }
}

INSTANTIATE_TEST_SUITE_P(All, NeededTensors,
                         testing::Values(Needed{"llama-dense", "blk.1.attn_norm.weight"},
                                         Needed{"llama-dense", "blk.1.attn_k.weight"},
                                         Needed{"llama-dense", "blk.0.ffn_gate.weight"},
                                         Needed{"llama-dense", "blk.0.ffn_down.weight"},
                                         Needed{"llama-dense", "output_norm.weight"},
                                         Needed{"qwen3moe-moe", "blk.0.ffn_up_exps.weight"},
                                         Needed{"exaone4-dense", "blk.0.post_ffw_norm.weight"},
                                         Needed{"gpt2-dense", "position_embd.weight"},
                                         Needed{"bloom-dense", "token_embd_norm.weight"},
                                         Needed{"hrm_text-dense", "blk.0.attn_gate.weight"},
                                         Needed{"hrm_text-dense", "hrm.z_l_init"},
                                         Needed{"arctic-moe", "blk.1.ffn_norm_exps.weight"},
                                         Needed{"gemma4-moe", "blk.0.ffn_gate_inp.scale"},
                                         Needed{"gemma4-dense", "per_layer_token_embd.weight"},
                                         Needed{"gemma3n-dense", "blk.3.altup_router.weight"}),
                         [](const auto& parameter) {
                             std::string name = fmt::format("{}_{}", parameter.param.model,
                                                            parameter.param.tensor);
                             std::ranges::replace_if(
                                 name, [](char c) { return c == '-' || c == '.'; }, '_');
                             return name;
                         });

}  // namespace
}  // namespace stet::model
