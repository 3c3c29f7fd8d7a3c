#include "store/session_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/try.h"
#include "state/checkpoint.h"
#include "state/compressed_stream.h"
#include "state/file_header.h"

namespace stet::store {
namespace {

constexpr std::uint32_t kCompressed = 1;
constexpr std::uint64_t kTurnBytesMin = 8 + 8 + 8 + 8;

Status corrupt(std::string why) {
    return Status(Code::corruption, std::move(why));
}

// K and V have the types of the planes with these names, where there are such.
memory::ElementType type_of(const memory::Schema& schema, std::string_view plane_name) {
    for (const memory::Group& group : schema.groups) {
        for (const memory::Plane& plane : group.planes) {
            if (plane.name == plane_name) return plane.type;
        }
    }
    return memory::ElementType::f16;
}

std::vector<std::byte> encode_turns(const SessionFile& file) {
    Writer writer;
    writer.write_string(file.name);
    writer.write_string(file.model_path);
    writer.write(static_cast<std::uint64_t>(file.turns.size()));
    for (const Turn& turn : file.turns) {
        writer.write(turn.token_end);
        writer.write(turn.created_ns);
        writer.write_string(turn.content);
        writer.write(static_cast<std::uint64_t>(turn.sampler.size()));
        writer.write_bytes(turn.sampler);
    }
    return writer.take();
}

Status decode_turns(std::span<const std::byte> bytes, SessionFile& file) {
    Reader reader(bytes, "turns");
    STET_ASSIGN(file.name, reader.read_string("session"));
    STET_ASSIGN(file.model_path, reader.read_string("model path"));
    STET_ASSIGN(const auto count, reader.read<std::uint64_t>("number of turns"));
    STET_TRY(reader.require(count, kTurnBytesMin, "turns"));
    if (count == 0) return reader.corrupt("number of turns", "is 0");
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        Turn turn;
        turn.number = i + 1;
        turn.token_begin = before;
        STET_ASSIGN(turn.token_end, reader.read<std::uint64_t>("end of a turn"));
        if (turn.token_end <= before) {
            return reader.corrupt("end of a turn",
                                  fmt::format("is {} after {}", turn.token_end, before));
        }
        before = turn.token_end;
        STET_ASSIGN(turn.created_ns, reader.read<std::int64_t>("time of a turn"));
        STET_ASSIGN(turn.content, reader.read_string("content"));
        STET_ASSIGN(const auto size, reader.read<std::uint64_t>("size of the sampler state"));
        STET_ASSIGN(const auto sampler, reader.read_bytes(size, "sampler state"));
        turn.sampler.assign(sampler.begin(), sampler.end());
        file.turns.push_back(std::move(turn));
    }
    return reader.finish();
}

std::vector<std::byte> make_header(std::uint32_t flags, std::span<const std::byte> turns) {
    Writer header;
    header.write_bytes(std::as_bytes(std::span(session_file::kMagic)));
    header.write(session_file::kVersion);
    header.write(flags);
    header.write(static_cast<std::uint64_t>(turns.size()));
    const Hash128 turns_checksum = xxh3_128(turns);
    header.write_bytes(std::as_bytes(std::span(turns_checksum.bytes)));
    header.write(std::uint64_t{0});
    return state::seal_file_header(std::move(header));
}

struct Header {
    std::uint32_t flags = 0;
    std::uint64_t turns_bytes = 0;
    Hash128 turns_checksum;
};

Result<Header> read_header(state::Source& source) {
    STET_ASSIGN(const auto bytes,
                state::read_file_header(source, session_file::kMagic, "an exported session"));
    Reader reader(std::span<const std::byte>(bytes).subspan(sizeof(session_file::kMagic)),
                  "header");
    Header header;
    STET_ASSIGN(const auto version, reader.read<std::uint32_t>("version"));
    STET_ASSIGN(header.flags, reader.read<std::uint32_t>("flags"));
    if (version != session_file::kVersion || (header.flags & ~kCompressed) != 0) {
        return Status(Code::incompatible,
                      fmt::format("an exported session of format version {}, flags {}; this "
                                  "program reads version {}: use the newer program",
                                  version, header.flags, session_file::kVersion));
    }
    STET_ASSIGN(header.turns_bytes, reader.read<std::uint64_t>("size of the turns"));
    STET_ASSIGN(const auto turns, reader.read_bytes(sizeof(Hash128), "checksum"));
    std::memcpy(header.turns_checksum.bytes.data(), turns.data(), turns.size());
    STET_ASSIGN(const auto filling, reader.read<std::uint64_t>("filling"));
    if (filling != 0) return reader.corrupt("filling", "is not 0");
    return header;
}

Result<std::vector<std::byte>> read_turns(state::Source& source, const Header& header) {
    STET_ASSIGN(std::vector<std::byte> bytes, state::read_stated(source, header.turns_bytes));
    if (xxh3_128(bytes) != header.turns_checksum) {
        return corrupt("the turns are damaged: their checksum does not fit");
    }
    return bytes;
}

Status read_body(state::Source& source, const Header& header, std::uint64_t pages_bytes_max,
                 SessionFile& file) {
    STET_ASSIGN(const std::vector<std::byte> turns, read_turns(source, header));
    STET_TRY(decode_turns(turns, file));
    STET_ASSIGN(file.state, state::decode_standalone(source, pages_bytes_max));
    const state::Saved& saved = file.state.saved;
    if (saved.kind != state::SavedKind::sequence) return corrupt("its state is a whole context's");
    if (file.turns.back().token_end != file.sequence().position()) {
        return corrupt(fmt::format("its turns end at token {}, its state at {}",
                                   file.turns.back().token_end, file.sequence().position()));
    }
    for (const Turn& turn : file.turns) {
        const auto there =
            state::reachable_position(saved.schema(), file.sequence(), turn.token_end);
        if (there != turn.token_end) {
            return corrupt(fmt::format("the state after turn {} is missing", turn.number));
        }
    }
    return {};
}

}  // namespace

