#include "state/stream.h"

#include <fmt/format.h>

#include <cstring>

#include "base/try.h"

namespace stet::state {
namespace {

Status cut_short(std::uint64_t wanted, std::uint64_t left) {
    return Status(Code::corruption,
                  fmt::format("cut short: {} bytes expected, {} left", wanted, left));
}

}  // namespace

Status SpanSink::write(std::span<const std::byte> data) {
    if (data.size() > buffer_.size() - written_) {
        return Status(Code::resource_exhausted,
                      fmt::format("the buffer has {} bytes, {} are needed at least", buffer_.size(),
                                  written_ + data.size()));
    }
    if (!data.empty()) std::memcpy(buffer_.data() + written_, data.data(), data.size());
    written_ += data.size();
    return {};
}

Status SpanSource::read(std::span<std::byte> data) {
    if (data.size() > data_.size()) return cut_short(data.size(), data_.size());
    if (!data.empty()) std::memcpy(data.data(), data_.data(), data.size());
    data_ = data_.subspan(data.size());
    return {};
}

Status FileSink::write(std::span<const std::byte> data) {
    STET_TRY(file_->write_at(offset_, data));
    offset_ += data.size();
    return {};
}

Status FileSource::read(std::span<std::byte> data) {
    if (data.size() > size_bytes_ - offset_) return cut_short(data.size(), size_bytes_ - offset_);
    STET_TRY(file_->read_at(offset_, data));
    offset_ += data.size();
    return {};
}

}  // namespace stet::state
