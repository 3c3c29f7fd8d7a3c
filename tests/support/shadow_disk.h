// What a disk would hold after a power failure. A model of the files that a FaultEnv has touched:
// per file the bytes that were synced and the writes that weren't, per directory the entries that
// were synced and the changes that weren't. It does no I/O; a power failure asks it for the
// outcome.
//
// The model is as mean as POSIX allows: file data and directory entries are only durable after
// their own sync, and of the rest any subset may survive, in 512-byte sectors. (Directories
// themselves are durable when made, as Env::make_directory syncs their parents.)
//
// Thread rules: not thread-safe; FaultEnv holds a lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace stet::test {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

// One file, whatever its name is now.
class ShadowFile {
  public:
    explicit ShadowFile(Bytes durable) : durable_(std::move(durable)) {}

    void write(std::uint64_t offset, std::span<const std::byte> data);
    void truncate(std::uint64_t size);
    void sync();
    // A sync that failed: some of what was pending reached the disk, the rest never will.
    void fail_sync(Random& random);
    // No random: nothing unsynced survives. Otherwise any subset of it.
    Bytes after_crash(Random* random) const;
    bool has_unsynced() const { return !pending_.empty(); }

  private:
    struct Change {
        bool is_truncation;
        std::uint64_t at;  // the new size, or where data go
        Bytes data;
    };
    static void apply(Bytes& content, const Change& change, Random* torn_by);

    Bytes durable_;
    std::vector<Change> pending_;
};

class ShadowDisk {
  public:
    using Path = std::filesystem::path;
    using FilePtr = std::shared_ptr<ShadowFile>;

    FilePtr find(const Path& path) const;            // by its current name; null when not tracked
    FilePtr adopt(const Path& path, Bytes content);  // a file that was there before: durable
    FilePtr create(const Path& path);                // a new entry, not durable yet
    // Both ends must be tracked or absent.
    void rename(const Path& from, const Path& to);
    void remove(const Path& path);
    void sync_directory(const Path& path);
    bool has_unsynced() const;

    struct Outcome {
        std::vector<Path> gone;  // names to remove before the files below are written
        std::map<Path, Bytes> files;
    };
    // Afterwards the model is the outcome, all durable.
    Outcome crash(std::optional<std::uint64_t> seed);

  private:
    using Entries = std::map<std::string, FilePtr>;
    struct EntryChange {
        std::string name;
        FilePtr file;           // null: the name goes
        std::string gone_name;  // a rename in one directory: goes in the same step
    };
    struct Directory {
        Entries live;
        Entries durable;
        std::vector<EntryChange> pending;
    };
    static void apply(Entries& entries, const EntryChange& change);

    std::map<Path, Directory> directories_;
};

}  // namespace stet::test
