#include "support/fault_env.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/try.h"

namespace stet::test {

class FaultFile final : public File {
  public:
    FaultFile(FaultEnv& env, Env::Path path, std::unique_ptr<File> base, ShadowDisk::FilePtr shadow)
        : env_(env),
          path_(std::move(path)),
          base_(std::move(base)),
          shadow_(std::move(shadow)),
          generation_(env.generation_) {}

    Status read_at(std::uint64_t offset, std::span<std::byte> data) const override {
        const std::lock_guard lock(env_.mutex_);
        STET_TRY(env_.enter_file(kRead, path_, generation_));
        return base_->read_at(offset, data);
    }

    Status write_at(std::uint64_t offset, std::span<const std::byte> data) override {
        const std::lock_guard lock(env_.mutex_);
        const bool was_off = env_.is_off_ || generation_ != env_.generation_;
        const Status fault = env_.enter_file(kWrite, path_, generation_);
        if (!fault.is_ok()) {
            if (!was_off) STET_TRY(write_both(offset, data.first(part_of(data.size()))));
            return fault;
        }
        return write_both(offset, data);
    }

    Result<std::uint64_t> size() const override {
        const std::lock_guard lock(env_.mutex_);
        STET_TRY(env_.enter_file(kRead, path_, generation_));
        return base_->size();
    }

    Status truncate(std::uint64_t size) override {
        const std::lock_guard lock(env_.mutex_);
        STET_TRY(env_.enter_file(kTruncate, path_, generation_));
        STET_TRY(base_->truncate(size));
        if (shadow_ != nullptr) shadow_->truncate(size);
        return {};
    }

    Status sync() override {
        const std::lock_guard lock(env_.mutex_);
        const bool was_off = env_.is_off_ || generation_ != env_.generation_;
        const Status fault = env_.enter_file(kSync, path_, generation_);
        if (!fault.is_ok()) {
            // With the power gone there is no "later" for which to settle what was written.
            if (shadow_ != nullptr && !was_off && !env_.is_off_) shadow_->fail_sync(env_.random_);
            return fault;
        }
        if (shadow_ != nullptr) shadow_->sync();  // a real fdatasync would only cost test time
        return {};
    }

    Status close() override {
        const std::lock_guard lock(env_.mutex_);
        const Status fault = env_.enter_file(kClose, path_, generation_);
        STET_TRY(base_->close());
        return fault;
    }

  private:
    std::size_t part_of(std::size_t size) {
        return static_cast<std::size_t>(env_.random_() % (size + 1));
    }
    Status write_both(std::uint64_t offset, std::span<const std::byte> data) {
        STET_TRY(base_->write_at(offset, data));
        env_.bytes_written_ += data.size();
        if (shadow_ != nullptr) shadow_->write(offset, data);
        return {};
    }

    FaultEnv& env_;
    Env::Path path_;
    std::unique_ptr<File> base_;
    ShadowDisk::FilePtr shadow_;  // null when opened for reading
    std::uint64_t generation_;
};

FaultEnv::FaultEnv(Env& base, std::uint64_t seed) : base_(base), random_(seed) {}

void FaultEnv::fail_call(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    faults_.push_back({fault});
}

void FaultEnv::clear_faults() {
    const std::lock_guard lock(mutex_);
    faults_.clear();
}

std::uint64_t FaultEnv::fault_count() const {
    const std::lock_guard lock(mutex_);
    return fault_count_;
}

void FaultEnv::cut_power_at(std::uint64_t index) {
    const std::lock_guard lock(mutex_);
    cut_in_ = index;
}

void FaultEnv::cut_power() {
    const std::lock_guard lock(mutex_);
    is_off_ = true;
}

bool FaultEnv::has_cut_power() const {
    const std::lock_guard lock(mutex_);
    return is_off_;
}

void FaultEnv::crash() {
    crash_with(std::nullopt);
}
void FaultEnv::crash(std::uint64_t seed) {
    crash_with(seed);
}

std::uint64_t FaultEnv::calls(Ops ops) const {
    const std::lock_guard lock(mutex_);
    std::uint64_t total = 0;
    for (const auto& [op, count] : calls_) {
        if ((op & ops) != 0) total += count;
    }
    return total;
}

void FaultEnv::reset_calls() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
    bytes_written_ = 0;
}

std::uint64_t FaultEnv::bytes_written() const {
    const std::lock_guard lock(mutex_);
    return bytes_written_;
}

bool FaultEnv::has_unsynced() const {
    const std::lock_guard lock(mutex_);
    return disk_.has_unsynced();
}

void FaultEnv::advance(std::chrono::nanoseconds by) {
    const std::lock_guard lock(mutex_);
    advanced_ += by;
}

void FaultEnv::set_free_bytes(std::optional<std::uint64_t> bytes) {
    const std::lock_guard lock(mutex_);
    free_bytes_ = bytes;
}

