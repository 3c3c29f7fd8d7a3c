// What the directory of a store may take on its disk: a hard bound.
//
// Every byte that makes a file grow is asked for before it is written: segments by the writer of
// segments, the catalogue and SQLite's log by metered_vfs.h. What counts:
//
//   segments + catalogue + log + content of the log + shared memory <= limit
//
// The content of the log counts twice, because a checkpoint copies it into the catalogue; therefore
// a checkpoint is never refused, and the sum is a bound of what the files take at any moment.
//
// A reserve is kept from whatever makes the store larger, so that evicting, collecting and removing
// find room for the log entries that they need.
//
// Thread rules: one thread at a time (whoever writes to the store).
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/env.h"
#include "stet/status.h"

namespace stet::store {

class DiskBudget {
  public:
    static constexpr std::uint64_t kLimitMinBytes = 1 << 20;

    // 0: no such bound. `limit_bytes` is at least kLimitMinBytes.
    DiskBudget(Env& env, std::filesystem::path directory, std::uint64_t limit_bytes,
               std::uint64_t floor_bytes);

    bool is_bounded() const { return limit_bytes_ != 0 || floor_bytes_ != 0; }
    std::uint64_t limit_bytes() const { return limit_bytes_; }
    std::uint64_t floor_bytes() const { return floor_bytes_; }
    // Longest log between two checkpoints.
    std::uint64_t log_bytes_wanted() const;

    // Counts the segments that are there. Others than the writer's own changes need it again.
    Status count_segments();
    // False, and noted, when `bytes` more don't fit; else they count from now on.
    bool grow_segments(std::uint64_t bytes);
    void shrink_segments(std::uint64_t bytes);

    // For metered_vfs.h. `end` is where a write ends.
    bool write_log(std::uint64_t begin, std::uint64_t end);
    void set_log_size(std::uint64_t bytes);
    void grow_catalogue(std::uint64_t end);
    void set_catalogue_size(std::uint64_t bytes) { catalogue_bytes_ = bytes; }
    void grow_shared(std::uint64_t end);
    void count_sync() { ++syncs_; }

    // Whether `bytes` more fit, less the reserve, now.
    Result<bool> has_room(std::uint64_t bytes);
    std::uint64_t used_bytes() const;  // of the bound
    // Files of the directory together, and of the catalogue with its log.
    std::uint64_t file_bytes() const;
    std::uint64_t catalogue_bytes() const { return catalogue_bytes_ + log_bytes_ + shared_bytes_; }
    std::uint64_t segment_bytes() const { return segment_bytes_; }

    // Bytes written to and syncs of the catalogue and its log since the store was opened.
    std::uint64_t bytes_written() const { return bytes_written_; }
    std::uint64_t sync_count() const { return syncs_; }
    // Whether something was refused since the last call.
    bool take_refused();

    // While one exists the reserve may be used.
    class Shrinking {
      public:
        explicit Shrinking(DiskBudget& budget) : budget_(budget) { ++budget_.shrinking_; }
        ~Shrinking() { --budget_.shrinking_; }
        Shrinking(const Shrinking&) = delete;
        Shrinking& operator=(const Shrinking&) = delete;

      private:
        DiskBudget& budget_;
    };

  private:
    std::uint64_t reserve_bytes() const;
    bool admit(std::uint64_t used_after, std::uint64_t bytes);
    Result<bool> keeps_floor(std::uint64_t bytes);

    Env* env_;
    std::filesystem::path directory_;
    std::uint64_t limit_bytes_;
    std::uint64_t floor_bytes_;
    std::uint64_t segment_bytes_ = 0;
    std::uint64_t catalogue_bytes_ = 0;
    std::uint64_t log_bytes_ = 0;    // of the file
    std::uint64_t log_content_ = 0;  // of it, what may not be in the catalogue yet
    std::uint64_t shared_bytes_ = 0;
    std::uint64_t bytes_written_ = 0;
    std::uint64_t syncs_ = 0;
    int shrinking_ = 0;
    bool was_refused_ = false;
};

}  // namespace stet::store
