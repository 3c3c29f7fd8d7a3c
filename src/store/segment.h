// Segment files: the bytes of the store, appended and never changed.
//
// A segment is `segments/NNNNNNNN.seg`, NNNNNNNN its number in decimal. Integers are little-endian.
//
//   segment := header, record*                      record := header, payload, filling
//
//   segment header, 128 bytes                       record header, 128 bytes
//     0   8  magic "stet.seg"                         0   8  magic "stet.rec"
//     8   4  version, 1                               8   8  number of the segment
//    12   4  0                                       16   8  offset of the record in the segment
//    16   8  number of the segment                   24   8  bytes of the payload
//    24  88  0                                       32  32  key
//   112  16  XXH3-128 of bytes 0 to 111              64  16  XXH3-128 of the payload
//                                                    80  12  nonce } of a sealed payload, else 0
//                                                    92  16  tag   }
//                                                   108   4  0
//                                                   112  16  XXH3-128 of bytes 0 to 111
//
// Records begin at multiples of 64 bytes; the filling between a payload and the next record is 0
// and means nothing.
//
// A record is valid iff
//   (1) a row of the catalogue names it: key, segment, offset, payload bytes, payload checksum;
//   (2) the segment's header is whole, of a known version, and has the number of the file's name;
//   (3) the record's header is whole: magic and checksum fit;
//   (4) every field of the record's header equals what the row says;
//   (5) the checksum of the payload equals the header's;
//   (6) in a sealed store: nonce and tag open the payload for this key and size (sealing.h).
// In a sealed store payloads are ciphertext; checksums are of what lies on disk.
// So a record that moved, was exchanged with another, or stems from another file is as invalid as a
// damaged one. Bytes that no row names mean nothing, whatever they look like: nothing ever scans a
// segment to find out what was committed.
//
// Rules of writing
//   - Bytes that a row names, or may come to name, are never written again.
//   - A row names a record only after the segment was synced, and the directory when it is new.
//   - After a failed sync the segment is closed to further records. What was written since the last
//     successful one counts as lost and is never synced again.
//   - A segment whose tail no row names (a commit that never finished) is not appended to after a
//     restart.
//
// Thread rules: one thread at a time (the store's mutex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/env.h"
#include "base/hash.h"
#include "base/try.h"
#include "stet/status.h"
#include "store/disk_budget.h"
#include "store/sealing.h"

namespace stet::store {

inline constexpr std::uint64_t kSegmentHeaderBytes = 128;
inline constexpr std::uint64_t kRecordHeaderBytes = 128;
inline constexpr std::uint64_t kRecordAlignment = 64;

// Where a record is and what it must hold.
struct Place {
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t size_bytes = 0;  // of the payload
    Hash128 checksum;              // of the payload

    // First byte after the record and its filling.
    std::uint64_t end() const {
        const std::uint64_t last = offset + kRecordHeaderBytes + size_bytes;
        return (last + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
    }
    bool operator==(const Place&) const = default;
};

std::string segment_name(std::uint64_t number);
// The number of a segment's file name; 0 if it isn't one.
std::uint64_t segment_number(std::string_view name);

// Reads records and proves that they are valid.
class SegmentReader {
  public:
    // `sealing` outlives the reader.
    SegmentReader(Env& env, std::filesystem::path directory, const Sealing& sealing)
        : env_(&env), directory_(std::move(directory)), sealing_(&sealing) {}

    // The payload, in `buffer`, which grows as needed. corruption says which rule is broken, with
    // segment and offset; a segment that isn't there is corruption, too.
    Result<std::span<const std::byte>> read(const Hash256& key, const Place& place,
                                            std::vector<std::byte>& buffer);
    // The same in two parts, so that payloads can be read by several threads at once: where the
    // record is, then its payload, of exactly place.size_bytes, into memory of the caller's.
    struct Found {
        std::shared_ptr<const File> file;
        const Sealing* sealing = nullptr;
        Hash256 key;
        Place place;
    };
    Result<Found> find(const Hash256& key, const Place& place);
    static Status read(const Found& found, std::span<std::byte> payload);
    // Closes files, for instance before one is removed.
    void forget() { files_.clear(); }

  private:
    Result<std::shared_ptr<const File>> file(std::uint64_t number);

    Env* env_;
    std::filesystem::path directory_;
    const Sealing* sealing_;
    std::unordered_map<std::uint64_t, std::shared_ptr<const File>> files_;
};

// Appends the records of one commit at a time:
//   append()* -> sync() -> the catalogue names them -> keep()
// and on any failure discard().
class SegmentWriter {
  public:
    // Continues segment `number` at `named_end` if the file ends there, else begins new ones with
    // numbers from `next_number` on. `sealing` outlives the writer.
    static Result<SegmentWriter> open(Env& env, std::filesystem::path directory,
                                      std::uint64_t number, std::uint64_t named_end,
                                      std::uint64_t next_number, std::uint64_t segment_bytes,
                                      const Sealing& sealing, DiskBudget* budget = nullptr);

    // `fill` writes the payload into the span that it gets.
    template <typename Fill>
    Result<Place> append(const Hash256& key, std::uint64_t size_bytes, Fill&& fill) {
        STET_ASSIGN(const std::span<std::byte> payload, reserve(size_bytes));
        fill(payload);
        return seal(key, payload);
    }
    // Everything appended is on stable storage when it returns ok.
    Status sync();
    // The appended records are named, or may come to be: their bytes stay.
    void keep();
    // They are not and never will be: gives their space back as far as possible.
    void discard() noexcept;

    // The next record begins a new segment. Not while records are appended and not kept.
    void rotate();
    // The segment that the next record may go into; 0 when that will be a new one.
    std::uint64_t number() const { return number_; }

  private:
    SegmentWriter(Env& env, std::filesystem::path directory, std::uint64_t next_number,
                  std::uint64_t segment_bytes, const Sealing& sealing, DiskBudget* budget)
        : env_(&env),
          directory_(std::move(directory)),
          next_number_(next_number),
          segment_bytes_(segment_bytes),
          sealing_(&sealing),
          budget_(budget) {}

    Status begin_segment();
    Result<std::span<std::byte>> reserve(std::uint64_t size_bytes);
    Result<Place> seal(const Hash256& key, std::span<std::byte> payload);
    Status flush();
    void close_segment() noexcept;

    Env* env_;
    std::filesystem::path directory_;
    std::uint64_t next_number_;
    std::uint64_t segment_bytes_;
    const Sealing* sealing_;
    DiskBudget* budget_;  // may be null

    std::unique_ptr<File> file_;  // null: the next record begins a segment
    std::uint64_t number_ = 0;
    bool is_new_ = false;              // its name in the directory was never synced
    std::uint64_t charged_bytes_ = 0;  // to the budget, for what is not kept yet
    bool is_doubtful_ = false;     // a write or sync failed: nothing more may go into this segment
    std::uint64_t kept_end_ = 0;   // bytes before it are never written again
    std::uint64_t buffer_at_ = 0;  // offset of the buffer in the segment
    std::vector<std::byte> buffer_;
};

// Gives appended records up unless keep() is called.
class Unnamed {
  public:
    explicit Unnamed(SegmentWriter& writer) : writer_(&writer) {}
    ~Unnamed() {
        if (writer_ != nullptr) writer_->discard();
    }
    Unnamed(const Unnamed&) = delete;
    Unnamed& operator=(const Unnamed&) = delete;
    void keep() {
        writer_->keep();
        writer_ = nullptr;
    }

  private:
    SegmentWriter* writer_;
};

}  // namespace stet::store
