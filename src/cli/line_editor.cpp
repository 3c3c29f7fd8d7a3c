#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/env.h"
#include "cli/interrupt.h"
#include "cli/paths.h"

namespace stet::cli {
namespace {

constexpr int kHistoryLines = 1000;
constexpr char kEscape = '\1';  // around what takes no room in a prompt

class LineEditor final : public LineReader {
  public:
    explicit LineEditor(bool has_color) : has_color_(has_color) {
        // libedit reads characters by the locale; without a UTF-8 one it would take bytes apart.
        std::setlocale(LC_CTYPE, "");
        if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
        history_ = history_init();
        edit_ = el_init("stet", stdin, stdout, stderr);
        if (edit_ == nullptr || history_ == nullptr) return;
        el_set(edit_, EL_CLIENTDATA, this);
        el_set(edit_, EL_PROMPT_ESC, &LineEditor::prompt, kEscape);
        el_set(edit_, EL_SIGNAL, 1);  // resizes, and a terminal that is left as it was found
        el_set(edit_, EL_EDITOR, "emacs");
        // Ctrl-C is a key while editing: libedit would go on after the signal.
        el_set(edit_, EL_SETTY, "-d", "intr=", nullptr);
        // The wide form: the other one copies both texts and never frees them.
        el_wset(edit_, EL_ADDFN, L"stet-interrupt", L"Give up this line", &LineEditor::interrupt);
        el_set(edit_, EL_BIND, "^C", "stet-interrupt", nullptr);
        el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
        HistEvent event;
        history(history_, &event, H_SETSIZE, kHistoryLines);
        history(history_, &event, H_SETUNIQUE, 1);
        el_set(edit_, EL_HIST, history, history_);
        open_history();
    }
    ~LineEditor() override {
        save_history();
        if (edit_ != nullptr) el_end(edit_);
        if (history_ != nullptr) history_end(history_);
    }
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;

    bool works() const { return edit_ != nullptr && history_ != nullptr; }

    Result<Input> read(std::string_view prompt_text, std::string& line) override {
        prompt_ = prompt_text;
        // libedit drops an escape sequence that no character follows: the last one stays outside.
        if (has_color_ && !prompt_.empty()) {
            const char last = prompt_.back();
            prompt_.pop_back();
            prompt_ = "\1\x1b[32m\1" + prompt_ + "\1\x1b[0m\1" + last;
        }
        interrupted_ = false;
        int count = 0;
        const char* typed = el_gets(edit_, &count);
        if (interrupted_ || interrupt_flag().exchange(false)) {
            std::fputs("\n", stdout);
            std::fflush(stdout);
            return Input::interrupted;
        }
        if (typed == nullptr || count <= 0) {
            std::fputs("\n", stdout);
            std::fflush(stdout);
            return Input::end;
        }
        line.assign(typed, static_cast<std::size_t>(count));
        if (line.ends_with('\n')) line.pop_back();
        HistEvent event;
        if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
        return Input::line;
    }

  private:
    static LineEditor* self(EditLine* edit) {
        void* data = nullptr;
        el_get(edit, EL_CLIENTDATA, &data);
        return static_cast<LineEditor*>(data);
    }
    static char* prompt(EditLine* edit) { return self(edit)->prompt_.data(); }
    static unsigned char interrupt(EditLine* edit, int) {
        self(edit)->interrupted_ = true;
        return CC_EOF;
    }

    // A history that can't be read or written is only not there.
    void open_history() {
        if (!Env::posix().make_directory(state_directory())) return;
        history_path_ = state_directory() / "history";
        HistEvent event;
        history(history_, &event, H_LOAD, history_path_.c_str());
    }
    void save_history() {
        if (!works() || history_path_.empty()) return;
        const int descriptor =
            ::open(history_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (descriptor < 0) return;
        if (std::FILE* file = fdopen(descriptor, "w")) {
            HistEvent event;
            history(history_, &event, H_SAVE_FP, file);
            std::fclose(file);
        } else {
            ::close(descriptor);
        }
    }

    bool has_color_;
    bool interrupted_ = false;
    EditLine* edit_ = nullptr;
    History* history_ = nullptr;
    std::string prompt_;
    std::filesystem::path history_path_;
};

}  // namespace

std::unique_ptr<LineReader> create_line_editor(const Terminal& terminal) {
    auto editor = std::make_unique<LineEditor>(terminal.has_color());
    if (!editor->works()) return nullptr;
    return editor;
}

}  // namespace stet::cli
