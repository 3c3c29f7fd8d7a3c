#include "state/file_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/try.h"

namespace stet::state {
namespace {

constexpr std::size_t kCheckedBytes = kFileHeaderBytes - sizeof(Hash128);
constexpr std::uint64_t kReadStepBytes = 1U << 20;

}  // namespace

std::vector<std::byte> seal_file_header(Writer writer) {
    STET_CHECK(writer.data().size() == kCheckedBytes);
    const Hash128 checksum = xxh3_128(writer.data());
    writer.write_bytes(std::as_bytes(std::span(checksum.bytes)));
    return writer.take();
}

Result<std::array<std::byte, kFileHeaderBytes>> read_file_header(Source& source,
                                                                 const FileMagic& magic,
                                                                 std::string_view what) {
    std::array<std::byte, kFileHeaderBytes> bytes;
    STET_TRY(source.read(bytes));
    if (std::memcmp(bytes.data(), magic, sizeof(magic)) != 0) {
        return Status(Code::corruption, fmt::format("not {}: it does not begin with '{}'", what,
                                                    std::string_view(magic, sizeof(magic))));
    }
    const Hash128 checksum = xxh3_128(std::span(bytes).first(kCheckedBytes));
    if (std::memcmp(&bytes[kCheckedBytes], checksum.bytes.data(), sizeof(Hash128)) != 0) {
        return Status(Code::corruption, "the header is damaged: its checksum does not fit");
    }
    return bytes;
}

Result<std::vector<std::byte>> read_stated(Source& source, std::uint64_t size) {
    std::vector<std::byte> bytes;
    const bool is_proven = source.left().value_or(0) >= size;
    while (bytes.size() < size) {
        const std::uint64_t left = size - bytes.size();
        const std::uint64_t step = is_proven ? left : std::min(left, kReadStepBytes);
        bytes.resize(bytes.size() + step);
        STET_TRY(source.read(std::span(bytes).last(step)));
    }
    return bytes;
}

}  // namespace stet::state
