// Ids must equal those of the reference implementation: its vocabulary files with their inputs and
// expected ids, and the prompts of two real models.
#include <nlohmann/json.hpp>

#include <sstream>

#include "unit/text/tokenizer_support.h"

namespace stet::text {
namespace {

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";

std::vector<std::string> split_inputs(const std::string& all) {
    std::vector<std::string> inputs;
    std::size_t begin = 0;
    for (std::size_t end = 0; end != std::string::npos; begin = end + kSeparator.size()) {
        end = all.find(kSeparator, begin);
        inputs.push_back(all.substr(begin, end == std::string::npos ? end : end - begin));
        if (end == std::string::npos) break;
    }
    return inputs;
}

std::vector<Tokens> split_outputs(const std::string& all) {
    std::vector<Tokens> outputs;
    std::istringstream lines(all);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        outputs.emplace_back(std::istream_iterator<Token>(words), std::istream_iterator<Token>());
    }
    return outputs;
}

class VocabularyFile : public testing::TestWithParam<const char*> {
  protected:
    std::filesystem::path path() const {
        return test_cache() / "vocab" / ("ggml-vocab-" + std::string(GetParam()) + ".gguf");
    }
};

TEST_P(VocabularyFile, EncodesTheReferenceInputs) {
    STET_NEED_FILE(path());
    STET_NEED_FILE(path().string() + ".inp");
    const auto tokenizer = load_tokenizer(path());
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().to_string();
    const auto inputs = split_inputs(read_text(path().string() + ".inp"));
    const auto outputs = split_outputs(read_text(path().string() + ".out"));
    ASSERT_GE(outputs.size(), 46U);
    ASSERT_GE(inputs.size(), outputs.size());  // a last separator begins an input without output
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_EQ(encode(**tokenizer, inputs[i]), outputs[i]) << "input " << i << ": " << inputs[i];
    }
}

TEST_P(VocabularyFile, DecodesWhatItEncodes) {
    STET_NEED_FILE(path());
    STET_NEED_FILE(path().string() + ".inp");
    const auto tokenizer = load_tokenizer(path());
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().to_string();
    if ((*tokenizer)->kind() == "wpm") GTEST_SKIP() << "WordPiece does not keep case and spaces";
    for (const std::string& input : split_inputs(read_text(path().string() + ".inp"))) {
        const Tokens tokens = encode(**tokenizer, input, true, false);
        EXPECT_EQ((*tokenizer)->decode(tokens, false), input);
    }
}

INSTANTIATE_TEST_SUITE_P(Reference, VocabularyFile,
                         testing::Values("bert-bge", "command-r", "deepseek-coder", "deepseek-llm",
                                         "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm",
                                         "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"));

class VocabularyWithoutIds : public testing::TestWithParam<const char*> {};

TEST_P(VocabularyWithoutIds, LoadsAndRoundTrips) {
    const auto path = test_cache() / "vocab" / ("ggml-vocab-" + std::string(GetParam()) + ".gguf");
    STET_NEED_FILE(path);
    const auto tokenizer = load_tokenizer(path);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().to_string();
    const std::string text = "Hello world, 3 plus 4 is 7";
    const Tokens tokens = encode(**tokenizer, text, true, false);
    EXPECT_LT(tokens.size(), 20U);
    EXPECT_EQ((*tokenizer)->decode(tokens, false), text);
}

INSTANTIATE_TEST_SUITE_P(Reference, VocabularyWithoutIds,
                         testing::Values("aquila", "baichuan", "gpt-neox", "nomic-bert-moe"));

class RealModel : public testing::TestWithParam<const char*> {};

TEST_P(RealModel, EncodesThePrompts) {
    const std::string name = GetParam();
    const auto path = test_cache() / "models" / (name + ".gguf");
    STET_NEED_FILE(path);
    const auto tokenizer = load_tokenizer(path);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().to_string();
    std::ifstream lines(std::filesystem::path(STET_TEST_DATA) / "real" / (name + ".jsonl"));
    int prompts = 0;
    for (std::string line; std::getline(lines, line); ++prompts) {
        const auto example = nlohmann::json::parse(line);
        const auto prompt = example["prompt"].get<std::string>();
        const auto tokens = example["tokens"].get<Tokens>();
        EXPECT_EQ(encode(**tokenizer, prompt, true, true), tokens) << prompt;
    }
    EXPECT_GE(prompts, 5);
}

INSTANTIATE_TEST_SUITE_P(Reference, RealModel,
                         testing::Values("smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m"));

TEST(TokenizerSpecials, OfRealModels) {
    const auto path = test_cache() / "models/smollm2-135m-instruct-q4_1.gguf";
    STET_NEED_FILE(path);
    const auto smollm = load_tokenizer(path);
    ASSERT_TRUE(smollm.is_ok());
    const Token end = (*smollm)->find("<|im_end|>");
    EXPECT_EQ((*smollm)->kind(), "bpe");
    EXPECT_EQ((*smollm)->size(), 49152U);
    EXPECT_EQ((*smollm)->eos(), end);
    EXPECT_TRUE((*smollm)->is_end_of_generation(end));
    EXPECT_TRUE((*smollm)->is_end_of_generation((*smollm)->find("<|endoftext|>")));
    EXPECT_FALSE((*smollm)->is_end_of_generation((*smollm)->find("<|im_start|>")));
    EXPECT_TRUE((*smollm)->is_control(end));
    EXPECT_FALSE((*smollm)->is_control(encode(**smollm, "a").front()));
    EXPECT_EQ((*smollm)->piece(end, false), "");
    EXPECT_EQ((*smollm)->piece(end, true), "<|im_end|>");
    EXPECT_EQ(encode(**smollm, "<|im_end|>", false, true), Tokens{end});
    EXPECT_GT(encode(**smollm, "<|im_end|>", false, false).size(), 1U);
}

}  // namespace
}  // namespace stet::text
