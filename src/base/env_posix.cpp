#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "base/env.h"
#include "base/try.h"

namespace stet {
namespace {

using Path = Env::Path;

constexpr mode_t kFileMode = 0600;
constexpr mode_t kDirectoryMode = 0700;
constexpr std::uint64_t kOffsetMax = std::numeric_limits<off_t>::max();

Code code_of(int error) {
    switch (error) {
        case ENOENT:
        case ENOTDIR:
            return Code::not_found;
        case EEXIST:
            return Code::already_exists;
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
        case ENOMEM:
        case EMFILE:
        case ENFILE:
            return Code::resource_exhausted;
        case EISDIR:
        case EINVAL:
        case ELOOP:
        case ENAMETOOLONG:
            return Code::invalid_argument;
        case ENOTEMPTY:
        case EBUSY:
            return Code::conflict;
        default:
            return Code::io;
    }
}

// `action` completes "can't ...".
Status failure(const Path& path, std::string_view action, int error) {
    const bool disk_full = error == ENOSPC || error == EDQUOT;
    return Status(code_of(error), fmt::format("{}: can't {}: {}{}", path.native(), action,
                                              disk_full ? "disk full: " : "",
                                              std::generic_category().message(error)));
}

Status past_the_limit(const Path& path, std::string_view action, std::uint64_t offset) {
    return Status(Code::invalid_argument, fmt::format("{}: can't {} at byte {}: beyond any file",
                                                      path.native(), action, offset));
}

template <typename Call>
auto retry_interrupted(Call call) {
    while (true) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) return result;
    }
}

class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor() { close(); }

    int get() const { return fd_; }
    bool is_open() const { return fd_ >= 0; }
    // 0 or errno. Linux releases the descriptor even when close() is interrupted: never retried.
    int close() {
        if (fd_ < 0) return 0;
        const int error = ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
        return error == EINTR ? 0 : error;
    }

  private:
    int fd_;
};

Descriptor open_descriptor(const Path& path, int flags) {
    return Descriptor(
        retry_interrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, kFileMode); }));
}

FileInfo to_info(const struct stat& st) {
    FileInfo info;
    info.size_bytes = static_cast<std::uint64_t>(st.st_size);
    info.inode = st.st_ino;
    info.mode = st.st_mode & 07777U;
    info.modified_ns = std::int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
    info.is_directory = S_ISDIR(st.st_mode);
    return info;
}

// A pipe, socket or device has no stable content and no size: refused wherever a file is expected.
Result<FileInfo> regular_file_info(const Descriptor& descriptor, const Path& path) {
    struct stat st;
    if (::fstat(descriptor.get(), &st) != 0) return failure(path, "read its size", errno);
    if (!S_ISREG(st.st_mode)) {
        return Status(Code::invalid_argument,
                      fmt::format("{}: expected a regular file, found {}", path.native(),
                                  S_ISDIR(st.st_mode) ? "a directory" : "a special file"));
    }
    return to_info(st);
}

class PosixFile final : public File {
  public:
    PosixFile(Path path, Descriptor descriptor)
        : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

    Status read_at(std::uint64_t offset, std::span<std::byte> data) const override {
        std::size_t done = 0;
        while (done < data.size()) {
            if (offset + done < offset || offset + done > kOffsetMax) {
                return cut_short(offset, data.size(), done);
            }
            const ssize_t count = retry_interrupted([&] {
                return ::pread(descriptor_.get(), data.data() + done, data.size() - done,
                               static_cast<off_t>(offset + done));
            });
            if (count < 0) return failure(path_, "read", errno);
            if (count == 0) return cut_short(offset, data.size(), done);
            done += static_cast<std::size_t>(count);
        }
        return {};
    }

    Status write_at(std::uint64_t offset, std::span<const std::byte> data) override {
        if (offset > kOffsetMax || data.size() > kOffsetMax - offset) {
            return past_the_limit(path_, "write", offset);
        }
        std::size_t done = 0;
        while (done < data.size()) {
            const ssize_t count = retry_interrupted([&] {
                return ::pwrite(descriptor_.get(), data.data() + done, data.size() - done,
                                static_cast<off_t>(offset + done));
            });
            if (count < 0) return failure(path_, "write", errno);
            if (count == 0) return failure(path_, "write", ENOSPC);
            done += static_cast<std::size_t>(count);
        }
        return {};
    }

