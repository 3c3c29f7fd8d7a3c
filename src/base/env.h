// The world outside the process: files, directories, clocks. All I/O on state goes through one
// Env, so that a test can be the full disk, the failing fsync and the power failure (LevelDB's
// idea). `Env::posix()` is the real one.
//
// Thread rules: an Env may be used from any thread. A File's read_at may be called from several
// threads at once; its writing calls by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stet/status.h"

namespace stet {

class File {
  public:
    virtual ~File() = default;
    // Reads exactly data.size() bytes at offset; fewer is Code::corruption ("cut short").
    virtual Status read_at(std::uint64_t offset, std::span<std::byte> data) const = 0;
    // Writes all of data at offset (retrying short writes); a full disk is resource_exhausted.
    virtual Status write_at(std::uint64_t offset, std::span<const std::byte> data) = 0;
    virtual Result<std::uint64_t> size() const = 0;
    virtual Status truncate(std::uint64_t size) = 0;
    // Data (and the size) are on stable storage when it returns ok. After a failure what was
    // written since the last success is unknown: never retried as if it were ok.
    virtual Status sync() = 0;
    virtual Status close() = 0;  // reports what the destructor can't
};

// Read-only view of a file; unmapped when destroyed.
class Mapping {
  public:
    virtual ~Mapping() = default;
    virtual std::span<const std::byte> bytes() const = 0;
};

// Holds an exclusive lock; released when destroyed or when the process dies.
class FileLock {
  public:
    virtual ~FileLock() = default;
};

enum class OpenMode : std::uint8_t {
    read,          // must exist
    read_no_link,  // the same, and the name itself must not be a symbolic link
    read_write,    // must exist
    create,        // read and write, made if missing, kept if there (0600)
    create_new,    // read and write, fails with already_exists if there (0600)
};

struct FileInfo {
    std::uint64_t size_bytes = 0;
    std::uint64_t inode = 0;
    std::int64_t modified_ns = 0;
    std::uint32_t mode = 0;  // permission bits: 0600
    bool is_directory = false;
};

class Env {
  public:
    using Path = std::filesystem::path;
    virtual ~Env() = default;

    virtual Result<std::unique_ptr<File>> open(const Path& path, OpenMode mode) = 0;
    virtual Result<std::unique_ptr<Mapping>> map(const Path& path) = 0;
    virtual Result<FileInfo> info(const Path& path) = 0;  // not_found when it isn't there
    virtual Result<std::vector<std::string>> list(const Path& directory) = 0;
    virtual Status make_directory(const Path& path) = 0;  // with parents, 0700; ok if there
    virtual Status rename(const Path& from, const Path& to) = 0;
    virtual Status remove(const Path& path) = 0;
    virtual Status sync_directory(const Path& path) = 0;
    // conflict when another process holds it.
    virtual Result<std::unique_ptr<FileLock>> lock(const Path& path) = 0;
    virtual Result<std::uint64_t> free_bytes(const Path& path) = 0;

    virtual std::chrono::system_clock::time_point now() = 0;
    virtual std::chrono::steady_clock::time_point steady_now() = 0;

    static Env& posix();
};

// Whole small file.
Result<std::vector<std::byte>> read_file(Env& env, const Env::Path& path,
                                         std::uint64_t limit_bytes);
// temp file, sync, rename, sync of the directory: afterwards either the old or the new content.
// A symbolic link at `path` is replaced itself, never followed.
Status replace_file(Env& env, const Env::Path& path, std::span<const std::byte> data);
// The same with content that `write` makes: it gets the empty temporary file.
Status replace_file(Env& env, const Env::Path& path, const std::function<Status(File&)>& write);

}  // namespace stet
