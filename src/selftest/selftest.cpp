#include "selftest/selftest.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <thread>

#include "base/stopwatch.h"

namespace stet::selftest {
namespace {

// What unused memory holds: numbers that look plausible, then such that spread.
constexpr std::array kPoisons = {std::byte{0x3e}, std::byte{0xff}};

Cell run(const Column& column, Subject& subject, const CheckOptions& options) {
    const Stopwatch watch;
    Cell cell;
    for (const std::byte poison : kPoisons) {
        subject.pool().set_poison(poison);
        const Result<std::string> checked = column.check(subject, options);
        cell.note = checked ? checked.value() : checked.status().to_string();
        cell.outcome = !checked            ? Outcome::fail
                       : cell.note.empty() ? Outcome::nothing
                                           : Outcome::pass;
        if (!column.is_poisoned || cell.outcome != Outcome::pass) break;
    }
    cell.seconds = watch.seconds();
    return cell;
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
    constexpr std::array<std::string_view, 4> kNames = {"PASS", "FAIL", "SKIP", "-"};
    return kNames.at(static_cast<std::size_t>(outcome));
}

bool Report::passed() const {
    return failure.empty() && std::ranges::all_of(cells, [](const Cell& cell) {
               return cell.outcome == Outcome::pass || cell.outcome == Outcome::nothing;
           });
}

Report test_model(const std::filesystem::path& path, const CheckOptions& options) {
    const Stopwatch watch;
    Report report;
    report.model = path.stem();
    report.cells.resize(columns().size());
    const auto loaded = Subject::load(path);
    if (!loaded) {
        report.failure = loaded.status().to_string();
        return report;
    }
    Subject& subject = **loaded;
    for (const memory::Group& group : subject.schema().groups) report.memory.push_back(group.name);
    for (std::size_t i = 0; i < columns().size(); ++i) {
        report.cells[i] = run(columns()[i], subject, options);
    }
    report.seconds = watch.seconds();
    return report;
}

void test_models(std::span<const std::filesystem::path> paths, const CheckOptions& options,
                 unsigned jobs, const std::function<void(const Report&)>& report,
                 const std::function<bool()>& is_cancelled) {
    std::mutex mutex;
    std::size_t next = 0;
    std::size_t reported = 0;
    std::vector<std::optional<Report>> done(paths.size());
    const auto work = [&] {
        while (true) {
            std::size_t mine = 0;
            {
                const std::scoped_lock lock(mutex);
                if (next == paths.size() || is_cancelled()) return;
                mine = next++;
            }
            Report made = test_model(paths[mine], options);
            const std::scoped_lock lock(mutex);
            done[mine] = std::move(made);
            for (; reported < done.size() && done[reported]; ++reported) report(*done[reported]);
        }
    };
    std::vector<std::jthread> workers;
    for (unsigned i = 1; i < jobs; ++i) workers.emplace_back(work);
    work();
}

}  // namespace stet::selftest
