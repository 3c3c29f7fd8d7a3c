// Where encoded state goes to and comes from. Implemented here for the caller's buffer and for a
// file; a caller can bring its own (a socket, a pipe, an archive).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/env.h"
#include "stet/status.h"

namespace stet::state {

class Sink {
  public:
    virtual ~Sink() = default;
    virtual Status write(std::span<const std::byte> data) = 0;
};

class Source {
  public:
    virtual ~Source() = default;
    // Reads exactly data.size() bytes; corruption ("cut short") when fewer are left.
    virtual Status read(std::span<std::byte> data) = 0;
    // Bytes left, where that is known: then nothing may be left over at the end.
    virtual std::optional<std::uint64_t> left() const { return std::nullopt; }
};

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

// From functions.
class CallbackSink final : public Sink {
  public:
    using Write = std::function<Status(std::span<const std::byte>)>;
    explicit CallbackSink(Write write) : write_(std::move(write)) {}
    Status write(std::span<const std::byte> data) override { return write_(data); }

  private:
    Write write_;
};

class CallbackSource final : public Source {
  public:
    using Read = std::function<Status(std::span<std::byte>)>;
    explicit CallbackSource(Read read) : read_(std::move(read)) {}
    Status read(std::span<std::byte> data) override { return read_(data); }

  private:
    Read read_;
};

}  // namespace stet::state
