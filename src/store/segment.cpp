#include "store/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"

namespace stet::store {
namespace {

constexpr std::string_view kSegmentMagic = "stet.seg";
constexpr std::string_view kRecordMagic = "stet.rec";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kCheckedHeaderBytes = 112;  // of both headers; then their checksum
constexpr std::size_t kNameDigits = 8;
constexpr std::size_t kSealAt = 80;  // in the header of a record
constexpr std::string_view kNameEnd = ".seg";
constexpr std::uint64_t kBufferBytes = 4U << 20;  // what is written at once
constexpr std::size_t kOpenFiles = 64;            // kept open for reading
constexpr std::uint64_t kLargestOffset = std::uint64_t{1} << 62;

static_assert(kSegmentHeaderBytes == kCheckedHeaderBytes + sizeof(Hash128));
static_assert(kRecordHeaderBytes == kCheckedHeaderBytes + sizeof(Hash128));

// Fills a header up with zeroes and adds its checksum.
std::vector<std::byte> completed(Writer writer) {
    std::vector<std::byte> header = writer.take();
    header.resize(kCheckedHeaderBytes);
    const Hash128 checksum = xxh3_128(header);
    const auto bytes = std::as_bytes(std::span(checksum.bytes));
    header.insert(header.end(), bytes.begin(), bytes.end());
    return header;
}

// The seal in the header of a record.
Seal seal_of(std::span<const std::byte> header) {
    Seal seal;
    std::memcpy(seal.nonce.data(), header.data() + kSealAt, seal.nonce.size());
    std::memcpy(seal.tag.data(), header.data() + kSealAt + seal.nonce.size(), seal.tag.size());
    return seal;
}

bool is_whole(std::span<const std::byte> header) {
    const Hash128 checksum = xxh3_128(header.first(kCheckedHeaderBytes));
    return std::memcmp(header.data() + kCheckedHeaderBytes, checksum.bytes.data(),
                       checksum.bytes.size()) == 0;
}

std::vector<std::byte> segment_header(std::uint64_t number) {
    Writer writer;
    writer.write_bytes(std::as_bytes(std::span(kSegmentMagic)));
    writer.write(kVersion);
    writer.write(std::uint32_t{0});
    writer.write(number);
    return completed(std::move(writer));
}

std::vector<std::byte> record_header(const Hash256& key, const Place& place, const Seal& seal) {
    Writer writer;
    writer.write_bytes(std::as_bytes(std::span(kRecordMagic)));
    writer.write(place.segment);
    writer.write(place.offset);
    writer.write(place.size_bytes);
    writer.write_bytes(std::as_bytes(std::span(key.bytes)));
    writer.write_bytes(std::as_bytes(std::span(place.checksum.bytes)));
    writer.write_bytes(std::as_bytes(std::span(seal.nonce)));
    writer.write_bytes(std::as_bytes(std::span(seal.tag)));
    return completed(std::move(writer));
}

Status damaged(const Place& place, std::string_view why) {
    return Status(Code::corruption, fmt::format("segment {}, offset {}: {}",
                                                segment_name(place.segment), place.offset, why));
}

}  // namespace

std::string segment_name(std::uint64_t number) {
    return fmt::format("{:08}{}", number, kNameEnd);
}

std::uint64_t segment_number(std::string_view name) {
    if (name.size() < kNameDigits + kNameEnd.size() || !name.ends_with(kNameEnd)) return 0;
    const std::string_view digits = name.substr(0, name.size() - kNameEnd.size());
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    if (error != std::errc() || end != digits.end() || segment_name(number) != name) return 0;
    return number;
}

Result<std::shared_ptr<const File>> SegmentReader::file(std::uint64_t number) {
    const auto found = files_.find(number);
    if (found != files_.end()) return found->second;
    const std::string name = segment_name(number);
    Result<std::unique_ptr<File>> opened = env_->open(directory_ / name, OpenMode::read);
    if (!opened) {
        if (opened.status().code() != Code::not_found) return opened.status();
        return Status(Code::corruption, fmt::format("segment {} is missing", name));
    }
    std::vector<std::byte> header(kSegmentHeaderBytes);
    STET_TRY((*opened)->read_at(0, header).with_context(fmt::format("segment {}: header", name)));
    if (!is_whole(header)) {
        return Status(Code::corruption, fmt::format("segment {}: header is damaged", name));
    }
    std::uint32_t version = 0;
    std::memcpy(&version, header.data() + kSegmentMagic.size(), sizeof(version));
    if (version > kVersion) {
        return Status(
            Code::incompatible,
            fmt::format("segment {}: version {}, this program knows up to {}; use a newer "
                        "program",
                        name, version, kVersion));
    }
    if (header != segment_header(number)) {
        return Status(Code::corruption, fmt::format("segment {}: header is not its own", name));
    }
    if (files_.size() >= kOpenFiles) files_.clear();
    return files_.emplace(number, std::move(*opened)).first->second;
}

Result<SegmentReader::Found> SegmentReader::find(const Hash256& key, const Place& place) {
    if (place.offset < kSegmentHeaderBytes || place.offset % kRecordAlignment != 0 ||
        place.offset > kLargestOffset || place.size_bytes > kLargestOffset) {
        return damaged(place, "no record can begin here");
    }
    STET_ASSIGN(std::shared_ptr<const File> segment, file(place.segment));
    STET_ASSIGN(const std::uint64_t size, segment->size());
    if (size < place.offset || size - place.offset < kRecordHeaderBytes ||
        size - place.offset - kRecordHeaderBytes < place.size_bytes) {
        return damaged(place, fmt::format("cut short: record of {} bytes, file of {}",
                                          kRecordHeaderBytes + place.size_bytes, size));
    }
    return Found{std::move(segment), sealing_, key, place};
}

Status SegmentReader::read(const Found& found, std::span<std::byte> payload) {
    const Place& place = found.place;
    STET_CHECK(payload.size() == place.size_bytes);
    std::array<std::byte, kRecordHeaderBytes> header;
    const auto in_context = [&](const Status& status) {
        return status.with_context(
            fmt::format("segment {}, offset {}", segment_name(place.segment), place.offset));
    };
    STET_TRY(in_context(found.file->read_at(place.offset, header)));
    if (!is_whole(header)) return damaged(place, "header of the record is damaged");
    const Seal seal = seal_of(header);
    if (!std::ranges::equal(header, record_header(found.key, place, seal))) {
        return damaged(place, "another record is in its place");
    }
    STET_TRY(in_context(found.file->read_at(place.offset + kRecordHeaderBytes, payload)));
    if (const Hash128 checksum = xxh3_128(payload); checksum != place.checksum) {
        return damaged(place, fmt::format("payload is damaged: checksum {}, expected {}",
                                          checksum.hex(), place.checksum.hex()));
    }
    const Status opened = found.sealing->open_record(payload, seal, found.key);
    return opened.code() == Code::corruption ? damaged(place, opened.message()) : opened;
}

Result<std::span<const std::byte>> SegmentReader::read(const Hash256& key, const Place& place,
                                                       std::vector<std::byte>& buffer) {
    STET_ASSIGN(const Found found, find(key, place));
    buffer.resize(place.size_bytes);
    STET_TRY(read(found, buffer));
    return std::span<const std::byte>(buffer);
}

Result<SegmentWriter> SegmentWriter::open(Env& env, std::filesystem::path directory,
                                          std::uint64_t number, std::uint64_t named_end,
                                          std::uint64_t next_number, std::uint64_t segment_bytes,
                                          const Sealing& sealing, DiskBudget* budget) {
    SegmentWriter writer(env, std::move(directory), next_number, segment_bytes, sealing, budget);
    if (number == 0 || named_end >= segment_bytes) return writer;
    Result<std::unique_ptr<File>> file =
        env.open(writer.directory_ / segment_name(number), OpenMode::read_write);
    if (!file) return writer;  // readers will say what is wrong with it
    const Result<std::uint64_t> size = (*file)->size();
    if (!size || *size != named_end) return writer;
    writer.file_ = std::move(*file);
    writer.number_ = number;
    writer.kept_end_ = named_end;
    writer.buffer_at_ = named_end;
    return writer;
}

Status SegmentWriter::begin_segment() {
    const std::uint64_t number = next_number_++;
    STET_ASSIGN(file_, env_->open(directory_ / segment_name(number), OpenMode::create_new));
    number_ = number;
    is_new_ = true;
    kept_end_ = 0;
    buffer_at_ = 0;
    buffer_ = segment_header(number);
    return {};
}

Result<std::span<std::byte>> SegmentWriter::reserve(std::uint64_t size_bytes) {
    if (!file_) STET_TRY(begin_segment());
    if (!buffer_.empty() && buffer_.size() + size_bytes > kBufferBytes) STET_TRY(flush());
    const std::size_t start = buffer_.size();
    const Place place{number_, buffer_at_ + start, size_bytes, {}};
    buffer_.resize(place.end() - buffer_at_);
    return std::span(buffer_).subspan(start + kRecordHeaderBytes, size_bytes);
}

Result<Place> SegmentWriter::seal(const Hash256& key, std::span<std::byte> payload) {
    std::byte* const at = payload.data() - kRecordHeaderBytes;
    const auto start = static_cast<std::uint64_t>(at - buffer_.data());
    STET_ASSIGN(const Seal seal, sealing_->seal_record(payload, key));
    const Place place{number_, buffer_at_ + start, payload.size(), xxh3_128(payload)};
    std::ranges::copy(record_header(key, place, seal), at);
    return place;
}

Status SegmentWriter::flush() {
    if (buffer_.empty()) return {};
    if (budget_ != nullptr && !budget_->grow_segments(buffer_.size())) {
        return Status(Code::resource_exhausted,
                      fmt::format("segment {}: no room for {} bytes more within the store's limits",
                                  segment_name(number_), buffer_.size()));
    }
    charged_bytes_ += buffer_.size();
    const Status written = file_->write_at(buffer_at_, buffer_);
    if (!written) {
        is_doubtful_ = is_doubtful_ || written.code() != Code::resource_exhausted;
        return written.with_context(fmt::format("segment {}", segment_name(number_)));
    }
    buffer_at_ += buffer_.size();
    buffer_.clear();
    return {};
}

Status SegmentWriter::sync() {
    if (!file_) return {};
    STET_TRY(flush());
    Status synced = file_->sync();
    if (synced.is_ok() && is_new_) synced = env_->sync_directory(directory_);
    is_doubtful_ = is_doubtful_ || !synced.is_ok();
    return synced.with_context(fmt::format("segment {}", segment_name(number_)));
}

void SegmentWriter::keep() {
    if (!file_) return;
    STET_CHECK(buffer_.empty() && !is_doubtful_);
    kept_end_ = buffer_at_;
    charged_bytes_ = 0;
    is_new_ = false;
    if (kept_end_ >= segment_bytes_) close_segment();
}

void SegmentWriter::rotate() {
    STET_CHECK(buffer_.empty() && !is_doubtful_);
    close_segment();
}

void SegmentWriter::discard() noexcept {
    if (!file_ || (buffer_.empty() && buffer_at_ == kept_end_ && !is_doubtful_)) return;
    buffer_.clear();
    buffer_at_ = kept_end_;
    const std::uint64_t charged = std::exchange(charged_bytes_, 0);
    try {
        bool is_given_back = false;
        if (kept_end_ == 0) {
            const std::string name = segment_name(number_);
            close_segment();
            // A file that stays behind is one that no row names.
            is_given_back = env_->remove(directory_ / name).is_ok();
        } else {
            is_given_back = file_->truncate(kept_end_).is_ok();
            if (!is_given_back || is_doubtful_) close_segment();
        }
        if (is_given_back && budget_ != nullptr) budget_->shrink_segments(charged);
    } catch (const std::exception&) {  // no memory for a message
        close_segment();
    }
    is_doubtful_ = false;
}

void SegmentWriter::close_segment() noexcept {
    file_.reset();
    number_ = 0;
    kept_end_ = 0;
    buffer_at_ = 0;
}

}  // namespace stet::store
