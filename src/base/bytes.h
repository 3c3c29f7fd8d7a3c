// Checked reading and plain writing of little-endian records. A Reader proves every size against
// the bytes left before it uses it: nothing read from a file reaches an unchecked size or an
// unbounded allocation.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "stet/status.h"

namespace stet {

static_assert(std::endian::native == std::endian::little, "formats are little-endian");

template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Reader {
  public:
    // `what` names the source in messages ("state file a.stet").
    Reader(std::span<const std::byte> data, std::string what)
        : data_(data), what_(std::move(what)) {}

    std::size_t position() const { return position_; }
    std::size_t left() const { return data_.size() - position_; }

    template <Scalar T>
    Result<T> read(std::string_view field) {
        if (left() < sizeof(T)) return truncated(field, sizeof(T));
        T value;
        std::memcpy(&value, data_.data() + position_, sizeof(T));
        position_ += sizeof(T);
        return value;
    }
    Result<std::span<const std::byte>> read_bytes(std::uint64_t size, std::string_view field);
    // u64 length, then bytes.
    Result<std::string> read_string(std::string_view field);
    // Proves that `count` elements of `element_bytes` each are left; says so when they aren't.
    Status require(std::uint64_t count, std::uint64_t element_bytes, std::string_view field) const;
    // Fails unless every byte was read.
    Status finish() const;

    Status truncated(std::string_view field, std::uint64_t needed_bytes) const;
    Status corrupt(std::string_view field, std::string_view why) const;
    const std::string& what() const { return what_; }

  private:
    std::span<const std::byte> data_;
    std::string what_;
    std::size_t position_ = 0;
};

class Writer {
  public:
    template <Scalar T>
    void write(T value) {
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        data_.insert(data_.end(), bytes, bytes + sizeof(T));
    }
    void write_bytes(std::span<const std::byte> bytes) {
        data_.insert(data_.end(), bytes.begin(), bytes.end());
    }
    void write_string(std::string_view text) {
        write(static_cast<std::uint64_t>(text.size()));
        write_bytes(std::as_bytes(std::span(text)));
    }
    const std::vector<std::byte>& data() const { return data_; }
    std::vector<std::byte> take() { return std::move(data_); }

  private:
    std::vector<std::byte> data_;
};

}  // namespace stet
