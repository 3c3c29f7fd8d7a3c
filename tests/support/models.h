// Test models by name, out of the test cache.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "gguf/gguf.h"
#include "support/golden.h"

namespace stet::test {

// The file, or null after noting why: a skip, or a failure where CI=true.
inline std::unique_ptr<gguf::File> open_model(const std::string& relative) {
    const auto path = test_cache() / relative;
    if (!std::filesystem::exists(path)) {
        const char* ci = std::getenv("CI");
        if (ci != nullptr && std::string(ci) == "true") {
            ADD_FAILURE() << path << " is missing";
        } else {
            [&] { GTEST_SKIP() << path << " is missing; run scripts/fetch_test_data.py"; }();
        }
        return nullptr;
    }
    auto file = gguf::File::open(Env::posix(), path);
    EXPECT_TRUE(file) << file.status().to_string();
    return file ? std::move(file).value() : nullptr;
}

}  // namespace stet::test
