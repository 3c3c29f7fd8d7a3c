#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace stet::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kReset = "\x1b[0m";

std::string_view environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

// Writes all of it; 0 or the errno that ended it.
int write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) continue;
        // U+0080 to U+009F: C1 controls, "CSI" in one character among them.
        if (byte == 0xc2 && i + 1 < text.size()) {
            const auto next = static_cast<unsigned char>(text[i + 1]);
            if (next >= 0x80 && next < 0xa0) {
                ++i;
                continue;
            }
        }
        out += text[i];
    }
    return out;
}

std::string one_line(std::string_view text) {
    std::string line = printable(text);
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
    return line;
}

Terminal::Terminal()
    : output_is_terminal_(isatty(STDOUT_FILENO) == 1),
      error_is_terminal_(isatty(STDERR_FILENO) == 1) {
    const std::string_view type = environment("TERM");
    const bool capable = !type.empty() && type != "dumb";
    is_interactive_ = output_is_terminal_ && isatty(STDIN_FILENO) == 1;
    can_edit_ = capable && is_interactive_;
    has_color_ = capable && error_is_terminal_ && environment("NO_COLOR").empty();
    has_output_color_ = capable && output_is_terminal_ && environment("NO_COLOR").empty();
    is_watched_ = capable && error_is_terminal_ && output_is_terminal_;
}

Status Terminal::print(std::string_view text) {
    return write_output(output_is_terminal_ ? printable(text) : std::string(text));
}

Status Terminal::print_dim(std::string_view text) {
    if (!has_output_color_) return print(text);
    return write_output(fmt::format("{}{}{}", kDim, printable(text), kReset));
}

Status Terminal::write_output(std::string_view text) {
    if (!output_status_) return output_status_;
    const int error = write_all(STDOUT_FILENO, text);
    if (error != 0) {
        reader_left_ = error == EPIPE;
        output_status_ = Status(
            Code::io, fmt::format("cannot write to standard output: {}", std::strerror(error)));
    }
    return output_status_;
}

void Terminal::note(std::string_view line) {
    if (!quiet_) write_error_line(kDim, line);
}

void Terminal::fail(const Status& status) {
    write_error_line(kRed, "stet: " + one_line(status.to_string()));
}

void Terminal::write_error_line(std::string_view style, std::string_view line) {
    const std::string text = error_is_terminal_ ? printable(line) : std::string(line);
    // Where standard error can't be written there is nobody left to tell.
    if (has_color_) {
        write_all(STDERR_FILENO, fmt::format("{}{}{}\n", style, text, kReset));
    } else {
        write_all(STDERR_FILENO, text + "\n");
    }
}

Spinner::Spinner(const Terminal& terminal, std::string what) : what_(one_line(what)) {
    if (!terminal.is_watched()) return;
    try {
        thread_ = std::thread([this] { turn(); });
    } catch (const std::system_error&) {  // no thread to spare: nothing spins
    }
}

void Spinner::say(std::string_view what) {
    const std::lock_guard lock(mutex_);
    what_ = one_line(what);
}

void Spinner::stop() {
    if (!thread_.joinable()) return;
    stopping_.store(true);
    thread_.join();
}

void Spinner::turn() {
    constexpr std::array<char, 4> kFrames = {'|', '/', '-', '\\'};
    constexpr auto kFrameTime = std::chrono::milliseconds(20);
    constexpr std::size_t kPatience = 15;  // frames before it shows at all
    constexpr std::size_t kSlowness = 5;   // waits are short so that stop() is
    bool shown = false;
    for (std::size_t i = 0; !stopping_.load(); ++i) {
        if (i >= kPatience && i % kSlowness == 0) {
            const char frame = kFrames[i / kSlowness % kFrames.size()];
            const std::lock_guard lock(mutex_);
            write_all(STDERR_FILENO, fmt::format("\r{} {}\x1b[K", frame, what_));
            shown = true;
        }
        std::this_thread::sleep_for(kFrameTime);
    }
    if (shown) write_all(STDERR_FILENO, "\r\x1b[K");
}

}  // namespace stet::cli
