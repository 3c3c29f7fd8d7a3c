#include "state/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "memory/schema_bytes.h"

namespace stet::state {

using memory::Group;
using memory::kPageRows;
using memory::Lifetime;
using memory::PageRef;
using memory::Plane;
using memory::Schema;

namespace {

constexpr std::uint64_t kRecordBytes = 32;

std::string describe(const Group& group) {
    return fmt::format("'{}' {}({}) of {} planes", group.name, lifetime_name(group.lifetime),
                       group.parameter, group.planes.size());
}

std::string describe(const Plane& plane) {
    return fmt::format("'{}' of layer {}, {} x {}", plane.name, plane.layer, plane.elements,
                       element_type_name(plane.type));
}

// Where two schemas that are not equal differ first: "found ..., expected ...".
std::string first_difference(const Schema& found, const Schema& expected) {
    if (found.groups.size() != expected.groups.size()) {
        return fmt::format("{} groups, expected {}", found.groups.size(), expected.groups.size());
    }
    for (std::size_t g = 0; g < found.groups.size(); ++g) {
        const Group& a = found.groups[g];
        const Group& b = expected.groups[g];
        if (describe(a) != describe(b)) {
            return fmt::format("group {}, expected {}", describe(a), describe(b));
        }
        for (std::size_t p = 0; p < a.planes.size(); ++p) {
            if (describe(a.planes[p]) == describe(b.planes[p])) continue;
            return fmt::format("group '{}', plane {}, expected {}", a.name, describe(a.planes[p]),
                               describe(b.planes[p]));
        }
    }
    return "other rows";
}

template <std::size_t N>
Result<Digest<N>> read_digest(Reader& reader, std::string_view field) {
    STET_ASSIGN(const auto bytes, reader.read_bytes(N, field));
    Digest<N> digest;
    std::memcpy(digest.bytes.data(), bytes.data(), N);
    return digest;
}

}  // namespace

std::uint64_t payload_bytes(const Group& shape, std::uint32_t rows) {
    return shape.is_paged() ? shape.row_bytes() * rows : shape.page_bytes();
}

Result<Saved> ManifestReader::read(std::vector<Record>& records) {
    records_ = &records;
    Saved saved;
    saved.pool = &pool_;
    saved.kind = kind_;
    STET_ASSIGN(saved.identity, read_identity(reader_));
    STET_ASSIGN(const Schema schema, memory::read_schema(reader_));
    STET_TRY(check_schema(saved.identity, schema));
    STET_TRY(read_records());
    STET_ASSIGN(const auto count, reader_.read<std::uint32_t>("number of sequences"));
    if (kind_ == SavedKind::sequence && count != 1) {
        return reader_.corrupt("number of sequences", fmt::format("is {}, expected 1", count));
    }
    SequenceId id_min = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        STET_ASSIGN(Saved::Entry entry, read_entry(i, id_min));
        id_min = entry.id + 1;
        saved.entries.push_back(std::move(entry));
    }
    STET_TRY(reader_.finish());
    STET_TRY(check_records_used());
    return saved;
}

Result<Identity> read_identity(Reader& reader) {
    Identity found;
    STET_ASSIGN(found.fingerprint, read_digest<32>(reader, "model fingerprint"));
    STET_ASSIGN(found.schema_hash, read_digest<32>(reader, "schema hash"));
    STET_ASSIGN(found.k_type, memory::read_element_type(reader, "K type"));
    STET_ASSIGN(found.v_type, memory::read_element_type(reader, "V type"));
    STET_ASSIGN(found.model_name, reader.read_string("model name"));
    return found;
}

Status ManifestReader::check_schema(const Identity& found, const Schema& schema) const {
    if (schema.hash() != found.schema_hash) return reader_.corrupt("schema", "has another hash");
    Identity same_schema = identity_;
    same_schema.schema_hash = found.schema_hash;
    STET_TRY(check_identity(same_schema, found));
    if (found.schema_hash == identity_.schema_hash) return {};
    return Status(Code::incompatible, fmt::format("made with another schema: {}",
                                                  first_difference(schema, pool_.schema())));
}

Status ManifestReader::read_records() {
    STET_ASSIGN(const auto count, reader_.read<std::uint32_t>("number of records"));
    STET_TRY(reader_.require(count, kRecordBytes, "records"));
    const bool are_there = !records_->empty();
    if (!are_there) records_->resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        Record read;
        STET_ASSIGN(read.group, reader_.read<std::uint32_t>("group of a record"));
        STET_ASSIGN(read.rows, reader_.read<std::uint32_t>("rows of a record"));
        STET_ASSIGN(read.at, reader_.read<std::uint64_t>("place of a record"));
        STET_ASSIGN(read.checksum, read_digest<16>(reader_, "checksum of a record"));
        if (read.group >= pool_.schema().groups.size()) {
            return reader_.corrupt("group of a record", fmt::format("is {}", read.group));
        }
        const bool is_paged = pool_.schema().groups[read.group].is_paged();
        if (read.rows == 0 || read.rows > (is_paged ? kPageRows : 1)) {
            return reader_.corrupt("rows of a record", fmt::format("are {}", read.rows));
        }
        if (!are_there) (*records_)[i] = std::move(read);
    }
    return {};
}