    Result<std::uint64_t> size() const override {
        struct stat st;
        if (::fstat(descriptor_.get(), &st) != 0) return failure(path_, "read its size", errno);
        return static_cast<std::uint64_t>(st.st_size);
    }

    Status truncate(std::uint64_t size) override {
        if (size > kOffsetMax) return past_the_limit(path_, "truncate", size);
        const int result = retry_interrupted(
            [&] { return ::ftruncate(descriptor_.get(), static_cast<off_t>(size)); });
        return result == 0 ? Status() : failure(path_, "truncate", errno);
    }

    // The kernel reports a lost write once and then forgets it, so a later success would be a lie:
    // the first failure sticks to this handle.
    Status sync() override {
        if (!sync_failure_.is_ok()) return sync_failure_;
        if (retry_interrupted([&] { return ::fdatasync(descriptor_.get()); }) != 0) {
            sync_failure_ = failure(path_, "sync", errno);
        }
        return sync_failure_;
    }

    Status close() override {
        const int error = descriptor_.close();
        return error == 0 ? Status() : failure(path_, "close", error);
    }

  private:
    Status cut_short(std::uint64_t offset, std::size_t wanted, std::size_t done) const {
        return Status(Code::corruption,
                      fmt::format("{}: cut short: expected {} bytes at byte {}, found {}",
                                  path_.native(), wanted, offset, done));
    }

    Path path_;
    Descriptor descriptor_;
    Status sync_failure_;
};

class PosixMapping final : public Mapping {
  public:
    PosixMapping(void* address, std::size_t size) : address_(address), size_(size) {}
    PosixMapping(const PosixMapping&) = delete;
    PosixMapping& operator=(const PosixMapping&) = delete;
    ~PosixMapping() override {
        if (size_ != 0) ::munmap(address_, size_);
    }
    std::span<const std::byte> bytes() const override {
        return {static_cast<const std::byte*>(address_), size_};
    }

  private:
    void* address_;
    std::size_t size_;
};

class PosixLock final : public FileLock {
  public:
    explicit PosixLock(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  private:
    Descriptor descriptor_;  // closing it drops the lock
};

int open_flags(OpenMode mode) {
    switch (mode) {
        case OpenMode::read:
            return O_RDONLY | O_NONBLOCK;  // a pipe must not block us; see regular_file_info()
        case OpenMode::read_no_link:
            return O_RDONLY | O_NONBLOCK | O_NOFOLLOW;
        case OpenMode::read_write:
            return O_RDWR | O_NONBLOCK;
        case OpenMode::create:
            return O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
        case OpenMode::create_new:
            return O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
    }
    return O_RDONLY | O_NONBLOCK;
}

class PosixEnv final : public Env {
  public:
    Result<std::unique_ptr<File>> open(const Path& path, OpenMode mode) override {
        Descriptor descriptor = open_descriptor(path, open_flags(mode));
        if (!descriptor.is_open()) return failure(path, "open", errno);
        STET_TRY(regular_file_info(descriptor, path).status());
        return std::unique_ptr<File>(std::make_unique<PosixFile>(path, std::move(descriptor)));
    }

