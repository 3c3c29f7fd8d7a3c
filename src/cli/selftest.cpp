// `stet selftest`: tries every promise about state on models.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/try.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "selftest/selftest.h"

namespace stet::cli {
namespace {

namespace fs = std::filesystem;
using selftest::Outcome;
using selftest::Report;

constexpr unsigned kJobsMax = 64;

struct SelftestFlags {
    std::string model;
    std::string models;
    std::string old_files;
    unsigned jobs = 0;
    bool deep = false;
    bool json = false;
};

// The models of a directory, by name.
Result<std::vector<fs::path>> find_models(const fs::path& directory) {
    STET_ASSIGN(const auto names, Env::posix().list(directory));
    std::vector<fs::path> paths;
    for (const std::string& name : names) {
        if (fs::path(name).extension() == ".gguf") paths.push_back(directory / name);
    }
    std::ranges::sort(paths);
    if (paths.empty()) {
        return Status(Code::not_found, fmt::format("'{}' holds no .gguf file", directory.string()));
    }
    return paths;
}

std::string memory_of(const Report& report) {
    if (report.memory.empty()) return report.failure.empty() ? "model has no memory" : "";
    return fmt::format("{}", fmt::join(report.memory, ", "));
}

// "cp_h" as a head, "PASS" below it.
std::size_t width_of(const selftest::Column& column) {
    return std::max<std::size_t>(column.name.size(), 4);
}

std::string table_head(std::size_t model_width) {
    std::string line = fmt::format("{:<{}}", "model", model_width);
    for (const auto& column : selftest::columns()) {
        line += fmt::format(" {:<{}}", column.name, width_of(column));
    }
    return line + "\n";
}

// A row, and a line for each cell that did not pass.
std::string table_row(const Report& report, std::size_t model_width) {
    std::string text = fmt::format("{:<{}}", report.model, model_width);
    const auto columns = selftest::columns();
    for (std::size_t i = 0; i < columns.size(); ++i) {
        text += fmt::format(" {:<{}}", selftest::outcome_name(report.cells[i].outcome),
                            width_of(columns[i]));
    }
    text += '\n';
    if (!report.failure.empty()) text += fmt::format("  {}\n", one_line(report.failure));
    for (std::size_t i = 0; i < columns.size(); ++i) {
        if (report.cells[i].outcome != Outcome::fail) continue;
        text += fmt::format("  {}: {}\n", columns[i].name, one_line(report.cells[i].note));
    }
    return text;
}

std::string details(const Report& report) {
    std::string text =
        fmt::format("{}: {}\n", report.model,
                    report.failure.empty() ? memory_of(report) : one_line(report.failure));
    const auto columns = selftest::columns();
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const selftest::Cell& cell = report.cells[i];
        text += fmt::format("{:<4}  {:<10}  {:<46}  {}\n", selftest::outcome_name(cell.outcome),
                            columns[i].name, columns[i].promise, one_line(cell.note));
    }
    return text;
}

Json report_json(const Report& report) {
    Json columns = Json::object();
    for (std::size_t i = 0; i < report.cells.size(); ++i) {
        const selftest::Cell& cell = report.cells[i];
        columns[std::string(selftest::columns()[i].name)] = {
            {"outcome", selftest::outcome_name(cell.outcome)},
            {"note", cell.note},
            {"seconds", cell.seconds}};
    }
    Json json = {{"model", report.model},
                 {"memory", report.memory},
                 {"passed", report.passed()},
                 {"seconds", report.seconds},
                 {"columns", std::move(columns)}};
    if (!report.failure.empty()) json["failure"] = report.failure;
    return json;
}

Status self_test(const SelftestFlags& flags, Terminal& terminal) {
    std::vector<fs::path> paths = {flags.model};
    if (!flags.models.empty()) {
        STET_ASSIGN(paths, find_models(flags.models));
    }
    std::size_t model_width = 5;
    for (const fs::path& path : paths) {
        model_width = std::max(model_width, path.stem().string().size());
    }
    if (!flags.json && !flags.models.empty()) {
        STET_TRY(terminal.print(table_head(model_width)));
    }
    std::size_t passed = 0;
    std::size_t failed = 0;
    Json json = {{"models", Json::array()}};
    const auto on_report = [&](const Report& report) {
        ++(report.passed() ? passed : failed);
        if (flags.json) {
            json["models"].push_back(report_json(report));
            return;
        }
        static_cast<void>(terminal.print(flags.models.empty() ? details(report)
                                                              : table_row(report, model_width)));
    };
    const unsigned jobs = flags.jobs != 0 ? flags.jobs : std::thread::hardware_concurrency();
    selftest::test_models(paths, {flags.deep, flags.old_files}, std::clamp(jobs, 1U, kJobsMax),
                          on_report, [] { return interrupt_flag().load(); });
    json["passed"] = passed;
    json["failed"] = failed;
    STET_TRY(terminal.print(
        flags.json ? json_line(json)
                   : fmt::format("{} passed, {} failed (of {})\n", passed, failed, paths.size())));
    if (interrupt_flag().load()) return Status(Code::cancelled, "");
    // The rows have said what failed.
    return failed == 0 ? Status() : Status(Code::internal, "");
}

}  // namespace

void add_selftest(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand("selftest", "Try every promise about state on a model");
    auto flags = std::make_shared<SelftestFlags>();
    auto* model = verb->add_option("model", flags->model, "A model; prints each check");
    auto* models =
        verb->add_option("--models", flags->models, "Directory of models; prints a table")
            ->excludes(model);
    verb->add_option("--old", flags->old_files, "Directory with state that llama.cpp saved");
    verb->add_option("--jobs", flags->jobs, "Models tested side by side; default is one a core");
    verb->add_flag("--deep", flags->deep, "Flip every byte of every state, however large");
    verb->add_flag("--json", flags->json, "Answer in JSON");
    verb->callback([flags, model, models, &action] {
        if (model->empty() && models->empty()) {
            throw CLI::RequiredError("a model or --models DIR");
        }
        action.is_json = flags->json;
        action.run = [flags](Terminal& terminal) { return self_test(*flags, terminal); };
    });
}

}  // namespace stet::cli
