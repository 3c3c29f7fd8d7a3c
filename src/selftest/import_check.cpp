// State that llama.cpp saved beside the model's name: NAME.seq and NAME.session.
#include <fmt/format.h>

#include "base/try.h"
#include "engine/import_state.h"
#include "selftest/columns.h"

namespace stet::selftest {
namespace {

// Rows that the reference computed, beside rows of our own from the same tokens: f16 rounding.
constexpr double kImportedLimit = 1e-3;
constexpr std::uint32_t kTokensAfter = 3;

Status check_file(Subject& subject, const std::filesystem::path& path) {
    STET_ASSIGN(const auto imported, engine::import_state(subject.engine(), Env::posix(), path));
    Context context = subject.make_context(2);
    for (const auto& entry : imported.sequences) {
        STET_TRY(context.put(0, entry.sequence));
        STET_ASSIGN(const Bytes bytes, save(context, 0));
        STET_TRY(context.restore(1, bytes));
        const auto tokens = subject.tokens(70, 0, kTokensAfter);
        STET_ASSIGN(const auto rows, subject.feed_each(context, 0, tokens));
        STET_ASSIGN(const auto restored, subject.feed_each(context, 1, tokens));
        STET_TRY(context.clear(1));
        STET_TRY(subject.feed(context, 1, entry.sequence.tokens).status());
        STET_ASSIGN(const auto computed, subject.feed_each(context, 1, tokens));
        for (std::size_t i = 0; i < rows.size(); ++i) {
            STET_TRY(expect_equal(rows[i], restored[i], "imported, saved and restored"));
            STET_TRY(expect_close(computed[i], rows[i], kImportedLimit,
                                  "imported beside computed from its tokens"));
        }
        STET_TRY(context.clear(1));
    }
    return {};
}

}  // namespace

Result<std::string> check_old_files(Subject& subject, const CheckOptions& options) {
    const std::string name = subject.engine().model().file->path().stem();
    std::size_t files = 0;
    for (const char* extension : {".seq", ".session"}) {
        const auto path = options.old_files / (name + extension);
        if (options.old_files.empty() || !Env::posix().info(path)) continue;
        const Status status = check_file(subject, path);
        if (!status) return status.with_context(path.string());
        ++files;
    }
    if (files == 0) return std::string();
    return fmt::format("{} files go on as their tokens do", files);
}

}  // namespace stet::selftest