Status ManifestReader::check_records_used() const {
    for (std::size_t i = 0; i < records_->size(); ++i) {
        const Record& record = (*records_)[i];
        if (record.rows_used == record.rows) continue;
        return reader_.corrupt(
            "records", fmt::format("record {} has {} rows, {} belong to a sequence", i, record.rows,
                                   record.rows_used));
    }
    return {};
}

Result<Saved::Entry> ManifestReader::read_entry(std::uint32_t index, SequenceId id_min) {
    Saved::Entry entry;
    STET_ASSIGN(entry.id, reader_.read<std::uint32_t>("id of a sequence"));
    if (kind_ == SavedKind::sequence ? entry.id != 0 : entry.id < id_min) {
        return reader_.corrupt("id of a sequence", fmt::format("is {}", entry.id));
    }
    if (entry.id >= limits_.sequences_max) {
        return Status(Code::resource_exhausted,
                      fmt::format("sequence {} has id {}, the context has room for {} sequences",
                                  index, entry.id, limits_.sequences_max));
    }
    entry.sequence = Sequence::empty(pool_.schema());
    STET_TRY(read_tokens(entry.sequence));
    STET_TRY(read_extensions(entry.sequence));
    STET_ASSIGN(entry.sequence.sampler, read_sampler());
    STET_TRY(read_logits(entry.sequence));
    STET_TRY(read_groups(entry.sequence));
    STET_TRY(read_checkpoints(entry.sequence));
    return entry;
}

Status ManifestReader::read_tokens(Sequence& sequence) {
    STET_ASSIGN(const auto count, reader_.read<std::uint64_t>("number of tokens"));
    STET_TRY(reader_.require(count, sizeof(Token), "tokens"));
    if (count > limits_.tokens_max) {
        return Status(Code::resource_exhausted,
                      fmt::format("the state has {} tokens, the context room for {}: use a longer "
                                  "context",
                                  count, limits_.tokens_max));
    }
    STET_ASSIGN(const auto bytes, reader_.read_bytes(count * sizeof(Token), "tokens"));
    sequence.tokens.resize(count);
    if (count != 0) std::memcpy(sequence.tokens.data(), bytes.data(), bytes.size());
    for (const Token token : sequence.tokens) {
        const bool is_known = limits_.vocabulary == 0 || std::cmp_less(token, limits_.vocabulary);
        if (token < 0 || !is_known) return reader_.corrupt("token", fmt::format("is {}", token));
    }
    return {};
}

Status ManifestReader::read_extensions(Sequence& sequence) {
    constexpr std::uint64_t kBytes = 3 * sizeof(std::int32_t);
    STET_ASSIGN(const auto count, reader_.read<std::uint64_t>("number of position extensions"));
    if (count != 0 && count != sequence.position()) {
        return reader_.corrupt("number of position extensions",
                               fmt::format("is {} for {} tokens", count, sequence.position()));
    }
    STET_TRY(reader_.require(count, kBytes, "position extensions"));
    sequence.extensions.resize(count);
    std::int32_t time = 0;
    for (PositionExtension& extension : sequence.extensions) {
        STET_ASSIGN(extension.time, reader_.read<std::int32_t>("time"));
        STET_ASSIGN(extension.row, reader_.read<std::int32_t>("row"));
        STET_ASSIGN(extension.column, reader_.read<std::int32_t>("column"));
        if (extension.time < time || extension.row < 0 || extension.column < 0) {
            return reader_.corrupt("position extension",
                                   fmt::format("is {}, {}, {} after time {}", extension.time,
                                               extension.row, extension.column, time));
        }
        time = extension.time;
    }
    return {};
}

