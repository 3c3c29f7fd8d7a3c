// Where encoded state goes to and comes from, when that is neither a buffer nor a file: a socket, a
// pipe, an archive. A caller implements these, or brings functions.
//
// Thread rules: used by the thread that makes the call they were given to, during it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "stet/status.h"

namespace stet {

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

}  // namespace stet
