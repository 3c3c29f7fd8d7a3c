// Where encoded state goes to and comes from (stet/stream.h), for the caller's buffer and for a
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/env.h"
#include "stet/status.h"
#include "stet/stream.h"

namespace stet::state {

using stet::CallbackSink;
using stet::CallbackSource;
using stet::Sink;
using stet::Source;

// A caller's buffer. resource_exhausted past its end.
class SpanSink final : public Sink {
  public:
    explicit SpanSink(std::span<std::byte> buffer) : buffer_(buffer) {}
    Status write(std::span<const std::byte> data) override;
    std::uint64_t written() const { return written_; }

  private:
    std::span<std::byte> buffer_;
    std::uint64_t written_ = 0;
};

class SpanSource final : public Source {
  public:
    explicit SpanSource(std::span<const std::byte> data) : data_(data) {}
    Status read(std::span<std::byte> data) override;
    std::optional<std::uint64_t> left() const override { return data_.size(); }

  private:
    std::span<const std::byte> data_;
};

class FileSink final : public Sink {
  public:
    explicit FileSink(File& file) : file_(&file) {}
    Status write(std::span<const std::byte> data) override;
    std::uint64_t written() const { return offset_; }

  private:
    File* file_;
    std::uint64_t offset_ = 0;
};

class FileSource final : public Source {
  public:
    FileSource(const File& file, std::uint64_t size_bytes)
        : file_(&file), size_bytes_(size_bytes) {}
    Status read(std::span<std::byte> data) override;
    std::optional<std::uint64_t> left() const override { return size_bytes_ - offset_; }

  private:
    const File* file_;
    std::uint64_t size_bytes_;
    std::uint64_t offset_ = 0;
};

}  // namespace stet::state
