#include "store/disk_budget.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/try.h"

namespace stet::store {
namespace {

constexpr std::uint64_t kReserveMinBytes = 256 << 10;
constexpr std::uint64_t kReserveMaxBytes = 8 << 20;
constexpr std::uint64_t kReserveOfLimit = 8;  // one part in
constexpr std::uint64_t kLogMinBytes = 128 << 10;
constexpr std::uint64_t kLogMaxBytes = 4 << 20;
constexpr std::uint64_t kLogOfLimit = 32;

}  // namespace

DiskBudget::DiskBudget(Env& env, std::filesystem::path directory, std::uint64_t limit_bytes,
                       std::uint64_t floor_bytes)
    : env_(&env),
      directory_(std::move(directory)),
      limit_bytes_(limit_bytes),
      floor_bytes_(floor_bytes) {}

std::uint64_t DiskBudget::log_bytes_wanted() const {
    if (limit_bytes_ == 0) return kLogMaxBytes;
    return std::clamp(limit_bytes_ / kLogOfLimit, kLogMinBytes, kLogMaxBytes);
}

std::uint64_t DiskBudget::reserve_bytes() const {
    if (shrinking_ != 0 || limit_bytes_ == 0) return 0;
    return std::clamp(limit_bytes_ / kReserveOfLimit, kReserveMinBytes, kReserveMaxBytes);
}

std::uint64_t DiskBudget::used_bytes() const {
    return file_bytes() + log_content_;
}

std::uint64_t DiskBudget::file_bytes() const {
    return segment_bytes_ + catalogue_bytes();
}

Status DiskBudget::count_segments() {
    const std::filesystem::path segments = directory_ / "segments";
    std::uint64_t bytes = 0;
    STET_ASSIGN(const std::vector<std::string> names, env_->list(segments));
    for (const std::string& name : names) {
        const Result<FileInfo> info = env_->info(segments / name);
        if (info.status().code() == Code::not_found) continue;
        STET_TRY(info.status());
        bytes += info->size_bytes;
    }
    segment_bytes_ = bytes;
    return {};
}

Result<bool> DiskBudget::keeps_floor(std::uint64_t bytes) {
    if (floor_bytes_ == 0) return true;
    STET_ASSIGN(const std::uint64_t free, env_->free_bytes(directory_));
    return free >= floor_bytes_ && free - floor_bytes_ >= bytes;
}

// The floor is looked at by has_room() only: whoever shrinks the store must be able to below it.
bool DiskBudget::admit(std::uint64_t used_after, std::uint64_t bytes) {
    bool fits = limit_bytes_ == 0 || used_after + reserve_bytes() <= limit_bytes_;
    if (fits && shrinking_ == 0) {
        const Result<bool> keeps = keeps_floor(bytes);
        fits = keeps.is_ok() && *keeps;
    }
    was_refused_ = was_refused_ || !fits;
    return fits;
}

bool DiskBudget::grow_segments(std::uint64_t bytes) {
    if (is_bounded() && !admit(used_bytes() + bytes, bytes)) return false;
    segment_bytes_ += bytes;
    return true;
}

void DiskBudget::shrink_segments(std::uint64_t bytes) {
    segment_bytes_ -= std::min(segment_bytes_, bytes);
}

// SQLite begins a log that was emptied anew at its start, and writes on from there.
bool DiskBudget::write_log(std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t content = begin == 0 ? end : std::max(log_content_, end);
    const std::uint64_t size = std::max(log_bytes_, end);
    if (is_bounded()) {
        const std::uint64_t used = used_bytes() - log_content_ - log_bytes_ + content + size;
        if (!admit(used, end - begin)) return false;
    }
    log_content_ = content;
    log_bytes_ = size;
    bytes_written_ += end - begin;
    return true;
}

void DiskBudget::set_log_size(std::uint64_t bytes) {
    log_bytes_ = bytes;
    log_content_ = bytes;
}

void DiskBudget::grow_catalogue(std::uint64_t end) {
    catalogue_bytes_ = std::max(catalogue_bytes_, end);
}

void DiskBudget::grow_shared(std::uint64_t end) {
    shared_bytes_ = std::max(shared_bytes_, end);
}

Result<bool> DiskBudget::has_room(std::uint64_t bytes) {
    if (limit_bytes_ != 0) {
        const std::uint64_t used = used_bytes() + reserve_bytes();
        if (used > limit_bytes_ || limit_bytes_ - used < bytes) return false;
    }
    return keeps_floor(bytes);
}

bool DiskBudget::take_refused() {
    const bool was_refused = was_refused_;
    was_refused_ = false;
    return was_refused;
}

}  // namespace stet::store