Result<std::unique_ptr<File>> FaultEnv::open(const Path& path, OpenMode mode) {
    const std::lock_guard lock(mutex_);
    const Path name = normal(path);
    const bool may_make = mode == OpenMode::create || mode == OpenMode::create_new;
    STET_TRY(enter(may_make ? kOpen : kOpenExisting, path));
    const bool is_new = may_make && base_.info(name).status().code() == Code::not_found;
    STET_ASSIGN(auto file, base_.open(path, mode));
    ShadowDisk::FilePtr shadow;
    if (is_new) {
        shadow = disk_.create(name);
    } else if (mode != OpenMode::read && mode != OpenMode::read_no_link) {
        STET_ASSIGN(shadow, track(name));
    }
    return std::unique_ptr<File>(
        std::make_unique<FaultFile>(*this, path, std::move(file), std::move(shadow)));
}

Result<std::unique_ptr<Mapping>> FaultEnv::map(const Path& path) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kMap, path));
    return base_.map(path);
}

Result<FileInfo> FaultEnv::info(const Path& path) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kInfo, path));
    return base_.info(path);
}

Result<std::vector<std::string>> FaultEnv::list(const Path& directory) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kList, directory));
    return base_.list(directory);
}

Status FaultEnv::make_directory(const Path& path) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kMakeDirectory, path));
    return base_.make_directory(path);
}

Status FaultEnv::rename(const Path& from, const Path& to) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kRename, from));
    STET_ASSIGN(const FileInfo source, base_.info(from));
    if (source.is_directory) {
        return Status(Code::unimplemented,
                      fmt::format("{}: FaultEnv doesn't rename directories", from.native()));
    }
    STET_TRY(track(normal(from)).status());
    if (base_.info(to).is_ok()) STET_TRY(track(normal(to)).status());
    STET_TRY(base_.rename(from, to));
    disk_.rename(normal(from), normal(to));
    return {};
}

Status FaultEnv::remove(const Path& path) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kRemove, path));
    const auto target = base_.info(path);
    if (target.is_ok() && !target->is_directory) STET_TRY(track(normal(path)).status());
    STET_TRY(base_.remove(path));
    disk_.remove(normal(path));
    return {};
}

Status FaultEnv::sync_directory(const Path& path) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kSyncDirectory, path));
    disk_.sync_directory(normal(path));
    return {};
}

Result<std::unique_ptr<FileLock>> FaultEnv::lock(const Path& path) {
    const std::lock_guard guard(mutex_);
    STET_TRY(enter(kLock, path));
    return base_.lock(path);
}

Result<std::uint64_t> FaultEnv::free_bytes(const Path& path) {
    const std::lock_guard lock(mutex_);
    STET_TRY(enter(kInfo, path));
    if (free_bytes_) return *free_bytes_;
    return base_.free_bytes(path);
}

std::chrono::system_clock::time_point FaultEnv::now() {
    const std::lock_guard lock(mutex_);
    return base_.now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(advanced_);
}

std::chrono::steady_clock::time_point FaultEnv::steady_now() {
    const std::lock_guard lock(mutex_);
    return base_.steady_now() + advanced_;
}

Status FaultEnv::power_is_off(const Path& path) const {
    return Status(Code::io, fmt::format("{}: the power is off", path.native()));
}

Status FaultEnv::enter(Op op, const Path& path) {
    ++calls_[op];
    if (is_off_) return power_is_off(path);
    if ((op & kChanges) != 0 && cut_in_) {
        if (*cut_in_ == 0) {
            cut_in_.reset();
            is_off_ = true;
            return power_is_off(path);
        }
        --*cut_in_;
    }
    Status status;
    for (Armed& armed : faults_) {
        if ((op & armed.fault.ops) == 0) continue;
        const std::uint64_t index = armed.seen++;
        const bool fires =
            index == armed.fault.index || (armed.fault.sticky && index > armed.fault.index);
        if (!fires || !status.is_ok()) continue;
        ++fault_count_;
        status = Status(armed.fault.code, fmt::format("{}: injected fault", path.native()));
    }
    return status;
}

Status FaultEnv::enter_file(Op op, const Path& path, std::uint64_t generation) {
    if (generation != generation_) return power_is_off(path);
    return enter(op, path);
}

Result<ShadowDisk::FilePtr> FaultEnv::track(const Path& path) {
    if (auto known = disk_.find(path)) return known;
    STET_ASSIGN(const FileInfo info, base_.info(path));
    STET_ASSIGN(Bytes content, read_file(base_, path, info.size_bytes));
    return disk_.adopt(path, std::move(content));
}

void FaultEnv::crash_with(std::optional<std::uint64_t> seed) {
    const std::lock_guard lock(mutex_);
    const ShadowDisk::Outcome outcome = disk_.crash(seed);
    for (const Path& path : outcome.gone) static_cast<void>(base_.remove(path));
    for (const auto& [path, content] : outcome.files) {
        // A new file, so that mappings of the old one keep what they show.
        static_cast<void>(base_.remove(path));
        STET_CHECK(base_.make_directory(path.parent_path()).is_ok());
        auto file = base_.open(path, OpenMode::create_new);
        STET_CHECK(file.is_ok());
        STET_CHECK((*file)->write_at(0, content).is_ok());
    }
    faults_.clear();
    cut_in_.reset();
    is_off_ = false;
    ++generation_;
}

Env::Path FaultEnv::normal(const Path& path) {
    Path absolute = std::filesystem::absolute(path.empty() ? Path(".") : path).lexically_normal();
    return absolute.has_filename() ? absolute : absolute.parent_path();
}

}  // namespace stet::test
