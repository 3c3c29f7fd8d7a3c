#include "cli/answer_printer.h"

#include <utility>

#include "base/try.h"

namespace stet::cli {

Status AnswerPrinter::add(const text::ChatDelta& part) {
    if (shows_reasoning_ && !part.reasoning.empty()) STET_TRY(add_reasoning(part.reasoning));
    if (part.content.empty()) return {};
    STET_TRY(end_reasoning());
    return print(part.content);
}

Status AnswerPrinter::finish() {
    STET_TRY(end_reasoning());
    return has_open_line_ ? print("\n") : Status();
}

// Each piece is dim by itself: a terminal is never left dim.
Status AnswerPrinter::add_reasoning(std::string_view text) {
    const bool begins = !std::exchange(is_in_reasoning_, true);
    if (begins && !terminal_.has_output_color()) STET_TRY(print("[thinking]\n"));
    STET_TRY(terminal_.print_dim(text));
    has_open_line_ = !text.ends_with('\n');
    return {};
}

Status AnswerPrinter::end_reasoning() {
    if (!std::exchange(is_in_reasoning_, false)) return {};
    if (has_open_line_) STET_TRY(print("\n"));
    return print(terminal_.has_output_color() ? "\n" : "[answer]\n");
}

Status AnswerPrinter::print(std::string_view text) {
    STET_TRY(terminal_.print(text));
    has_open_line_ = !text.ends_with('\n');
    return {};
}

}  // namespace stet::cli