    Result<std::unique_ptr<Mapping>> map(const Path& path) override {
        const Descriptor descriptor = open_descriptor(path, O_RDONLY | O_NONBLOCK);
        if (!descriptor.is_open()) return failure(path, "open", errno);
        STET_ASSIGN(const FileInfo info, regular_file_info(descriptor, path));
        void* address = nullptr;
        if (info.size_bytes != 0) {  // mmap refuses empty ranges
            address = ::mmap(nullptr, info.size_bytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
            if (address == MAP_FAILED) return failure(path, "map", errno);
        }
        return std::unique_ptr<Mapping>(std::make_unique<PosixMapping>(address, info.size_bytes));
    }

    Result<FileInfo> info(const Path& path) override {
        struct stat st;
        if (::stat(path.c_str(), &st) != 0) return failure(path, "look up", errno);
        return to_info(st);
    }

    Result<std::vector<std::string>> list(const Path& directory) override {
        const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
        if (stream == nullptr) return failure(directory, "list", errno);
        std::vector<std::string> names;
        while (true) {
            errno = 0;  // readdir says "end" and "error" alike
            const dirent* entry = ::readdir(stream.get());
            if (entry == nullptr) break;
            const std::string_view name(entry->d_name);
            if (name != "." && name != "..") names.emplace_back(name);
        }
        if (errno != 0) return failure(directory, "list", errno);
        std::sort(names.begin(), names.end());
        return names;
    }

    Status make_directory(const Path& path) override {
        const Path normal = path.lexically_normal();
        Path part;
        for (const Path& component : normal) {
            if (component.empty()) continue;  // after a trailing slash
            part /= component;
            STET_TRY(make_one_directory(part));
        }
        return {};
    }

    Status rename(const Path& from, const Path& to) override {
        if (::rename(from.c_str(), to.c_str()) == 0) return {};
        return failure(from, fmt::format("rename to {}", to.native()), errno);
    }

    Status remove(const Path& path) override {
        if (::unlink(path.c_str()) == 0) return {};
        if (errno == EISDIR && ::rmdir(path.c_str()) == 0) return {};
        return failure(path, "remove", errno);
    }

    Status sync_directory(const Path& path) override {
        const Path directory = path.empty() ? Path(".") : path;
        Descriptor descriptor = open_descriptor(directory, O_RDONLY | O_DIRECTORY);
        if (!descriptor.is_open()) return failure(directory, "open", errno);
        if (retry_interrupted([&] { return ::fsync(descriptor.get()); }) != 0) {
            return failure(directory, "sync", errno);
        }
        return {};
    }

    Result<std::unique_ptr<FileLock>> lock(const Path& path) override;

    Result<std::uint64_t> free_bytes(const Path& path) override {
        struct statvfs st;
        if (retry_interrupted([&] { return ::statvfs(path.c_str(), &st); }) != 0) {
            return failure(path, "read the free space", errno);
        }
        return std::uint64_t{st.f_bavail} * st.f_frsize;
    }

    std::chrono::system_clock::time_point now() override {
        return std::chrono::system_clock::now();
    }
    std::chrono::steady_clock::time_point steady_now() override {
        return std::chrono::steady_clock::now();
    }

  private:
    Status make_one_directory(const Path& path) {
        if (::mkdir(path.c_str(), kDirectoryMode) == 0) return sync_directory(path.parent_path());
        const int error = errno;
        struct stat st;
        if (::stat(path.c_str(), &st) == 0) {
            if (S_ISDIR(st.st_mode)) return {};
            return failure(path, "make a directory", EEXIST);
        }
        return failure(path, "make a directory", error);
    }
};

// The holder's process id is kept in the file for the message only; flock is what excludes.
Result<std::unique_ptr<FileLock>> PosixEnv::lock(const Path& path) {
    Descriptor descriptor = open_descriptor(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    if (!descriptor.is_open()) return failure(path, "open", errno);
    if (retry_interrupted([&] { return ::flock(descriptor.get(), LOCK_EX | LOCK_NB); }) != 0) {
        if (errno != EWOULDBLOCK) return failure(path, "lock", errno);
        char holder[24] = {};
        const ssize_t count = ::pread(descriptor.get(), holder, sizeof(holder) - 1, 0);
        const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
        const bool known = count > 0 && std::all_of(holder, holder + count, is_digit);
        return Status(Code::conflict,
                      fmt::format("{}: in use by another process (pid {}): stop it first, or use "
                                  "another directory",
                                  path.native(), known ? holder : "unknown"));
    }
    const std::string pid = std::to_string(::getpid());
    if (::ftruncate(descriptor.get(), 0) == 0) {
        [[maybe_unused]] const ssize_t count =
            ::pwrite(descriptor.get(), pid.data(), pid.size(), 0);
    }
    return std::unique_ptr<FileLock>(std::make_unique<PosixLock>(std::move(descriptor)));
}

}  // namespace

Env& Env::posix() {
    static PosixEnv env;
    return env;
}

}  // namespace stet
