// The same models with quantised matrices, as real files have them: every block takes every kind of
// weight. Limits are what the rounding of these random weights costs, with room: most in the
// deepest (gemma3n, 22 layers: 0.15 in q4_0).
#include <fmt/format.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "support/golden.h"
#include "support/model_editor.h"
#include "support/models.h"
#include "support/temp_directory.h"

namespace stet {
namespace {

using engine::Engine;
using gguf::TensorType;

struct Kind {
    TensorType type;
    double limit;  // nmse against the f32 reference
};

constexpr Kind kKinds[] = {
    {TensorType::f16, 3e-5},  {TensorType::bf16, 1e-3}, {TensorType::q8_0, 3e-3},
    {TensorType::q6_k, 1e-2}, {TensorType::q4_k, 2e-1}, {TensorType::q4_0, 2e-1},
};

// Matrices that quantisers touch: projections, experts, embedding, head. Routers and the small
// matrices of streams stay as they are.
bool is_quantized(const gguf::Tensor& tensor, std::uint64_t block) {
    constexpr std::string_view kRoles[] = {"attn_q.",   "attn_k.", "attn_v.",     "attn_qkv.",
                                           "attn_out",  "ffn_up",  "ffn_down",    "ffn_gate",
                                           "token_emb", "output.", "attn_gate.",  "inp_gate",
                                           ".proj.",    "laurel_", "ffn_gate_up_"};
    const std::string_view name = tensor.name;
    if (tensor.dimensions < 2 || tensor.type != TensorType::f32 || tensor.shape[0] % block != 0) {
        return false;
    }
    if (name.find("norm") != name.npos || name.find("ffn_gate_inp") != name.npos) return false;
    return name.ends_with(".weight") && std::ranges::any_of(kRoles, [&](std::string_view role) {
               return name.find(role) != name.npos;
           });
}

std::vector<std::byte> quantize(const gguf::Tensor& tensor, std::span<const std::byte> data,
                                ggml_type type) {
    const auto row = static_cast<std::int64_t>(tensor.shape[0]);
    const auto rows = static_cast<std::int64_t>(data.size() / sizeof(float)) / row;
    std::vector<std::byte> out(ggml_row_size(type, row) * static_cast<std::size_t>(rows));
    ggml_quantize_chunk(type, reinterpret_cast<const float*>(data.data()), out.data(), 0, rows, row,
                        nullptr);
    return out;
}

class Quantized : public testing::TestWithParam<const char*> {};

TEST_P(Quantized, EveryKindOfWeight) {
    const std::string name = GetParam();
    const auto file = test::open_model("archs/" + name + ".gguf");
    if (!file) return;
    const auto golden = test::read_golden(STET_TEST_DATA "/archs/logits/" + name + ".logits");
    std::vector<state::Token> prompt;
    for (const auto& row : golden.rows) {
        if (row.phase == 0) prompt.push_back(row.token);
    }
    const test::TempDirectory directory;
    for (const Kind& kind : kKinds) {
        const auto type = static_cast<ggml_type>(kind.type);
        int changed = 0;
        auto edited = test::edit_model(
            *file,
            {.tensor =
                 [&](test::GgufWriter& writer, const gguf::Tensor& tensor,
                     std::span<const std::byte> data) {
                     const auto block = static_cast<std::uint64_t>(ggml_blck_size(type));
                     if (!is_quantized(tensor, block)) return false;
                     writer.add_tensor(
                         tensor.name, kind.type,
                         {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions},
                         quantize(tensor, data, type));
                     ++changed;
                     return true;
                 }},
            directory / "quantized.gguf");
        ASSERT_NE(edited, nullptr);
        EXPECT_GT(changed, 4);
        engine::EngineOptions options;
        options.model.threads = 2;
        auto engine = Engine::create(std::move(edited), options, true);
        ASSERT_TRUE(engine) << engine.status().to_string();
        state::Sequence sequence = state::Sequence::empty((*engine)->schema());
        const engine::Part part{&sequence, prompt, engine::Logits::all};
        const auto logits = (*engine)->run(std::span(&part, 1));
        ASSERT_TRUE(logits) << logits.status().to_string();
        const double error = test::nmse(std::span(golden.logits).first(logits->size()), *logits);
        fmt::print("{:<16} {:<5} nmse {:.1e}  limit {:.1e}\n", name, ggml_type_name(type), error,
                   kind.limit);
        EXPECT_LE(error, kind.limit) << ggml_type_name(type);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Quantized,
                         testing::Values("bitnet-dense", "gemma3n-dense", "gemma4-dense",
                                         "gemma4-moe", "gpt-oss-moe", "gpt2-dense", "grok-moe",
                                         "hrm_text-dense", "hy_v3-moe", "llama4-moe", "phi3-dense",
                                         "qwen2moe-moe", "step35-moe"),
                         test::ModelTestName());

}  // namespace
}  // namespace stet
