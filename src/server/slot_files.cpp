#include "server/slot_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/stopwatch.h"
#include "base/try.h"
#include "engine/import_state.h"
#include "state/encode.h"
#include "text/unicode.h"

namespace stet::server {
namespace {

constexpr std::size_t kTasksMax = 256;

bool is_forbidden(char c) {
    constexpr std::string_view kForbidden = "/\\:*?\"<>|";
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F || kForbidden.find(c) != std::string_view::npos;
}

}  // namespace

Status check_file_name(std::string_view name) {
    constexpr std::size_t kNameMax = 255;
    const auto wrong = [](std::string_view why) {
        return Status(Code::invalid_argument, fmt::format("Invalid filename: {}", why));
    };
    if (name.empty() || name.size() > kNameMax) return wrong("it must have 1 to 255 bytes");
    if (std::any_of(name.begin(), name.end(), is_forbidden)) {
        return wrong("it has a separator, a control character or one of :*?\"<>|");
    }
    if (text::utf8_valid_prefix(name) != name.size()) return wrong("it is not UTF-8");
    if (name.front() == ' ' || name.back() == ' ') return wrong("it begins or ends with a space");
    if (name.front() == '.' || name.back() == '.') return wrong("it begins or ends with a dot");
    return {};
}

Result<std::unique_ptr<SlotFiles>> SlotFiles::open(Env& env, const std::filesystem::path& directory,
                                                   const std::vector<std::string>& tenants,
                                                   engine::Engine& engine,
                                                   state::Identity identity) {
    std::error_code error;
    const auto real = std::filesystem::canonical(directory, error);
    if (error) {
        return Status(Code::invalid_argument, fmt::format("--slot-save-path {} can't be used: {}",
                                                          directory.string(), error.message()));
    }
    STET_ASSIGN(const FileInfo info, env.info(real));
    if (!info.is_directory || access(real.c_str(), W_OK | X_OK) != 0) {
        return Status(Code::invalid_argument,
                      fmt::format("--slot-save-path {} is no directory that can be written to",
                                  directory.string()));
    }
    std::unique_ptr<SlotFiles> files(new SlotFiles(env, real, engine, std::move(identity)));
    if (tenants.size() > 1) STET_TRY(files->make_folders(tenants));
    files->thread_ = std::thread([raw = files.get()] { raw->work(); });
    return Result<std::unique_ptr<SlotFiles>>(std::move(files));
}

Status SlotFiles::make_folders(const std::vector<std::string>& tenants) {
    has_folders_ = true;
    for (const std::string& tenant : tenants) {
        const std::filesystem::path folder = path_of(tenant, "");
        // Whoever may write to the directory could have put a link there.
        const bool is_made = ::mkdir(folder.c_str(), 0700) == 0;
        const int error = errno;
        struct stat facts {};
        const bool is_folder =
            is_made || (error == EEXIST && ::lstat(folder.c_str(), &facts) == 0 &&
                        S_ISDIR(facts.st_mode) && ::access(folder.c_str(), W_OK | X_OK) == 0);
        if (!is_folder) {
            return Status(Code::invalid_argument,
                          fmt::format("--slot-save-path: {} can't be used as a folder: {}",
                                      folder.string(), std::strerror(error)));
        }
        if (is_made) STET_TRY(env_.sync_directory(directory_));
    }
    return {};
}

std::filesystem::path SlotFiles::path_of(const std::string& tenant, const std::string& name) const {
    constexpr std::size_t kShownId = 16;
    if (!has_folders_) return directory_ / name;
    const std::filesystem::path folder = directory_ / ("tenant-" + tenant.substr(0, kShownId));
    return name.empty() ? folder : folder / name;
}

SlotFiles::~SlotFiles() {
    stop();
}

void SlotFiles::stop() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
}

Status SlotFiles::push(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        if (is_stopping_ || tasks_.size() >= kTasksMax) {
            return Status(Code::unavailable, "too many slot files are waiting; try again later");
        }
        tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
    return {};
}

void SlotFiles::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        const std::function<void()> task = std::exchange(tasks_.front(), nullptr);
        tasks_.pop_front();
        lock.unlock();
        task();
        lock.lock();
    }
}

