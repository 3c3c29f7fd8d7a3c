// What the program prints and to whom. Answers and results go to standard output, notes and
// failures to standard error; colour, spinner and stripping of control characters only where that
// is a terminal.
//
// One thread at a time, apart from the Spinner's own.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "stet/status.h"

namespace stet::cli {

// `text` without what a terminal would obey: control characters other than newline and tab.
std::string printable(std::string_view text);
// The same, and newlines and tabs become spaces.
std::string one_line(std::string_view text);

class Terminal {
  public:
    Terminal();  // looks at the standard streams, TERM and NO_COLOR

    // A person reads and types; a script gets exit codes instead of hints.
    bool is_interactive() const { return is_interactive_; }
    // Line editing is possible: both ends are a terminal that can move its cursor.
    bool can_edit() const { return can_edit_; }
    bool has_output_terminal() const { return output_is_terminal_; }
    bool has_output_color() const { return has_output_color_; }
    bool has_color() const { return has_color_; }
    // Spinner and figures after an answer are for somebody who watches.
    bool is_watched() const { return is_watched_ && !quiet_; }
    void set_quiet(bool quiet) { quiet_ = quiet; }

    // To standard output, at once. io when the reader is gone or the disk is full; then every later
    // call answers the same without writing.
    Status print(std::string_view text);
    // The same, dim where standard output shows color.
    Status print_dim(std::string_view text);
    const Status& output_status() const { return output_status_; }
    // A reader that closed its pipe has seen enough: nothing to complain about.
    bool reader_left() const { return reader_left_; }

    // A line to standard error, dim; not when quiet.
    void note(std::string_view line);
    // "stet: what: why" to standard error.
    void fail(const Status& status);

  private:
    Status write_output(std::string_view text);
    void write_error_line(std::string_view style, std::string_view line);

    bool output_is_terminal_ = false;
    bool error_is_terminal_ = false;
    bool is_interactive_ = false;
    bool can_edit_ = false;
    bool has_color_ = false;  // on standard error
    bool has_output_color_ = false;
    bool is_watched_ = false;
    bool quiet_ = false;
    bool reader_left_ = false;
    Status output_status_;
};

// Turns on standard error while somebody waits longer than a moment. Nothing else may print
// between its construction and stop().
class Spinner {
  public:
    Spinner(const Terminal& terminal, std::string what);
    ~Spinner() { stop(); }
    Spinner(const Spinner&) = delete;
    Spinner& operator=(const Spinner&) = delete;
    void say(std::string_view what);  // from now on
    void stop();                      // and takes its line away

  private:
    void turn();

    std::mutex mutex_;
    std::string what_;  // by mutex_
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace stet::cli
