// Lines that a person types or a script sends.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/terminal.h"
#include "stet/status.h"

namespace stet::cli {

enum class Input { line, end, interrupted };

class LineReader {
  public:
    virtual ~LineReader() = default;
    // Waits for a line and answers it without its newline. io, resource_exhausted (too long).
    virtual Result<Input> read(std::string_view prompt, std::string& line) = 0;

    // libedit with history on a terminal, else plain lines of standard input.
    static std::unique_ptr<LineReader> create(const Terminal& terminal);
};

// A message: one line, or several when a line ends in a backslash or stands between """ and """.
Result<Input> read_message(LineReader& reader, std::string& message);

inline constexpr std::size_t kInputBytesMax = 16U << 20;

// All of a descriptor up to its end; `name` is for messages. resource_exhausted beyond `bytes_max`.
Result<std::string> read_all(int descriptor, std::string_view name,
                             std::size_t bytes_max = kInputBytesMax);

}  // namespace stet::cli
