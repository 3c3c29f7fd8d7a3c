#include <fmt/format.h>

#include "cli/verbs.h"

namespace stet::cli {

std::string version_line() {
    return fmt::format("stet {}", STET_VERSION);
}

void add_version(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand("version", "Print the version");
    verb->callback([&action] {
        action.run = [](Terminal& terminal) { return terminal.print(version_line() + "\n"); };
    });
}

}  // namespace stet::cli
