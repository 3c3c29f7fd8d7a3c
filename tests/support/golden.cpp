#include "support/golden.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

namespace stet::test {

Golden read_golden(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string data{std::istreambuf_iterator<char>(file), {}};
    struct {
        char magic[4];
        std::uint32_t version, rows, vocabulary;
    } header;
    Golden golden;
    if (data.size() < sizeof(header)) return golden;
    std::memcpy(&header, data.data(), sizeof(header));
    const std::size_t rows_bytes = header.rows * sizeof(GoldenRow);
    const std::size_t values = std::size_t{header.rows} * header.vocabulary;
    if (std::memcmp(header.magic, "GLOG", 4) != 0 || header.version != 1 ||
        data.size() != sizeof(header) + rows_bytes + values * sizeof(float)) {
        return golden;
    }
    golden.vocabulary = header.vocabulary;
    golden.rows.resize(header.rows);
    golden.logits.resize(values);
    std::memcpy(golden.rows.data(), data.data() + sizeof(header), rows_bytes);
    std::memcpy(golden.logits.data(), data.data() + sizeof(header) + rows_bytes,
                values * sizeof(float));
    return golden;
}

std::vector<std::string> read_model_names(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istream_iterator<std::string>(file), {}};
}

std::map<std::string, double> read_limits(const std::filesystem::path& path) {
    std::map<std::string, double> limits;
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // header
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        std::string model;
        double noise = 0;
        double context = 0;
        double limit = 0;
        if (fields >> model >> noise >> context >> limit) limits[model] = limit;
    }
    return limits;
}

double nmse(std::span<const float> expected, std::span<const float> actual) {
    double error = 0;
    double power = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
        const double difference = double(expected[i]) - double(actual[i]);
        error += difference * difference;
        power += double(expected[i]) * double(expected[i]);
    }
    return error / power;
}

std::filesystem::path test_cache() {
    if (const char* cache = std::getenv("STET_TEST_CACHE")) return cache;
    const char* home = std::getenv("HOME");
    return std::filesystem::path(home != nullptr ? home : "/") / ".cache/stet/test";
}

}  // namespace stet::test
