// What stands before the memory: magic, version, tokens, and the name of the architecture.
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "state/import/parse.h"

namespace stet::state::llama {
namespace {

constexpr std::uint32_t kSessionMagic = 0x6767736e;   // ggsn
constexpr std::uint32_t kSequenceMagic = 0x67677371;  // ggsq
constexpr std::uint32_t kSessionVersion = 11;
constexpr std::uint32_t kSequenceVersion = 4;
constexpr std::int32_t kBlobMark = -1;  // a server's slot: tokens in a blob of its own
constexpr std::uint32_t kBlobVersion = 1;
constexpr std::size_t kNameShown = 40;  // of a foreign architecture's

// A name out of a file, fit for a message.
std::string shown(std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte byte : bytes.first(std::min(bytes.size(), kNameShown))) {
        const char c = static_cast<char>(byte);
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text + (bytes.size() > kNameShown ? "..." : "");
}

Result<std::vector<Token>> read_tokens(Reader& reader, std::uint32_t count) {
    STET_TRY(reader.require(count, sizeof(Token), "token count"));
    std::vector<Token> tokens(count);
    for (Token& token : tokens) {
        STET_ASSIGN(token, reader.read<Token>("token"));
    }
    return tokens;
}

Result<std::vector<Token>> read_blob(Reader& reader) {
    STET_ASSIGN([[maybe_unused]] const auto mark, reader.read<std::int32_t>("slot mark"));
    STET_ASSIGN(const auto version, reader.read<std::uint32_t>("slot token version"));
    if (version != kBlobVersion) {
        return Status(Code::incompatible, fmt::format("{}: slot tokens of version {}, expected {}",
                                                      reader.what(), version, kBlobVersion));
    }
    STET_ASSIGN(const auto count, reader.read<std::uint32_t>("slot token count"));
    STET_ASSIGN(auto tokens, read_tokens(reader, count));
    STET_ASSIGN(const auto media, reader.read<std::uint32_t>("media count"));
    if (media != 0) {
        return Status(Code::unimplemented,
                      fmt::format("{}: the slot holds {} media chunks (images or sound), which "
                                  "can't be imported",
                                  reader.what(), media));
    }
    STET_TRY(reader.finish());
    return tokens;
}

Status check_tokens(const Reader& reader, std::span<const Token> tokens, std::uint32_t vocabulary) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= 0 &&
            (vocabulary == 0 || static_cast<std::uint32_t>(tokens[i]) < vocabulary)) {
            continue;
        }
        return Status(Code::incompatible,
                      fmt::format("{}: token {} has id {}, the model's are 0 to {}", reader.what(),
                                  i, tokens[i], std::int64_t{vocabulary} - 1));
    }
    return {};
}

Result<std::span<const std::byte>> read_architecture(Reader& reader) {
    STET_ASSIGN(const auto size, reader.read<std::uint32_t>("length of the architecture's name"));
    return reader.read_bytes(size, "architecture");
}

Status check_architecture(Reader& reader, const std::string& expected) {
    STET_ASSIGN(const auto name, read_architecture(reader));
    if (std::ranges::equal(name, std::as_bytes(std::span(expected)))) return {};
    return Status(Code::incompatible, fmt::format("{}: state of a '{}' model, expected '{}'",
                                                  reader.what(), shown(name), expected));
}

// Magic, version and tokens.
Result<ForeignHead> read_head(Reader& reader) {
    ForeignHead head;
    STET_ASSIGN(const auto magic, reader.read<std::uint32_t>("magic"));
    if (magic != kSessionMagic && magic != kSequenceMagic) {
        return Status(
            Code::corruption,
            fmt::format("{}: begins with {:#010x}, which is no llama.cpp sequence ({:#x}) "
                        "or session ({:#x}) file",
                        reader.what(), magic, kSequenceMagic, kSessionMagic));
    }
    head.kind = magic == kSessionMagic ? ImportKind::session : ImportKind::sequence;
    const std::uint32_t expected =
        head.kind == ImportKind::session ? kSessionVersion : kSequenceVersion;
    STET_ASSIGN(head.version, reader.read<std::uint32_t>("version"));
    if (head.version != expected) {
        return Status(Code::incompatible,
                      fmt::format("{}: {} file of version {}, expected {}", reader.what(),
                                  import_kind_name(head.kind), head.version, expected));
    }
    STET_ASSIGN(const auto count, reader.read<std::uint32_t>("token count"));
    STET_TRY(reader.require(count, sizeof(Token), "token count"));
    STET_ASSIGN(const auto area, reader.read_bytes(std::uint64_t{count} * sizeof(Token), "tokens"));
    Reader area_reader(area, reader.what());
    Reader first = area_reader;
    if (head.kind == ImportKind::sequence && count > 0 &&
        *first.read<std::int32_t>("token") == kBlobMark) {
        head.kind = ImportKind::slot;
        STET_ASSIGN(head.tokens, read_blob(area_reader));
    } else {
        STET_ASSIGN(head.tokens, read_tokens(area_reader, count));
    }
    return head;
}

}  // namespace

Result<std::vector<Token>> parse_container(Reader& reader, const ImportTarget& target,
                                           ImportKind& kind) {
    STET_ASSIGN(ForeignHead head, read_head(reader));
    kind = head.kind;
    STET_TRY(check_tokens(reader, head.tokens, target.vocabulary));
    if (kind == ImportKind::session) STET_TRY(check_architecture(reader, target.architecture));
    return std::move(head.tokens);
}

}  // namespace stet::state::llama

namespace stet::state {

bool is_llama_state(std::span<const std::byte> file) {
    Reader reader(file, "file");
    const auto magic = reader.read<std::uint32_t>("magic");
    return magic && (*magic == llama::kSessionMagic || *magic == llama::kSequenceMagic);
}

Result<ForeignHead> read_llama_head(std::span<const std::byte> file, const std::string& name) {
    Reader reader(file, name);
    STET_ASSIGN(ForeignHead head, llama::read_head(reader));
    STET_TRY(llama::check_tokens(reader, head.tokens, 0));
    if (head.kind == ImportKind::session) {
        STET_ASSIGN(const auto architecture, llama::read_architecture(reader));
        head.architecture = llama::shown(architecture);
    }
    head.memory_bytes = reader.left();
    return head;
}

}  // namespace stet::state
