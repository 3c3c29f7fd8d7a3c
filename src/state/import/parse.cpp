#include "state/import/parse.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"

namespace stet::state::llama {
namespace {

// Numbers of ggml's types, for those that a cache can have.
struct TypeName {
    std::int32_t number;
    std::string_view name;
};
constexpr std::array kTypeNames = {
    TypeName{0, "f32"},  TypeName{1, "f16"},     TypeName{2, "q4_0"},
    TypeName{3, "q4_1"}, TypeName{6, "q5_0"},    TypeName{7, "q5_1"},
    TypeName{8, "q8_0"}, TypeName{20, "iq4_nl"}, TypeName{30, "bf16"},
};

std::string type_name(std::int32_t number) {
    for (const TypeName& type : kTypeNames) {
        if (type.number == number) return std::string(type.name);
    }
    return fmt::format("type {}", number);
}

// A cache without layers that may or may not stand here. Read only where it makes sense: where
// there are tokens it has cells.
void skip_empty_cells(Reader& reader, const ParseContext& context, std::string_view name,
                      bool has_tokens) {
    const CellLayout empty{.name = name};
    Reader attempt = reader;
    const auto part = parse_cells(attempt, context, empty);
    if (part && part->streams.empty() != has_tokens) reader = attempt;
}

Status parse_memory(Reader& reader, const ParseContext& context, Parsed& parsed) {
    const Layout& layout = parsed.layout;
    if (layout.is_dsv4) STET_TRY(parse_dsv4_header(reader));
    const bool has_tokens = !parsed.tokens.empty();
    if (layout.may_begin_empty) skip_empty_cells(reader, context, "attention", has_tokens);
    const auto parse_part = [&](const CellLayout& cells) -> Status {
        STET_ASSIGN(CellPart part, parse_cells(reader, context, cells));
        parsed.parts.push_back(std::move(part));
        return {};
    };
    for (std::size_t i = 0; i < layout.recurrent_after; ++i) {
        STET_TRY(parse_part(layout.cells[i]));
        if (layout.may_have_empty_window) skip_empty_cells(reader, context, "window", has_tokens);
    }
    if (layout.has_recurrent) {
        STET_ASSIGN(parsed.recurrent, parse_recurrent(reader, context, layout.recurrent));
    }
    for (std::size_t i = layout.recurrent_after; i < layout.cells.size(); ++i) {
        STET_TRY(parse_part(layout.cells[i]));
    }
    if (layout.is_dsv4) STET_TRY(parse_dsv4(reader, context, layout, parsed.direct));
    return reader.finish();
}

}  // namespace

Status check_type(const Reader& reader, std::int32_t found, const memory::Plane& plane) {
    const std::string_view expected = memory::element_type_name(plane.type);
    if (type_name(found) == expected) return {};
    return Status(Code::incompatible,
                  fmt::format("{}: layer {}: '{}' rows of {}, expected {}", reader.what(),
                              plane.layer, plane.name, type_name(found), expected));
}

Result<Parsed> parse(std::span<const std::byte> file, const std::string& name,
                     const ImportTarget& target, const memory::Schema& schema) {
    Reader reader(file, name);
    Parsed parsed;
    STET_ASSIGN(parsed.layout, layout_of(schema, target));
    STET_ASSIGN(parsed.tokens, parse_container(reader, target, parsed.kind));
    Status failure;
    for (const bool prefers_extension : {false, true}) {
        Parsed attempt = parsed;
        Reader rest = reader;
        const ParseContext context{schema, target, parsed.is_session(), prefers_extension};
        const Status status = parse_memory(rest, context, attempt);
        if (status) return attempt;
        if (!prefers_extension) failure = status;
    }
    return failure;
}

}  // namespace stet::state::llama
