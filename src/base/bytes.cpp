#include "base/bytes.h"

#include <fmt/format.h>

#include "base/try.h"

namespace stet {

Result<std::span<const std::byte>> Reader::read_bytes(std::uint64_t size, std::string_view field) {
    if (size > left()) return truncated(field, size);
    const auto bytes = data_.subspan(position_, size);
    position_ += size;
    return bytes;
}

Result<std::string> Reader::read_string(std::string_view field) {
    STET_ASSIGN(const auto size, read<std::uint64_t>(field));
    STET_ASSIGN(const auto bytes, read_bytes(size, field));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status Reader::require(std::uint64_t count, std::uint64_t element_bytes,
                       std::string_view field) const {
    if (element_bytes != 0 && count > left() / element_bytes) {
        return Status(
            Code::corruption,
            fmt::format("{}: {} at byte {} claims {} elements of {} bytes, {} bytes are left",
                        what_, field, position_, count, element_bytes, left()));
    }
    return {};
}

Status Reader::finish() const {
    if (left() == 0) return {};
    return Status(Code::corruption,
                  fmt::format("{}: {} bytes after the end at byte {}", what_, left(), position_));
}

Status Reader::truncated(std::string_view field, std::uint64_t needed_bytes) const {
    return Status(Code::corruption,
                  fmt::format("{}: cut short at byte {}: {} needs {} bytes, {} are left", what_,
                              position_, field, needed_bytes, left()));
}

Status Reader::corrupt(std::string_view field, std::string_view why) const {
    return Status(Code::corruption,
                  fmt::format("{}: {} before byte {}: {}", what_, field, position_, why));
}

}  // namespace stet
