// Shows an answer while it grows: its content, and on a terminal what the model thought before.
#pragma once

#include "cli/terminal.h"
#include "stet/status.h"
#include "text/chat_parser.h"

namespace stet::cli {

// Reasoning is dim, or between labels where there is no color. Where nobody watches standard output
// it is left out: a script wants the answer.
class AnswerPrinter {
  public:
    AnswerPrinter(Terminal& terminal, bool shows_reasoning)
        : terminal_(terminal),
          shows_reasoning_(shows_reasoning && terminal.has_output_terminal()) {}

    Status add(const text::ChatDelta& part);
    Status finish();  // ends the last line

  private:
    Status add_reasoning(std::string_view text);
    Status end_reasoning();
    Status print(std::string_view text);

    Terminal& terminal_;
    bool shows_reasoning_;
    bool is_in_reasoning_ = false;
    bool has_open_line_ = false;
};

}  // namespace stet::cli
