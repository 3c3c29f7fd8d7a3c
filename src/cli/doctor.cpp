// `stet doctor`: whether this machine, the store and a model are fit, with the server's settings.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>

#include "base/try.h"
#include "cli/doctor_checks.h"
#include "cli/paths.h"
#include "cli/report.h"
#include "cli/serve_flags.h"
#include "cli/store_access.h"
#include "cli/verbs.h"

namespace stet::cli {
namespace {

using Outcome = Finding::Outcome;

Json findings_json(const Findings& findings) {
    Json list = Json::array();
    for (const Finding& finding : findings) {
        Json item = {{"outcome", outcome_name(finding.outcome)},
                     {"subject", finding.subject},
                     {"text", finding.text}};
        if (!finding.advice.empty()) item["advice"] = finding.advice;
        list.push_back(std::move(item));
    }
    return list;
}

std::string findings_text(const Findings& findings) {
    std::string text;
    for (const Finding& finding : findings) {
        text += fmt::format("{:<4}  {:<13}  {}\n", outcome_name(finding.outcome), finding.subject,
                            finding.text);
        if (!finding.advice.empty()) text += fmt::format("{:21}-> {}\n", "", finding.advice);
    }
    return text;
}

Status examine(const ServeFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const server::LoadedSettings loaded, settings_of(flags));
    const server::Settings& settings = loaded.settings;
    const MemoryLimits limits = memory_limits();
    Findings findings;
    findings.push_back({Outcome::ok, "version", version_line(), ""});
    check_cpu(settings, findings);
    check_memory(limits, findings);
    check_store(store_directory({settings.store, settings.store_key_file}), settings, findings);
    check_port(settings, findings);
    if (!settings.model.empty()) check_model(settings, cache_directory(), limits, findings);
    const auto failures = std::count_if(findings.begin(), findings.end(), [](const Finding& item) {
        return item.outcome == Outcome::fail;
    });
    STET_TRY(terminal.print(
        flags.is_json ? json_line({{"healthy", failures == 0}, {"checks", findings_json(findings)}})
                      : findings_text(findings)));
    return failures == 0 ? Status() : Status(Code::unavailable, "");  // was said already
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
    auto* verb = app.add_subcommand("doctor", "Check this machine, the store and a model");
    auto flags = std::make_shared<ServeFlags>();
    add_model_argument(*verb, *flags);
    verb->add_flag("--json", flags->is_json, "One JSON object");
    add_settings(*verb, *flags);
    verb->callback([flags, &action] {
        action.is_json = flags->is_json;
        action.run = [flags](Terminal& terminal) { return examine(*flags, terminal); };
    });
}

}  // namespace stet::cli
