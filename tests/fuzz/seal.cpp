#include "fuzz/seal.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/hash.h"
#include "memory/schema_bytes.h"
#include "state/compressed_stream.h"
#include "state/encode.h"
#include "store/session_file.h"

namespace stet::fuzz {
namespace {

using state::format::kHeaderBytes;

template <typename T>
T read_at(const Bytes& bytes, std::size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
}

template <typename T>
void write_at(Bytes& bytes, std::size_t at, const T& value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
}

std::span<const std::byte> part(const Bytes& bytes, std::size_t at, std::size_t size) {
    return std::span(bytes).subspan(at, size);
}

// Bytes of a record's payload; none where the record is of no group.
std::uint64_t payload_bytes(const memory::Schema& schema, std::uint32_t group, std::uint32_t rows) {
    return group < schema.groups.size() ? schema.groups[group].row_bytes() * rows : 0;
}

// The manifest is in [begin, end), payloads follow. Stops where something can't be read.
Status seal_manifest(Bytes& bytes, std::size_t begin, std::size_t end) {
    const Bytes manifest(part(bytes, begin, end - begin).begin(),
                         part(bytes, begin, end - begin).end());
    Reader reader(manifest, "fuzz");
    const std::size_t hash_at = begin + sizeof(Hash256);
    auto read = reader.read_bytes(2 * sizeof(Hash256) + 8, "identity");
    if (!read) return read.status();
    if (const auto name = reader.read_string("model name"); !name) return name.status();
    const auto schema = memory::read_schema(reader);
    if (!schema) return schema.status();
    write_at(bytes, hash_at, schema->hash().bytes);
    const auto count = reader.read<std::uint32_t>("records");
    if (!count) return count.status();
    for (std::uint64_t i = 0, payload = end; i < *count; ++i) {
        const auto group = reader.read<std::uint32_t>("group");
        const auto rows = reader.read<std::uint32_t>("rows");
        const auto at = reader.read<std::uint64_t>("at");
        const std::size_t checksum_at = begin + reader.position();
        read = reader.read_bytes(sizeof(Hash128), "checksum");
        if (!read) return read.status();
        const std::uint64_t size = payload_bytes(*schema, *group, *rows);
        if (size > bytes.size() - payload) return {};
        write_at(bytes, checksum_at, xxh3_128(part(bytes, payload, size)).bytes);
        payload += size;
    }
    return {};
}

}  // namespace

void seal_sequence(Bytes& bytes, std::size_t at) {
    if (bytes.size() < at || bytes.size() - at < kHeaderBytes) return;
    const std::size_t begin = at + kHeaderBytes;
    const std::size_t manifest_bytes =
        std::min<std::uint64_t>(read_at<std::uint64_t>(bytes, at + 24), bytes.size() - begin);
    // What can't be read any further is for the decoder to refuse.
    static_cast<void>(seal_manifest(bytes, begin, begin + manifest_bytes));
    std::memcpy(bytes.data() + at, state::format::kMagic, sizeof(state::format::kMagic));
    write_at(bytes, at + 8, state::format::kVersion);
    write_at(bytes, at + 16, std::uint64_t{bytes.size() - at});
    write_at(bytes, at + 24, std::uint64_t{manifest_bytes});
    write_at(bytes, at + 32, xxh3_128(part(bytes, begin, manifest_bytes)).bytes);
    write_at(bytes, at + 48, xxh3_128(part(bytes, at, 48)).bytes);
}

void seal_session(Bytes& bytes) {
    if (bytes.size() < kHeaderBytes) return;
    const std::size_t turns_bytes =
        std::min<std::uint64_t>(read_at<std::uint64_t>(bytes, 16), bytes.size() - kHeaderBytes);
    seal_sequence(bytes, kHeaderBytes + turns_bytes);
    const std::uint32_t flags = read_at<std::uint32_t>(bytes, 12) & 1U;
    std::memcpy(bytes.data(), store::session_file::kMagic, sizeof(store::session_file::kMagic));
    write_at(bytes, 8, store::session_file::kVersion);
    write_at(bytes, 12, flags);
    write_at(bytes, 16, std::uint64_t{turns_bytes});
    write_at(bytes, 24, xxh3_128(part(bytes, kHeaderBytes, turns_bytes)).bytes);
    write_at(bytes, 40, std::uint64_t{0});
    write_at(bytes, 48, xxh3_128(part(bytes, 0, 48)).bytes);
    if (flags == 0) return;
    Bytes packed(bytes.size() * 2 + 4096);
    state::SpanSink sink(packed);
    state::CompressingSink compressing(sink);
    if (!compressing.write(part(bytes, kHeaderBytes, bytes.size() - kHeaderBytes)) ||
        !compressing.finish()) {
        return;
    }
    bytes.resize(kHeaderBytes);
    bytes.insert(bytes.end(), packed.begin(),
                 packed.begin() + static_cast<std::ptrdiff_t>(sink.written()));
}

}  // namespace stet::fuzz
