#include "state/encode.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/try.h"
#include "memory/schema_bytes.h"
#include "state/manifest.h"

namespace stet::state {

using memory::Group;
using memory::kPageRows;
using memory::Lifetime;
using memory::Schema;

namespace {

// The payload of a use: the page itself when it is full, else its rows gathered in `buffer`.
std::span<const std::byte> payload_of(const Schema& schema, const PageTable::Use& use,
                                      std::vector<std::byte>& buffer) {
    const Group& shape = schema.groups[use.page.group()];
    const std::span<const std::byte> page = use.page.data();
    if (!shape.is_paged() || use.rows == kPageRows) return page;
    buffer.resize(payload_bytes(shape, use.rows));
    std::byte* to = buffer.data();
    for (std::size_t p = 0; p < shape.planes.size(); ++p) {
        const std::uint64_t bytes = shape.planes[p].row_bytes * use.rows;
        std::memcpy(to, page.data() + shape.plane_offset(p), bytes);
        to += bytes;
    }
    return buffer;
}

class ManifestWriter {
  public:
    ManifestWriter(const Saved& saved, const PageTable& table) : saved_(saved), table_(table) {}

    // `checksums` of the records in order; none: room for them only.
    std::vector<std::byte> write(std::span<const Hash128> checksums) {
        write_identity();
        memory::write_schema(writer_, saved_.schema());
        const auto& uses = table_.uses();
        writer_.write(static_cast<std::uint32_t>(uses.size()));
        for (std::size_t i = 0; i < uses.size(); ++i) {
            writer_.write(static_cast<std::uint32_t>(uses[i].page.group()));
            writer_.write(uses[i].rows);
            writer_.write(uses[i].at);
            const Hash128 checksum = checksums.empty() ? Hash128() : checksums[i];
            writer_.write_bytes(std::as_bytes(std::span(checksum.bytes)));
        }
        writer_.write(static_cast<std::uint32_t>(saved_.entries.size()));
        for (const Saved::Entry& entry : saved_.entries) write_sequence(entry);
        return writer_.take();
    }

  private:
    void write_identity() {
        const Identity& identity = saved_.identity;
        writer_.write_bytes(std::as_bytes(std::span(identity.fingerprint.bytes)));
        writer_.write_bytes(std::as_bytes(std::span(identity.schema_hash.bytes)));
        writer_.write(static_cast<std::uint32_t>(identity.k_type));
        writer_.write(static_cast<std::uint32_t>(identity.v_type));
        writer_.write_string(identity.model_name);
    }

    void write_sampler(const SamplerState& sampler) {
        writer_.write(sampler ? std::uint64_t{sampler->size()} : 0);
        if (sampler) writer_.write_bytes(*sampler);
    }

    void write_page(const memory::PageRef& page) {
        writer_.write(static_cast<std::uint32_t>(table_.index(page)));
    }

    void write_rows(const Group& shape, const GroupState& group) {
        if (!shape.is_paged()) {
            if (group.block) write_page(group.block);
            return;
        }
        if (shape.lifetime == Lifetime::window) writer_.write(group.first_row);
        for (const memory::PageRef& page : group.pages) write_page(page);
    }

    void write_sequence(const Saved::Entry& entry) {
        const Sequence& sequence = entry.sequence;
        const Schema& schema = saved_.schema();
        writer_.write(entry.id);
        writer_.write(std::uint64_t{sequence.tokens.size()});
        writer_.write_bytes(std::as_bytes(std::span(sequence.tokens)));
        writer_.write(std::uint64_t{sequence.extensions.size()});
        for (const PositionExtension& extension : sequence.extensions) {
            writer_.write(extension.time);
            writer_.write(extension.row);
            writer_.write(extension.column);
        }
        write_sampler(sequence.sampler);
        const auto logits =
            sequence.logits ? std::span(*sequence.logits) : std::span<const float>();
        writer_.write(std::uint64_t{logits.size()});
        writer_.write_bytes(std::as_bytes(logits));
        for (std::size_t g = 0; g < schema.groups.size(); ++g) {
            write_rows(schema.groups[g], sequence.groups[g]);
        }
        writer_.write(static_cast<std::uint32_t>(sequence.checkpoints.size()));
        for (const auto& kept : sequence.checkpoints) {
            writer_.write(kept->position);
            writer_.write(std::uint32_t{kept->is_asked_for ? 1U : 0U});
            write_sampler(kept->sampler);
            for (std::size_t g = 0; g < schema.groups.size(); ++g) {
                const Lifetime lifetime = schema.groups[g].lifetime;
                if (lifetime != Lifetime::window && lifetime != Lifetime::fixed) continue;
                write_rows(schema.groups[g], kept->groups[g]);
            }
        }
    }

    const Saved& saved_;
    const PageTable& table_;
    Writer writer_;
};

std::uint64_t all_payload_bytes(const Schema& schema, const PageTable& table) {
    std::uint64_t sum = 0;
    for (const PageTable::Use& use : table.uses()) {
        sum += payload_bytes(schema.groups[use.page.group()], use.rows);
    }
    return sum;
}

std::vector<std::byte> make_header(SavedKind kind, std::uint64_t payload_size_bytes,
                                   std::span<const std::byte> manifest) {
    Writer header;
    header.write_bytes(std::as_bytes(std::span(format::kMagic)));
    header.write(format::kVersion);
    header.write(static_cast<std::uint32_t>(kind));
    header.write(format::kHeaderBytes + manifest.size() + payload_size_bytes);
    header.write(std::uint64_t{manifest.size()});
    const Hash128 manifest_checksum = xxh3_128(manifest);
    header.write_bytes(std::as_bytes(std::span(manifest_checksum.bytes)));
    return seal_file_header(std::move(header));
}

}  // namespace

std::uint64_t encoded_size(const Saved& saved) {
    const PageTable table = PageTable::of(saved);
    const std::uint64_t manifest = ManifestWriter(saved, table).write({}).size();
    return format::kHeaderBytes + manifest + all_payload_bytes(saved.schema(), table);
}

Result<std::uint64_t> encode(const Saved& saved, Sink& sink) {
    const Schema& schema = saved.schema();
    const PageTable table = PageTable::of(saved);
    std::vector<std::byte> buffer;
    std::vector<Hash128> checksums;
    checksums.reserve(table.uses().size());
    for (const PageTable::Use& use : table.uses()) {
        checksums.push_back(xxh3_128(payload_of(schema, use, buffer)));
    }
    const std::vector<std::byte> manifest = ManifestWriter(saved, table).write(checksums);
    const std::uint64_t payloads = all_payload_bytes(schema, table);
    STET_TRY(sink.write(make_header(saved.kind, payloads, manifest)));
    STET_TRY(sink.write(manifest));
    for (const PageTable::Use& use : table.uses()) {
        STET_TRY(sink.write(payload_of(schema, use, buffer)));
    }
    return format::kHeaderBytes + manifest.size() + payloads;
}

}  // namespace stet::state