Result<SamplerState> ManifestReader::read_sampler() {
    STET_ASSIGN(const auto size, reader_.read<std::uint64_t>("size of the sampler state"));
    STET_ASSIGN(const auto bytes, reader_.read_bytes(size, "sampler state"));
    if (size == 0) return SamplerState();
    if (limits_.check_sampler) STET_TRY(limits_.check_sampler(bytes));
    return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

Status ManifestReader::read_logits(Sequence& sequence) {
    STET_ASSIGN(const auto count, reader_.read<std::uint64_t>("number of logits"));
    STET_TRY(reader_.require(count, sizeof(float), "logits"));
    if (count == 0) return {};
    if (sequence.position() == 0 || (limits_.vocabulary != 0 && count != limits_.vocabulary)) {
        return reader_.corrupt("number of logits",
                               fmt::format("is {} at position {}, the vocabulary has {}", count,
                                           sequence.position(), limits_.vocabulary));
    }
    STET_ASSIGN(const auto bytes, reader_.read_bytes(count * sizeof(float), "logits"));
    std::vector<float> logits(count);
    std::memcpy(logits.data(), bytes.data(), bytes.size());
    sequence.logits = std::make_shared<const std::vector<float>>(std::move(logits));
    return {};
}

Status ManifestReader::read_groups(Sequence& sequence) {
    for (std::size_t g = 0; g < sequence.groups.size(); ++g) {
        STET_ASSIGN(sequence.groups[g], read_rows(g, sequence.position()));
    }
    return {};
}

Status ManifestReader::read_checkpoints(Sequence& sequence) {
    const auto& shapes = pool_.schema().groups;
    STET_ASSIGN(const auto count, reader_.read<std::uint32_t>("number of checkpoints"));
    STET_TRY(reader_.require(count, 8 + 4 + 8, "checkpoints"));
    std::uint64_t before = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        Checkpoint kept;
        STET_ASSIGN(kept.position, reader_.read<std::uint64_t>("position of a checkpoint"));
        if (kept.position <= before || kept.position > sequence.position()) {
            return reader_.corrupt("position of a checkpoint",
                                   fmt::format("is {} after {}, in a sequence of {}", kept.position,
                                               before, sequence.position()));
        }
        before = kept.position;
        STET_ASSIGN(const auto asked_for, reader_.read<std::uint32_t>("checkpoint asked for"));
        if (asked_for > 1) {
            return reader_.corrupt("checkpoint asked for", fmt::format("is {}", asked_for));
        }
        kept.is_asked_for = asked_for == 1;
        STET_ASSIGN(kept.sampler, read_sampler());
        kept.groups.resize(shapes.size());
        for (std::size_t g = 0; g < shapes.size(); ++g) {
            if (shapes[g].lifetime != Lifetime::window && shapes[g].is_paged()) continue;
            STET_ASSIGN(kept.groups[g], read_rows(g, kept.position));
        }
        sequence.checkpoints.push_back(std::make_shared<const Checkpoint>(std::move(kept)));
    }
    return {};
}

Result<GroupState> ManifestReader::read_rows(std::size_t g, std::uint64_t position) {
    const Group& shape = pool_.schema().groups[g];
    GroupState group;
    if (!shape.is_paged()) {
        if (position == 0) return group;
        STET_ASSIGN(group.block, read_page(g, position, 1));
        return group;
    }
    group.rows = shape.rows_at(position);
    if (shape.lifetime == Lifetime::window) {
        STET_ASSIGN(group.first_row, reader_.read<std::uint64_t>("first row"));
    }
    if (group.first_row % kPageRows != 0 || group.first_row > group.rows ||
        group.first_row > shape.first_needed_row(position)) {
        return reader_.corrupt("first row",
                               fmt::format("is {} of {}", group.first_row, group.rows));
    }
    const std::uint64_t pages = memory::page_count(group.rows - group.first_row);
    STET_TRY(reader_.require(pages, sizeof(std::uint32_t), "pages"));
    group.pages.resize(pages);
    for (std::uint64_t i = 0; i < pages; ++i) {
        const std::uint64_t at = group.first_row + i * kPageRows;
        const std::uint64_t rows = std::min<std::uint64_t>(group.rows - at, kPageRows);
        STET_ASSIGN(group.pages[i], read_page(g, at, static_cast<std::uint32_t>(rows)));
    }
    return group;
}

// The record of a page or block: null page in the first reading.
Result<PageRef> ManifestReader::read_page(std::size_t g, std::uint64_t at, std::uint32_t rows) {
    STET_ASSIGN(const auto index, reader_.read<std::uint32_t>("record of a page"));
    if (index >= records_->size()) {
        return reader_.corrupt("record of a page",
                               fmt::format("is {} of {}", index, records_->size()));
    }
    Record& record = (*records_)[index];
    if (record.group != g || record.at != at || record.rows < rows) {
        return reader_.corrupt(
            "record of a page",
            fmt::format("is {}: group {}, {} rows at {}; expected group {}, {} rows at {}", index,
                        record.group, record.rows, record.at, g, rows, at));
    }
    record.rows_used = std::max(record.rows_used, rows);
    return record.page;
}

}  // namespace stet::state
