// Files that others made. They lie outside the tree: see STET_TEST_CACHE.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "gguf/gguf.h"

namespace stet::gguf {
namespace {

std::filesystem::path test_cache() {
    if (const char* set = std::getenv("STET_TEST_CACHE")) return set;
    const char* home = std::getenv("HOME");
    return std::filesystem::path(home == nullptr ? "." : home) / ".cache/stet/test";
}

bool must_exist() {
    const char* ci = std::getenv("CI");
    return ci != nullptr && std::string_view(ci) == "true";
}

#define STET_NEED(path)                                                    \
    if (!std::filesystem::exists(path)) {                                  \
        if (must_exist()) FAIL() << "missing: " << (path);                 \
        GTEST_SKIP() << "missing: " << (path) << " (see STET_TEST_CACHE)"; \
    }

void expect_model(const char* name, const char* architecture, std::size_t vocabulary) {
    const auto path = test_cache() / "models" / name;
    STET_NEED(path);
    const auto file = File::open(Env::posix(), path);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    EXPECT_EQ((*file)->get_string("general.architecture"), architecture);
    const auto* tokens = (*file)->get_strings("tokenizer.ggml.tokens");
    ASSERT_NE(tokens, nullptr);
    EXPECT_EQ(tokens->size(), vocabulary);
    const Tensor* embedding = (*file)->find_tensor("token_embd.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_EQ(embedding->shape[1], vocabulary);
    // The data end where the file ends, but for padding.
    std::uint64_t end = 0;
    for (const Tensor& tensor : (*file)->tensors()) {
        end = std::max(end, tensor.offset_bytes + tensor.size_bytes);
    }
    EXPECT_LT((*file)->size_bytes() - end, 32u);
}

TEST(RealFiles, SmolLm) {
    expect_model("smollm2-135m-instruct-q4_1.gguf", "llama", 49152);
}
TEST(RealFiles, Gemma) {
    expect_model("gemma-3-270m-q4_k_m.gguf", "gemma3", 262144);
}

TEST(RealFiles, EveryVocabulary) {
    const auto folder = test_cache() / "vocab";
    STET_NEED(folder);
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".gguf") continue;
        ++count;
        const auto file = File::open(Env::posix(), entry.path());
        ASSERT_TRUE(file.is_ok()) << file.status().to_string();
        EXPECT_NE((*file)->get_strings("tokenizer.ggml.tokens"), nullptr) << entry.path();
    }
    EXPECT_GE(count, 19u);
}

}  // namespace
}  // namespace stet::gguf
