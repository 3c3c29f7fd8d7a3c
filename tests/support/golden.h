// The reference logits of tests/data/archs (layout in its README.md), and how far others are away.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace stet::test {

struct GoldenRow {
    std::int32_t sequence;
    std::int32_t position;
    std::int32_t token;
    std::int32_t phase;
};

struct Golden {
    std::uint32_t vocabulary = 0;
    std::vector<GoldenRow> rows;
    std::vector<float> logits;  // [rows][vocabulary]
};

// Fails the current test and answers an empty Golden when the file can't be read.
Golden read_golden(const std::filesystem::path& path);

// The names in a file, one a line.
std::vector<std::string> read_model_names(const std::filesystem::path& path);

// Names a test by its parameter, a model's name: "gpt-oss-moe" as gpt_oss_moe.
struct ModelTestName {
    template <typename Info>
    std::string operator()(const Info& info) const {
        std::string name = info.param;
        std::ranges::replace(name, '-', '_');
        return name;
    }
};

// limit_nmse by model, of tolerance.tsv.
std::map<std::string, double> read_limits(const std::filesystem::path& path);

// sum((a-b)^2) / sum(a^2); infinite when a value isn't finite.
double nmse(std::span<const float> expected, std::span<const float> actual);

// STET_TEST_CACHE or ~/.cache/stet/test.
std::filesystem::path test_cache();

}  // namespace stet::test
