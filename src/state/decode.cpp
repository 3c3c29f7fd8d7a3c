#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/try.h"
#include "memory/schema_bytes.h"
#include "state/encode.h"
#include "state/file_header.h"
#include "state/manifest.h"

namespace stet::state {

using memory::Group;
using memory::kPageRows;
using memory::PagePool;
using memory::PageRef;

namespace {

struct Header {
    SavedKind kind = SavedKind::sequence;
    std::uint64_t size_bytes = 0;
    std::uint64_t manifest_bytes = 0;
    Hash128 manifest_checksum;
};

std::string_view kind_name(SavedKind kind) {
    return kind == SavedKind::sequence ? "one sequence" : "a whole context";
}

Status corrupt(std::string why) {
    return Status(Code::corruption, std::move(why));
}

Result<Header> read_header(Source& source, std::optional<SavedKind> expected) {
    const std::optional<std::uint64_t> left = source.left();
    STET_ASSIGN(const auto bytes, read_file_header(source, format::kMagic, "encoded state"));
    Reader reader(std::span<const std::byte>(bytes).subspan(sizeof(format::kMagic)), "header");
    Header header;
    STET_ASSIGN(const auto version, reader.read<std::uint32_t>("version"));
    if (version != format::kVersion) {
        return Status(Code::incompatible,
                      fmt::format("state of format version {}, this program reads version {}",
                                  version, format::kVersion));
    }
    STET_ASSIGN(const auto kind, reader.read<std::uint32_t>("kind"));
    if (kind != 1 && kind != 2) return reader.corrupt("kind", fmt::format("is {}", kind));
    header.kind = static_cast<SavedKind>(kind);
    if (expected && header.kind != *expected) {
        return Status(
            Code::incompatible,
            fmt::format("holds {}, expected {}", kind_name(header.kind), kind_name(*expected)));
    }
    STET_ASSIGN(header.size_bytes, reader.read<std::uint64_t>("size"));
    STET_ASSIGN(header.manifest_bytes, reader.read<std::uint64_t>("size of the manifest"));
    STET_ASSIGN(const auto checksum, reader.read_bytes(sizeof(Hash128), "checksum"));
    std::memcpy(header.manifest_checksum.bytes.data(), checksum.data(), checksum.size());
    if (header.size_bytes < format::kHeaderBytes ||
        header.manifest_bytes > header.size_bytes - format::kHeaderBytes) {
        return reader.corrupt("size", fmt::format("is {} with a manifest of {}", header.size_bytes,
                                                  header.manifest_bytes));
    }
    if (left && *left != header.size_bytes) {
        return corrupt(fmt::format("{}: expected {} bytes, found {}",
                                   *left < header.size_bytes ? "cut short" : "bytes after the end",
                                   header.size_bytes, *left));
    }
    return header;
}

Result<std::vector<std::byte>> read_manifest(Source& source, const Header& header) {
    STET_ASSIGN(std::vector<std::byte> manifest, read_stated(source, header.manifest_bytes));
    if (xxh3_128(manifest) != header.manifest_checksum) {
        return corrupt("the manifest is damaged: its checksum does not fit");
    }
    return manifest;
}

// The payloads fill the rest of the file, to the byte.
Status check_payload_size(const Header& header, const memory::Schema& schema,
                          std::span<const Record> records) {
    std::uint64_t left = header.size_bytes - format::kHeaderBytes - header.manifest_bytes;
    for (const Record& record : records) {
        const std::uint64_t size = payload_bytes(schema.groups[record.group], record.rows);
        if (size > left) return corrupt("the payloads are longer than the file");
        left -= size;
    }
    if (left != 0) return corrupt(fmt::format("{} bytes belong to no record", left));
    return {};
}

// Rows that lie back to back, to their planes.
void scatter(const Group& shape, std::uint32_t rows, std::span<const std::byte> payload,
             std::span<std::byte> page) {
    const std::byte* from = payload.data();
    for (std::size_t p = 0; p < shape.planes.size(); ++p) {
        const std::uint64_t bytes = shape.planes[p].row_bytes * rows;
        std::memcpy(page.data() + shape.plane_offset(p), from, bytes);
        from += bytes;
    }
}

Status read_payload(Source& source, PagePool& pool, Record& record,
                    std::vector<std::byte>& buffer) {
    const Group& shape = pool.schema().groups[record.group];
    STET_ASSIGN(PageRef page, pool.allocate(record.group));
    const bool is_whole = !shape.is_paged() || record.rows == kPageRows;
    buffer.resize(is_whole ? 0 : payload_bytes(shape, record.rows));
    const std::span<std::byte> payload = is_whole ? page.writable_data() : std::span(buffer);
    STET_TRY(source.read(payload));
    if (xxh3_128(payload) != record.checksum) {
        return corrupt(
            shape.is_paged()
                ? fmt::format("group '{}', rows {} to {}: damaged, the checksum does not fit",
                              shape.name, record.at, record.at + record.rows)
                : fmt::format("group '{}', block at {}: damaged, the checksum does not fit",
                              shape.name, record.at));
    }
    if (!is_whole) scatter(shape, record.rows, payload, page.writable_data());
    if (shape.is_paged()) STET_CHECK(page.claim(0, record.rows));
    record.page = std::move(page);
    return {};
}

// Everything behind the manifest, which is in memory.
Result<Saved> decode_rest(Source& source, const Header& header, std::span<const std::byte> manifest,
                          const Identity& identity, const Limits& limits, PagePool& pool) {
    const auto read_manifest_with = [&](std::vector<Record>& records) {
        return ManifestReader(manifest, header.kind, identity, limits, pool).read(records);
    };
    std::vector<Record> records;
    STET_TRY(read_manifest_with(records).status());
    STET_TRY(check_payload_size(header, pool.schema(), records));
    std::vector<std::byte> buffer;
    for (Record& record : records) STET_TRY(read_payload(source, pool, record, buffer));
    STET_ASSIGN(Saved saved, read_manifest_with(records));
    STET_TRY(check_fits(identity, limits, saved));
    return saved;
}

}  // namespace

Result<Saved> decode(Source& source, SavedKind kind, const Identity& identity, const Limits& limits,
                     PagePool& pool) {
    STET_ASSIGN(const Header header, read_header(source, kind));
    STET_ASSIGN(const std::vector<std::byte> manifest, read_manifest(source, header));
    return decode_rest(source, header, manifest, identity, limits, pool);
}

Result<Standalone> decode_standalone(Source& source, std::uint64_t pages_bytes_max) {
    STET_ASSIGN(const Header header, read_header(source, std::nullopt));
    STET_ASSIGN(const std::vector<std::byte> manifest, read_manifest(source, header));
    Reader reader(manifest, "manifest");
    STET_ASSIGN(const Identity identity, read_identity(reader));
    STET_ASSIGN(const memory::Schema schema, memory::read_schema(reader));
    if (schema.hash() != identity.schema_hash) return reader.corrupt("schema", "has another hash");
    STET_TRY(memory::check_schema(schema));
    Standalone standalone;
    const std::uint64_t payloads = header.size_bytes - format::kHeaderBytes - manifest.size();
    const std::uint64_t pages_bytes =
        payloads > pages_bytes_max / kPageRows ? pages_bytes_max : payloads * kPageRows;
    standalone.pool = std::make_unique<PagePool>(schema, pages_bytes);
    const Limits limits{.tokens_max = std::numeric_limits<std::uint64_t>::max(),
                        .sequences_max = std::numeric_limits<std::uint32_t>::max(),
                        .vocabulary = 0,
                        .check_sampler = {}};
    STET_ASSIGN(standalone.saved,
                decode_rest(source, header, manifest, identity, limits, *standalone.pool));
    return standalone;
}

}  // namespace stet::state
