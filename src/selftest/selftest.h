// `stet selftest`: every promise about state, tried on a model. One row a model, one cell a column
// (columns.h); in docs/reference/cli.md what each means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "selftest/columns.h"

namespace stet::selftest {

enum class Outcome : std::uint8_t {
    pass,
    fail,
    skip,     // could not be tried: counts as failed
    nothing,  // there is nothing to try: counts as neither
};
std::string_view outcome_name(Outcome outcome);  // "PASS", "FAIL", "SKIP", "-"

struct Cell {
    Outcome outcome = Outcome::skip;
    std::string note;  // what was tried, or how it failed
    double seconds = 0.0;
};

struct Report {
    std::string model;                // file name without its extension
    std::vector<std::string> memory;  // names of the schema's groups; none: a model without memory
    std::string failure;              // why the model could not be loaded
    std::vector<Cell> cells;          // as columns()
    double seconds = 0.0;

    bool passed() const;
};

Report test_model(const std::filesystem::path& path, const CheckOptions& options);

// Tests models side by side, `jobs` at a time. `report` is called once a model, in the order of the
// paths, by one thread at a time. Stops early, with the models that it began, once `is_cancelled`
// says so.
void test_models(std::span<const std::filesystem::path> paths, const CheckOptions& options,
                 unsigned jobs, const std::function<void(const Report&)>& report,
                 const std::function<bool()>& is_cancelled);

}  // namespace stet::selftest
