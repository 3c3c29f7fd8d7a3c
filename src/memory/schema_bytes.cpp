#include "memory/schema_bytes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "base/try.h"

namespace stet::memory {
namespace {

constexpr std::uint64_t kGroupBytesMin = 8 + 3 * 4;
constexpr std::size_t kNameBytesMax = 256;
constexpr std::uint64_t kPlaneBytesMin = 8 + 3 * 4 + 8;

// Names are our own, and go into messages.
Result<std::string> read_name(Reader& reader, std::string_view field) {
    STET_ASSIGN(std::string name, reader.read_string(field));
    const bool is_plain =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_plain || name.size() > kNameBytesMax) {
        return reader.corrupt(field,
                              fmt::format("is {}, expected printable ASCII of at most {} bytes",
                                          quote_name(name), kNameBytesMax));
    }
    return name;
}

Result<Plane> read_plane(Reader& reader) {
    Plane plane;
    STET_ASSIGN(plane.name, read_name(reader, "plane name"));
    STET_ASSIGN(plane.layer, reader.read<std::int32_t>("layer"));
    STET_ASSIGN(plane.type, read_element_type(reader, "plane type"));
    STET_ASSIGN(plane.elements, reader.read<std::uint32_t>("elements"));
    STET_ASSIGN(plane.row_bytes, reader.read<std::uint64_t>("row bytes"));
    return plane;
}

Result<Group> read_group(Reader& reader) {
    Group group;
    STET_ASSIGN(group.name, read_name(reader, "group name"));
    STET_ASSIGN(const auto lifetime, reader.read<std::uint32_t>("lifetime"));
    if (lifetime > static_cast<std::uint32_t>(Lifetime::fixed)) {
        return reader.corrupt("lifetime", fmt::format("is {}", lifetime));
    }
    group.lifetime = static_cast<Lifetime>(lifetime);
    STET_ASSIGN(group.parameter, reader.read<std::uint32_t>("parameter"));
    STET_ASSIGN(const auto count, reader.read<std::uint32_t>("number of planes"));
    STET_TRY(reader.require(count, kPlaneBytesMin, "planes"));
    for (std::uint32_t i = 0; i < count; ++i) {
        STET_ASSIGN(Plane plane, read_plane(reader));
        group.planes.push_back(std::move(plane));
    }
    return group;
}

Status wrong(const Group& group, std::string_view why) {
    return Status(Code::corruption, fmt::format("schema: group '{}': {}", group.name, why));
}

Status check_group(const Group& group) {
    if (group.planes.empty()) return wrong(group, "has no planes");
    const bool has_parameter =
        group.lifetime == Lifetime::window || group.lifetime == Lifetime::every;
    if (has_parameter && group.parameter == 0) return wrong(group, "its parameter is 0");
    std::uint64_t row = 0;
    for (const Plane& plane : group.planes) {
        const std::uint64_t expected = row_bytes(plane.type, plane.elements);
        if (plane.row_bytes == 0 || plane.row_bytes != expected) {
            return wrong(group, fmt::format("plane '{}' of layer {} has rows of {} bytes, "
                                            "expected {}",
                                            plane.name, plane.layer, plane.row_bytes, expected));
        }
        row += plane.row_bytes;  // at most 2^34 each
        if (row > kPageBytesMax / (group.is_paged() ? kPageRows : 1)) {
            return wrong(group, "its pages are too large");
        }
    }
    return {};
}

}  // namespace

void write_schema(Writer& writer, const Schema& schema) {
    writer.write(static_cast<std::uint32_t>(schema.groups.size()));
    for (const Group& group : schema.groups) {
        writer.write_string(group.name);
        writer.write(static_cast<std::uint32_t>(group.lifetime));
        writer.write(group.parameter);
        writer.write(static_cast<std::uint32_t>(group.planes.size()));
        for (const Plane& plane : group.planes) {
            writer.write_string(plane.name);
            writer.write(plane.layer);
            writer.write(static_cast<std::uint32_t>(plane.type));
            writer.write(plane.elements);
            writer.write(plane.row_bytes);
        }
    }
}

Result<Schema> read_schema(Reader& reader) {
    STET_ASSIGN(const auto count, reader.read<std::uint32_t>("number of groups"));
    STET_TRY(reader.require(count, kGroupBytesMin, "groups"));
    Schema schema;
    for (std::uint32_t i = 0; i < count; ++i) {
        STET_ASSIGN(Group group, read_group(reader));
        schema.groups.push_back(std::move(group));
    }
    return schema;
}

Result<ElementType> read_element_type(Reader& reader, std::string_view field) {
    STET_ASSIGN(const auto number, reader.read<std::uint32_t>(field));
    const auto type = static_cast<ElementType>(number);
    if (number > 0xff || !is_element_type(type)) {
        return Status(
            Code::incompatible,
            fmt::format("{}: element type {}, which this program does not know", field, number));
    }
    return type;
}

Status check_schema(const Schema& schema) {
    for (const Group& group : schema.groups) STET_TRY(check_group(group));
    return {};
}

}  // namespace stet::memory
