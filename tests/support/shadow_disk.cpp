#include "support/shadow_disk.h"

#include <algorithm>

namespace stet::test {
namespace {

constexpr std::uint64_t kSectorBytes = 512;

bool flip(Random& random) {
    return (random() & 1) != 0;
}

void overwrite(Bytes& content, std::uint64_t offset, std::span<const std::byte> data) {
    if (content.size() < offset + data.size()) content.resize(offset + data.size());
    std::copy(data.begin(), data.end(), content.begin() + static_cast<std::ptrdiff_t>(offset));
}

}  // namespace

void ShadowFile::write(std::uint64_t offset, std::span<const std::byte> data) {
    if (!data.empty()) pending_.push_back({false, offset, Bytes(data.begin(), data.end())});
}

void ShadowFile::truncate(std::uint64_t size) {
    pending_.push_back({true, size, {}});
}

void ShadowFile::sync() {
    for (const Change& change : pending_) apply(durable_, change, nullptr);
    pending_.clear();
}

void ShadowFile::fail_sync(Random& random) {
    durable_ = after_crash(&random);
    pending_.clear();
}

Bytes ShadowFile::after_crash(Random* random) const {
    Bytes content = durable_;
    if (random == nullptr) return content;
    for (const Change& change : pending_) apply(content, change, random);
    return content;
}

// torn_by null: the whole change; otherwise each of its sectors by the toss of a coin.
void ShadowFile::apply(Bytes& content, const Change& change, Random* torn_by) {
    if (change.is_truncation) {
        if (torn_by == nullptr || flip(*torn_by)) content.resize(change.at);
        return;
    }
    if (torn_by == nullptr) return overwrite(content, change.at, change.data);
    const std::uint64_t end = change.at + change.data.size();
    for (std::uint64_t at = change.at; at < end;) {
        const std::uint64_t sector_end = std::min(end, (at / kSectorBytes + 1) * kSectorBytes);
        const auto piece = std::span(change.data).subspan(at - change.at, sector_end - at);
        if (flip(*torn_by)) overwrite(content, at, piece);
        at = sector_end;
    }
}

ShadowDisk::FilePtr ShadowDisk::find(const Path& path) const {
    const auto directory = directories_.find(path.parent_path());
    if (directory == directories_.end()) return nullptr;
    const auto entry = directory->second.live.find(path.filename().native());
    return entry == directory->second.live.end() ? nullptr : entry->second;
}

ShadowDisk::FilePtr ShadowDisk::adopt(const Path& path, Bytes content) {
    Directory& directory = directories_[path.parent_path()];
    auto file = std::make_shared<ShadowFile>(std::move(content));
    directory.live[path.filename()] = file;
    directory.durable[path.filename()] = file;
    return file;
}

ShadowDisk::FilePtr ShadowDisk::create(const Path& path) {
    Directory& directory = directories_[path.parent_path()];
    auto file = std::make_shared<ShadowFile>(Bytes());
    directory.live[path.filename()] = file;
    directory.pending.push_back({path.filename(), file, {}});
    return file;
}

void ShadowDisk::rename(const Path& from, const Path& to) {
    const FilePtr file = find(from);
    if (file == nullptr || from == to) return;
    const bool is_one_step = from.parent_path() == to.parent_path();
    if (!is_one_step) remove(from);
    Directory& directory = directories_[to.parent_path()];
    directory.pending.push_back(
        {to.filename(), file, is_one_step ? from.filename().native() : std::string()});
    apply(directory.live, directory.pending.back());
}

void ShadowDisk::remove(const Path& path) {
    if (find(path) == nullptr) return;
    Directory& directory = directories_[path.parent_path()];
    directory.pending.push_back({path.filename(), nullptr, {}});
    apply(directory.live, directory.pending.back());
}

void ShadowDisk::sync_directory(const Path& path) {
    const auto found = directories_.find(path);
    if (found == directories_.end()) return;
    found->second.durable = found->second.live;
    found->second.pending.clear();
}

bool ShadowDisk::has_unsynced() const {
    for (const auto& [path, directory] : directories_) {
        if (!directory.pending.empty()) return true;
        for (const auto& [name, file] : directory.live) {
            if (file->has_unsynced()) return true;
        }
    }
    return false;
}

ShadowDisk::Outcome ShadowDisk::crash(std::optional<std::uint64_t> seed) {
    Random random(seed.value_or(0));
    Outcome outcome;
    for (auto& [path, directory] : directories_) {
        Entries survivors = directory.durable;
        for (const EntryChange& change : directory.pending) {
            if (seed && flip(random)) apply(survivors, change);
        }
        for (const auto* entries : {&directory.live, &directory.durable}) {
            for (const auto& [name, file] : *entries) outcome.gone.push_back(path / name);
        }
        for (const auto& [name, file] : survivors) {
            outcome.files[path / name] = file->after_crash(seed ? &random : nullptr);
        }
    }
    directories_.clear();
    for (const auto& [path, content] : outcome.files) adopt(path, content);
    return outcome;
}

void ShadowDisk::apply(Entries& entries, const EntryChange& change) {
    if (change.file == nullptr) {
        entries.erase(change.name);
        return;
    }
    entries[change.name] = change.file;
    // Only the name of this very file: the lost change may have been what freed it.
    const auto old = entries.find(change.gone_name);
    if (old != entries.end() && old->second == change.file) entries.erase(old);
}

}  // namespace stet::test
