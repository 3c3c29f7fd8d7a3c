// What the tokenizer tests share: third-party vocabularies from the cache and small ones of our
// own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "support/gguf_writer.h"
#include "support/temp_directory.h"
#include "text/tokenizer.h"

namespace stet::text {

using Tokens = std::vector<Token>;

// Values of tokenizer.ggml.token_type.
enum : std::int32_t {
    kTypeNormal = 1,
    kTypeUnknown,
    kTypeControl,
    kTypeUser,
    kTypeUnused,
    kTypeByte
};

inline std::filesystem::path test_cache() {
    if (const char* cache = std::getenv("STET_TEST_CACHE")) return cache;
    const char* home = std::getenv("HOME");
    return std::filesystem::path(home == nullptr ? "." : home) / ".cache/stet/test";
}

inline bool is_ci() {
    const char* ci = std::getenv("CI");
    return ci != nullptr && std::string_view(ci) == "true";
}

// Skips the test, or fails it on CI, when a third-party file isn't there.
#define STET_NEED_FILE(path)                                                   \
    if (!std::filesystem::exists(path)) {                                      \
        if (is_ci()) FAIL() << (path) << " is missing";                        \
        GTEST_SKIP() << (path) << " is missing; the test set-up downloads it"; \
    }                                                                          \
    static_assert(true)

inline std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& path) {
    auto file = gguf::File::open(Env::posix(), path);
    if (!file) return file.status();
    return Tokenizer::load(**file);
}

// A vocabulary written by the test itself.
class SmallVocabulary {
  public:
    explicit SmallVocabulary(std::string_view model) {
        writer_.set_string("general.architecture", "llama");
        writer_.set_string("tokenizer.ggml.model", model);
    }
    Token add(std::string_view text, std::int32_t type = kTypeNormal, float score = 0) {
        texts_.emplace_back(text);
        types_.push_back(type);
        scores_.push_back(score);
        return static_cast<Token>(texts_.size() - 1);
    }
    void add_bytes() {
        for (int byte = 0; byte < 256; ++byte) {
            char text[8];
            std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
            add(text, kTypeByte);
        }
    }
    void set_merges(std::vector<std::string> merges) {
        merges_ = std::move(merges);
        has_merges_ = true;
    }
    test::GgufWriter& writer() { return writer_; }
    Result<std::unique_ptr<Tokenizer>> load() {
        test::GgufWriter whole = writer_;
        whole.set_strings("tokenizer.ggml.tokens", texts_);
        if (has_merges_) whole.set_strings("tokenizer.ggml.merges", merges_);
        whole.set_i32s("tokenizer.ggml.token_type", types_);
        whole.set_f32s("tokenizer.ggml.scores", scores_);
        return load_bare(whole);
    }
    // Without the token keys, for tests that write their own.
    static Result<std::unique_ptr<Tokenizer>> load_bare(test::GgufWriter& writer) {
        const test::TempDirectory directory;
        if (const Status saved = writer.save(directory / "v.gguf"); !saved) return saved;
        return load_tokenizer(directory / "v.gguf");
    }

  private:
    test::GgufWriter writer_;
    std::vector<std::string> texts_;
    std::vector<std::int32_t> types_;
    std::vector<float> scores_;
    std::vector<std::string> merges_;
    bool has_merges_ = false;
};

inline Tokens encode(const Tokenizer& tokenizer, std::string_view text, bool add_special = false,
                     bool parse_special = false) {
    auto tokens = tokenizer.encode(text, {add_special, parse_special});
    EXPECT_TRUE(tokens.is_ok()) << tokens.status().to_string();
    return tokens.is_ok() ? *tokens : Tokens{};
}

}  // namespace stet::text
