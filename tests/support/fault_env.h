// An Env that is the full disk, the failing sync and the power failure. It works on real files
// through another Env and keeps a ShadowDisk of what would survive.
//
//     FaultEnv env;                         // over Env::posix()
//     env.cut_power_at(k);                  // the k-th change from now, and all calls after it,
//     fail run_workload(env, directory);         // must cope; destroy everything it opened
//     env.crash(seed);                      // the directory is now what a disk would hold
//     check(env, directory);                // reopen and look
//
// Loop k from 0 until has_cut_power() stays false: then the workload ran to its end. Without
// crash() nothing is lost: calls that fail by fail_call() are faults, not power failures.
//
// Only files written through this Env are part of a crash. Files that others write in the same
// directory (SQLite) stay as they are: their own library answers for them. A file that was there
// before its first change through this Env counts as durable. Renaming a directory is
// unimplemented.
//
// Handles, mappings and locks opened before a crash don't survive it: handles fail with io.
// Mappings must be dropped by the test. read calls don't count as changes.
//
// Thread rules: any thread, as every Env.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/env.h"
#include "support/shadow_disk.h"

namespace stet::test {

// Classes of calls; a set of them is made with |.
enum Op : std::uint32_t {
    kOpen = 1 << 0,  // that may make a file: create and create_new
    kWrite = 1 << 1,
    kTruncate = 1 << 2,
    kSync = 1 << 3,
    kClose = 1 << 4,
    kRename = 1 << 5,
    kRemove = 1 << 6,
    kSyncDirectory = 1 << 7,
    kMakeDirectory = 1 << 8,
    kOpenExisting = 1 << 9,  // read, read_no_link and read_write
    kRead = 1 << 10,         // read_at, size
    kMap = 1 << 11,
    kInfo = 1 << 12,
    kList = 1 << 13,
    kLock = 1 << 14,
};
using Ops = std::uint32_t;
inline constexpr Ops kChanges = kOpen | kWrite | kTruncate | kSync | kClose | kRename | kRemove |
                                kSyncDirectory | kMakeDirectory;
inline constexpr Ops kAnyOp = 0x7fff;

struct Fault {
    Ops ops = kChanges;
    std::uint64_t index = 0;  // fails this one of the matching calls from now on, the first is 0
    Code code = Code::io;
    bool sticky = false;  // and every matching call after it
};

class FaultEnv final : public Env {
  public:
    explicit FaultEnv(Env& base = Env::posix(), std::uint64_t seed = 1);

    // --- faults ---
    // A failed write has written a random prefix; a failed sync leaves durable a random part of
    // what was pending and the rest never will be; a failed close has closed; all other failed
    // calls did nothing.
    void fail_call(const Fault& fault);  // several may be armed
    void clear_faults();
    std::uint64_t fault_count() const;  // calls failed by faults so far

    // --- power ---
    // The index-th change (kChanges) from now fails (a write may be part done), and every call
    // after it, of any class, until crash().
    void cut_power_at(std::uint64_t index);
    void cut_power();
    bool has_cut_power() const;
    // Power is back: the real files become what would have survived; faults are cleared.
    void crash();                    // everything unsynced is lost
    void crash(std::uint64_t seed);  // any subset of it survives, in torn 512-byte sectors

    // --- looking ---
    std::uint64_t calls(Ops ops) const;  // made so far, failed ones included
    std::uint64_t bytes_written() const;
    void reset_calls();  // and the bytes
    // Bytes or entries that a crash could lose now.
    bool has_unsynced() const;

    // --- world ---
    void advance(std::chrono::nanoseconds by);  // both clocks
    void set_free_bytes(std::optional<std::uint64_t> bytes);

    Result<std::unique_ptr<File>> open(const Path& path, OpenMode mode) override;
    Result<std::unique_ptr<Mapping>> map(const Path& path) override;
    Result<FileInfo> info(const Path& path) override;
    Result<std::vector<std::string>> list(const Path& directory) override;
    Status make_directory(const Path& path) override;
    Status rename(const Path& from, const Path& to) override;
    Status remove(const Path& path) override;
    Status sync_directory(const Path& path) override;
    Result<std::unique_ptr<FileLock>> lock(const Path& path) override;
    Result<std::uint64_t> free_bytes(const Path& path) override;
    std::chrono::system_clock::time_point now() override;
    std::chrono::steady_clock::time_point steady_now() override;

  private:
    friend class FaultFile;
    struct Armed {
        Fault fault;
        std::uint64_t seen = 0;
    };

    // Counts the call and says whether it must fail. Requires the lock.
    Status enter(Op op, const Path& path);
    Status enter_file(Op op, const Path& path, std::uint64_t generation);
    Status power_is_off(const Path& path) const;
    // The shadow of an existing file, read in if this is the first time.
    Result<ShadowDisk::FilePtr> track(const Path& path);
    void crash_with(std::optional<std::uint64_t> seed);
    static Path normal(const Path& path);

    Env& base_;
    mutable std::mutex mutex_;
    Random random_;
    ShadowDisk disk_;
    std::vector<Armed> faults_;
    std::uint64_t fault_count_ = 0;
    std::optional<std::uint64_t> cut_in_;  // changes until the power goes
    bool is_off_ = false;
    std::uint64_t generation_ = 0;  // crashes so far: older handles are dead
    std::map<Ops, std::uint64_t> calls_;
    std::uint64_t bytes_written_ = 0;
    std::chrono::nanoseconds advanced_{0};
    std::optional<std::uint64_t> free_bytes_;
};

}  // namespace stet::test
