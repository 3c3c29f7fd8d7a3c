#include "base/env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "base/try.h"

namespace stet {
namespace {

constexpr int kNameTriesMax = 100;

// Beside the target, because rename can't leave its file system. The name doesn't grow with the
// target's, which may be as long as the file system allows.
Env::Path temporary_path(Env& env, const Env::Path& target) {
    static std::atomic<std::uint64_t> counter{0};
    const auto ticks = static_cast<std::uint64_t>(env.steady_now().time_since_epoch().count());
    return target.parent_path() / fmt::format(".stet-{:x}-{:x}-{:x}.tmp", ::getpid(), ticks,
                                              counter.fetch_add(1, std::memory_order_relaxed));
}

using Write = std::function<Status(File&)>;

Status write_and_close(File& file, const Write& write) {
    STET_TRY(write(file));
    STET_TRY(file.sync());
    return file.close();
}

Status not_replaced(const Env::Path& path, const Status& status) {
    return status.with_context(fmt::format("{}: not replaced", path.native()));
}

Status replace_with(Env& env, const Env::Path& path, const Env::Path& temporary,
                    std::unique_ptr<File> file, const Write& write) {
    Status status = write_and_close(*file, write);
    if (status.is_ok()) status = env.rename(temporary, path);
    if (!status.is_ok()) {
        file.reset();
        // The first failure is the one to report; a leftover is harmless.
        static_cast<void>(env.remove(temporary));
        return not_replaced(path, status);
    }
    return env.sync_directory(path.parent_path())
        .with_context(
            fmt::format("{}: replaced, but may not survive a power failure", path.native()));
}

}  // namespace

Result<std::vector<std::byte>> read_file(Env& env, const Env::Path& path,
                                         std::uint64_t limit_bytes) {
    STET_ASSIGN(const auto file, env.open(path, OpenMode::read));
    STET_ASSIGN(const std::uint64_t size, file->size());
    if (size > limit_bytes) {
        return Status(Code::invalid_argument,
                      fmt::format("{}: too large: {} bytes, at most {} are read", path.native(),
                                  size, limit_bytes));
    }
    std::vector<std::byte> data(size);
    STET_TRY(file->read_at(0, data));
    return data;
}

Status replace_file(Env& env, const Env::Path& path, std::span<const std::byte> data) {
    return replace_file(env, path, [data](File& file) { return file.write_at(0, data); });
}

Status replace_file(Env& env, const Env::Path& path, const Write& write) {
    for (int tries = 0;; ++tries) {
        const Env::Path temporary = temporary_path(env, path);
        auto file = env.open(temporary, OpenMode::create_new);
        if (file.is_ok()) {
            return replace_with(env, path, temporary, std::move(file).value(), write);
        }
        const Status status = file.status();
        if (status.code() != Code::already_exists || tries == kNameTriesMax) {
            return not_replaced(path, status);
        }
    }
}

}  // namespace stet
