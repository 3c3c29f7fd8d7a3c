#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "cli/answer_printer.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/run.h"

namespace stet::cli {

engine::TurnRequest Run::request(std::string text) const {
    engine::TurnRequest request;
    request.text = std::move(text);
    request.raw = flags.raw;
    request.options.sampling = flags.sampling;
    request.options.tokens_max =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, flags.predict));
    request.options.stop = flags.stop;
    request.options.denoise = flags.denoise;
    request.options.constraint.grammar = grammar;
    request.options.ignore_end = flags.ignore_eos;
    return request;
}

Status run_turn(Run& run, std::string text, Terminal& terminal) {
    engine::TurnRequest request = run.request(std::move(text));
    Spinner spinner(terminal, "reading");
    AnswerPrinter printer(terminal, !run.flags.quiet);
    request.cancel = &interrupt_flag();
    request.on_part = [&](const text::ChatDelta& part) {
        spinner.stop();
        if (run.flags.json) return;
        // Nobody reads it: no reason to go on.
        if (!printer.add(part)) interrupt_flag().store(true);
    };
    request.on_denoise = [&](const engine::Denoiser& denoiser) {
        spinner.say(fmt::format("step {} of {}", denoiser.steps_done(), denoiser.steps()));
    };
    const Result<engine::TurnResult> turn = run.conversation->run_turn(request);
    spinner.stop();
    STET_TRY(printer.finish());
    STET_TRY(turn.status());
    if (run.flags.json) {
        STET_TRY(terminal.print(
            json_line(turn_json(*turn, *run.conversation, run.has_session(), run.load_ms))));
    } else if (terminal.is_watched()) {
        terminal.note(turn_line(*turn));
    }
    STET_TRY(terminal.output_status());
    if (turn->stop == engine::StopReason::cancelled) return Status(Code::cancelled, "");
    return {};
}

}  // namespace stet::cli
