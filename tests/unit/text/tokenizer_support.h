// What the tokenizer tests share: third-party vocabularies from the cache.
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
#include "support/small_vocabulary.h"
#include "text/tokenizer.h"

namespace stet::text {

using Tokens = std::vector<Token>;

using test::SmallVocabulary;
using enum test::TokenType;

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

inline Tokens encode(const Tokenizer& tokenizer, std::string_view text, bool add_special = false,
                     bool parse_special = false) {
    auto tokens = tokenizer.encode(text, {add_special, parse_special});
    EXPECT_TRUE(tokens.is_ok()) << tokens.status().to_string();
    return tokens.is_ok() ? *tokens : Tokens{};
}

}  // namespace stet::text