Result<SessionFile> collect_session(Store& store, std::string_view name) {
    STET_ASSIGN(const SessionInfo info, store.find(name));
    if (info.head == kNoTurn) {
        return Status(
            Code::unavailable,
            fmt::format("session '{}' has no turn yet: there is nothing to export", name));
    }
    STET_ASSIGN(const memory::Schema schema, store.schema(name));
    SessionFile file;
    file.name = name;
    file.model_path = info.model_path;
    STET_ASSIGN(file.turns, store.turns(name));
    file.state.pool =
        std::make_unique<memory::PagePool>(schema, std::numeric_limits<std::uint64_t>::max());
    file.state.saved.pool = file.state.pool.get();
    file.state.saved.identity = state::Identity::of(info.fingerprint, schema, type_of(schema, "k"),
                                                    type_of(schema, "v"), info.model_name);
    STET_ASSIGN(Loaded head, store.load(name, info.fingerprint, *file.state.pool));
    if (state::needs_checkpoints(schema)) {
        // What only a value of that moment has: the end of each turn.
        std::vector<std::shared_ptr<const state::Checkpoint>> ends;
        for (const Turn& turn : file.turns) {
            if (turn.id == head.turn.id) break;
            STET_ASSIGN(const Loaded end,
                        store.load(name, info.fingerprint, *file.state.pool, turn.id));
            ends.push_back(end.sequence.checkpoints.back());
        }
        auto& kept = head.sequence.checkpoints;
        kept.insert(kept.begin(), ends.begin(), ends.end());
    }
    file.state.saved.entries.push_back({0, std::move(head.sequence)});
    return file;
}

Status write_session(const SessionFile& file, bool is_compressed, state::Sink& sink) {
    const std::vector<std::byte> turns = encode_turns(file);
    STET_TRY(sink.write(make_header(is_compressed ? kCompressed : 0, turns)));
    if (!is_compressed) {
        STET_TRY(sink.write(turns));
        return state::encode(file.state.saved, sink).status();
    }
    state::CompressingSink compressing(sink);
    STET_TRY(compressing.write(turns));
    STET_TRY(state::encode(file.state.saved, compressing).status());
    return compressing.finish();
}

Result<SessionFile> read_session(state::Source& source, std::uint64_t pages_bytes_max) {
    STET_ASSIGN(const Header header, read_header(source));
    SessionFile file;
    file.is_compressed = (header.flags & kCompressed) != 0;
    if (!file.is_compressed) {
        STET_TRY(read_body(source, header, pages_bytes_max, file));
        return file;
    }
    state::DecompressingSource body(source);
    STET_TRY(read_body(body, header, pages_bytes_max, file));
    STET_TRY(body.finish());
    return file;
}

Result<SessionInfo> import_session(Store& store, const SessionFile& file, std::string_view name) {
    const memory::Schema& schema = file.state.saved.schema();
    const state::Identity& identity = file.identity();
    std::vector<state::Sequence> ends;
    ends.reserve(file.turns.size());
    std::vector<Commit> commits;
    for (const Turn& turn : file.turns) {
        STET_ASSIGN(state::Sequence end, state::rollback(schema, file.sequence(), turn.token_end));
        ends.push_back(std::move(end));
        commits.push_back({std::string(name), &ends.back(), {turn.content, turn.sampler}, {}});
    }
    commits.front().created = {identity.fingerprint, identity.model_name, file.model_path};
    const std::vector<Result<Turn>> turns = store.commit_turns(schema, commits);
    // They stand or fall together.
    STET_TRY(turns.back().status());
    return store.find(name);
}

}  // namespace stet::store
