#include "cli/line_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/try.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"

namespace stet::cli {
namespace {

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kContinuation = ". ";
constexpr std::string_view kFence = "\"\"\"";

Status too_long(std::string_view what, std::size_t bytes_max = kInputBytesMax) {
    return Status(
        Code::resource_exhausted,
        fmt::format("{} is longer than {} MiB, the most that is read", what, bytes_max >> 20U));
}

Status read_failed(std::string_view what) {
    return Status(Code::io, fmt::format("cannot read {}: {}", what, std::strerror(errno)));
}

class PlainReader final : public LineReader {
  public:
    explicit PlainReader(bool shows_prompt) : shows_prompt_(shows_prompt) {}

    Result<Input> read(std::string_view prompt, std::string& line) override {
        show(prompt);
        for (;;) {
            const std::size_t end = buffer_.find('\n', searched_);
            if (end != std::string::npos) {
                line = buffer_.substr(0, end);
                buffer_.erase(0, end + 1);
                searched_ = 0;
                if (line.ends_with('\r')) line.pop_back();
                return Input::line;
            }
            searched_ = buffer_.size();
            if (searched_ > kInputBytesMax) return too_long("a line of standard input");
            std::array<char, 4096> chunk;
            const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
            if (got < 0 && errno == EINTR) {
                if (!interrupt_flag().exchange(false)) continue;
                show("\n");
                return Input::interrupted;
            }
            if (got < 0) return read_failed("standard input");
            if (got == 0) {
                line = std::exchange(buffer_, {});
                searched_ = 0;
                if (!line.empty()) return Input::line;
                show("\n");
                return Input::end;
            }
            buffer_.append(chunk.data(), static_cast<std::size_t>(got));
        }
    }

  private:
    void show(std::string_view text) const {
        if (!shows_prompt_) return;
        [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text.data(), text.size());
    }

    bool shows_prompt_;
    std::string buffer_;
    std::size_t searched_ = 0;  // no newline before this
};

// The lines up to the closing fence; `first` is what followed the opening one.
Result<Input> read_block(LineReader& reader, std::string first, std::string& message) {
    std::string line = std::move(first);
    message.clear();
    for (;;) {
        if (line.ends_with(kFence)) {
            message += line.substr(0, line.size() - kFence.size());
            if (message.ends_with('\n')) message.pop_back();
            return Input::line;
        }
        if (!line.empty() || !message.empty()) message += line + "\n";
        if (message.size() > kInputBytesMax) return too_long("the message");
        STET_ASSIGN(const Input input, reader.read(kContinuation, line));
        if (input == Input::interrupted) return input;
        if (input == Input::end) return message.empty() ? input : Input::line;
    }
}

}  // namespace

std::unique_ptr<LineReader> LineReader::create(const Terminal& terminal) {
    if (terminal.can_edit()) {
        if (auto editor = create_line_editor(terminal)) return editor;
    }
    return std::make_unique<PlainReader>(isatty(STDIN_FILENO) == 1);
}

Result<Input> read_message(LineReader& reader, std::string& message) {
    STET_ASSIGN(Input input, reader.read(kPrompt, message));
    if (input != Input::line) return input;
    if (message.starts_with(kFence)) {
        return read_block(reader, message.substr(kFence.size()), message);
    }
    std::string line;
    while (message.ends_with('\\')) {
        message.back() = '\n';
        if (message.size() > kInputBytesMax) return too_long("the message");
        STET_ASSIGN(input, reader.read(kContinuation, line));
        if (input == Input::interrupted) return input;
        if (input == Input::end) break;
        message += line;
    }
    return Input::line;
}

Result<std::string> read_all(int descriptor, std::string_view name, std::size_t bytes_max) {
    std::string text;
    std::array<char, 65536> chunk;
    for (;;) {
        const ssize_t got = ::read(descriptor, chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR) {
            if (interrupt_flag().load()) return Status(Code::cancelled, "interrupted");
            continue;
        }
        if (got < 0) return read_failed(name);
        if (got == 0) return text;
        text.append(chunk.data(), static_cast<std::size_t>(got));
        if (text.size() > bytes_max) return too_long(name, bytes_max);
    }
}

}  // namespace stet::cli
