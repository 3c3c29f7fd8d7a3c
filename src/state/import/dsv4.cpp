// DeepSeek-V4: compressed caches and the state of their compressors, as whole tensors.
#include <fmt/format.h>

#include "base/try.h"
#include "state/import/parse.h"

namespace stet::state::llama {
namespace {

constexpr std::uint32_t kMagic = 0x34565344;  // DSV4
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kFull = 0;
constexpr std::uint32_t kCacheVersionFirst = 1;
constexpr std::uint32_t kCacheVersionLast = 2;
constexpr std::uint32_t kCompressorVersion = 1;

Status expect(const Reader& reader, std::string_view part, std::string_view what,
              std::uint64_t found, std::uint64_t expected) {
    if (found == expected) return {};
    return Status(Code::incompatible, fmt::format("{}: {}: {} is {}, expected {}", reader.what(),
                                                  part, what, found, expected));
}

Status check_streams(const Reader& reader, const ParseContext& context, std::uint32_t streams) {
    const std::uint32_t most = context.is_session ? kSequencesMax : 1;
    if (streams >= 1 && streams <= most) return {};
    return reader.corrupt("number of streams", fmt::format("{}, expected {}", streams,
                                                           context.is_session ? "1 to 256" : "1"));
}

// A tensor: type, row of `elements`, `rows` of them for each stream.
Status read_tensor(Reader& reader, const ParseContext& context, std::string_view part,
                   const PlaneRef& ref, std::uint64_t elements, std::uint64_t rows,
                   std::uint32_t streams, std::vector<DirectSource>& sources) {
    const memory::Plane& plane = context.plane(ref);
    STET_ASSIGN(const auto type, reader.read<std::int32_t>("tensor type"));
    STET_TRY(check_type(reader, type, plane));
    STET_ASSIGN(const auto found_elements, reader.read<std::uint64_t>("tensor width"));
    STET_TRY(expect(reader, part, "width of rows", found_elements, elements));
    STET_ASSIGN(const auto found_rows, reader.read<std::uint64_t>("tensor rows"));
    STET_TRY(expect(reader, part, "number of rows", found_rows, rows));
    STET_ASSIGN(const auto row_bytes, reader.read<std::uint64_t>("tensor row size"));
    STET_TRY(
        expect(reader, part, "size of rows", row_bytes, memory::row_bytes(plane.type, elements)));
    STET_TRY(reader.require(rows, row_bytes, "tensor"));
    STET_TRY(reader.require(streams, rows * row_bytes, "tensor"));
    STET_ASSIGN(const auto data, reader.read_bytes(streams * rows * row_bytes, "tensor"));
    sources.push_back({ref, data.data(), rows, row_bytes, streams});
    return {};
}

Status read_layer(Reader& reader, std::string_view part, std::int32_t expected) {
    STET_ASSIGN(const auto layer, reader.read<std::uint32_t>("layer"));
    return expect(reader, part, "layer", layer, static_cast<std::uint64_t>(expected));
}

// The number of streams; then the number of layers, which must be `layers`.
Result<std::uint32_t> read_streams(Reader& reader, const ParseContext& context,
                                   std::string_view part, std::size_t layers) {
    STET_ASSIGN(const auto streams, reader.read<std::uint32_t>("number of streams"));
    STET_TRY(check_streams(reader, context, streams));
    STET_ASSIGN(const auto found, reader.read<std::uint32_t>("number of layers"));
    STET_TRY(expect(reader, part, "number of layers", found, layers));
    return streams;
}

Status read_compressed(Reader& reader, const ParseContext& context, const CompressedLayout& layout,
                       std::vector<DirectSource>& sources) {
    STET_ASSIGN(const auto version, reader.read<std::uint32_t>("cache version"));
    if (version < kCacheVersionFirst || version > kCacheVersionLast) {
        return Status(Code::incompatible,
                      fmt::format("{}: compressed cache of version {}, expected {} or {}",
                                  reader.what(), version, kCacheVersionFirst, kCacheVersionLast));
    }
    STET_ASSIGN(const auto rows, reader.read<std::uint32_t>("cache rows"));
    STET_ASSIGN(const auto streams,
                read_streams(reader, context, layout.name, layout.layers.size()));
    for (const CellLayer& layer : layout.layers) {
        STET_TRY(read_layer(reader, layout.name, layer.layer));
        STET_TRY(read_tensor(reader, context, layout.name, layer.k[0],
                             context.plane(layer.k[0]).elements, rows, streams, sources));
    }
    return {};
}

Status read_compressor(Reader& reader, const ParseContext& context, const CompressorLayout& layout,
                       std::vector<DirectSource>& sources) {
    STET_ASSIGN(const auto version, reader.read<std::uint32_t>("compressor version"));
    STET_TRY(expect(reader, layout.name, "version", version, kCompressorVersion));
    STET_ASSIGN(const auto ratio, reader.read<std::uint32_t>("compressor ratio"));
    STET_TRY(expect(reader, layout.name, "ratio", ratio, layout.ratio));
    STET_ASSIGN(const auto rows, reader.read<std::uint32_t>("compressor rows"));
    STET_ASSIGN(const auto width, reader.read<std::uint32_t>("compressor width"));
    STET_ASSIGN(const auto streams,
                read_streams(reader, context, layout.name, layout.layers.size()));
    for (const CompressorLayer& layer : layout.layers) {
        STET_TRY(read_layer(reader, layout.name, layer.layer));
        for (const PlaneRef& ref : {layer.kv, layer.score}) {
            STET_TRY(expect(reader, layout.name, "elements of state", std::uint64_t{rows} * width,
                            context.plane(ref).elements));
            STET_TRY(read_tensor(reader, context, layout.name, ref, width, rows, streams, sources));
        }
    }
    return {};
}

}  // namespace

Status parse_dsv4_header(Reader& reader) {
    STET_ASSIGN(const auto magic, reader.read<std::uint32_t>("DeepSeek-V4 magic"));
    STET_TRY(expect(reader, "DeepSeek-V4", "magic", magic, kMagic));
    STET_ASSIGN(const auto version, reader.read<std::uint32_t>("DeepSeek-V4 version"));
    STET_TRY(expect(reader, "DeepSeek-V4", "version", version, kVersion));
    STET_ASSIGN(const auto mode, reader.read<std::uint32_t>("DeepSeek-V4 mode"));
    if (mode == kFull) return {};
    return Status(
        Code::unimplemented,
        fmt::format("{}: a partial state (mode {}), which can't stand alone", reader.what(), mode));
}

Status parse_dsv4(Reader& reader, const ParseContext& context, const Layout& layout,
                  std::vector<DirectSource>& sources) {
    for (const CompressedLayout& part : layout.compressed) {
        STET_TRY(read_compressed(reader, context, part, sources));
    }
    for (const CompressorLayout& part : layout.compressors) {
        STET_TRY(read_compressor(reader, context, part, sources));
    }
    return {};
}

}  // namespace stet::state::llama