Status SlotFiles::save(const std::string& tenant, std::string name, state::Sequence sequence,
                       std::function<void(Result<SlotFile>)> done) {
    STET_TRY(check_file_name(name));
    return push([this, tenant, name = std::move(name), sequence = std::move(sequence),
                 done = std::move(done)] { done(save_now(tenant, name, sequence)); });
}

Status SlotFiles::restore(const std::string& tenant, std::string name,
                          std::function<void(Result<RestoredSlot>)> done) {
    STET_TRY(check_file_name(name));
    return push([this, tenant, name = std::move(name), done = std::move(done)] {
        done(restore_now(tenant, name));
    });
}

Result<SlotFile> SlotFiles::save_now(const std::string& tenant, const std::string& name,
                                     const state::Sequence& sequence) {
    STET_TRY(check_file_name(name));
    const Stopwatch watch;
    state::Saved saved;
    saved.identity = identity_;
    saved.pool = &engine_.pool();
    saved.kind = state::SavedKind::sequence;
    saved.entries.push_back({0, sequence});
    SlotFile result;
    result.tokens = sequence.position();
    const Status status = replace_file(env_, path_of(tenant, name), [&](File& file) -> Status {
        state::FileSink sink(file);
        STET_ASSIGN(result.bytes, state::encode(saved, sink));
        return {};
    });
    if (!status) return status.with_context("Unable to save slot");
    result.ms = watch.ms();
    return result;
}

Result<state::Sequence> SlotFiles::read(const File& file, std::uint64_t size_bytes,
                                        const std::string& name) {
    constexpr std::size_t kMagicBytes = sizeof(state::format::kMagic);
    std::array<std::byte, kMagicBytes> magic{};
    STET_TRY(
        file.read_at(0, std::span(magic).first(std::min<std::uint64_t>(kMagicBytes, size_bytes))));
    if (std::memcmp(magic.data(), state::format::kMagic, kMagicBytes) == 0) {
        state::FileSource source(file, size_bytes);
        STET_ASSIGN(auto saved, state::decode(source, state::SavedKind::sequence, identity_,
                                              engine_.limits(1), engine_.pool()));
        return std::move(saved.entries.front().sequence);
    }
    std::vector<std::byte> data(size_bytes);
    STET_TRY(file.read_at(0, data));
    STET_ASSIGN(auto imported, engine::import_state(engine_, data, name));
    if (imported.sequences.size() != 1) {
        return Status(Code::invalid_argument, fmt::format("{} holds {} sequences, a slot one", name,
                                                          imported.sequences.size()));
    }
    return std::move(imported.sequences.front().sequence);
}

Result<std::uint64_t> SlotFiles::write_file(const std::string& tenant, const std::string& name,
                                            const std::function<Status(state::Sink&)>& write) {
    STET_TRY(check_file_name(name));
    std::uint64_t written = 0;
    const Status status = replace_file(env_, path_of(tenant, name), [&](File& file) {
        state::FileSink sink(file);
        Status done = write(sink);
        written = sink.written();
        return done;
    });
    if (!status) return status;
    return written;
}

Result<SlotFiles::Opened> SlotFiles::open_file(const std::string& tenant, const std::string& name) {
    STET_TRY(check_file_name(name));
    Opened opened;
    STET_ASSIGN(opened.file, env_.open(path_of(tenant, name), OpenMode::read_no_link));
    STET_ASSIGN(opened.size_bytes, opened.file->size());
    return opened;
}

Result<RestoredSlot> SlotFiles::restore_now(const std::string& tenant, const std::string& name) {
    STET_TRY(check_file_name(name));
    const Stopwatch watch;
    const auto in_context = [](const Status& status) {
        return status.with_context("Unable to restore slot");
    };
    RestoredSlot restored;
    const auto opened = open_file(tenant, name);
    if (!opened) return in_context(opened.status());
    auto sequence = read(*opened->file, opened->size_bytes, name);
    if (!sequence) return in_context(sequence.status());
    restored.sequence = std::move(sequence).value();
    restored.file = {restored.sequence.position(), opened->size_bytes, watch.ms()};
    return restored;
}

}  // namespace stet::server
