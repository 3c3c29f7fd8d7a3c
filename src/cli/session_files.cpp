// `stet session export` and `import`: a conversation in one file.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/env.h"
#include "base/memory_size.h"
#include "base/try.h"
#include "cli/paths.h"
#include "cli/session_flags.h"
#include "cli/store_access.h"
#include "gguf/gguf.h"
#include "store/session_file.h"

namespace stet::cli {
namespace {

Json file_json(const store::SessionFile& file, std::uint64_t bytes) {
    return {{"turns", file.turns.size()},
            {"tokens", file.sequence().position()},
            {"bytes", bytes},
            {"compressed", file.is_compressed},
            {"model_name", file.identity().model_name},
            {"fingerprint", file.identity().fingerprint.hex()}};
}

// That the model in the file `path` is the one that the session is of.
Status check_model(const std::string& path, const store::SessionFile& file) {
    STET_ASSIGN(const auto model, gguf::File::open(Env::posix(), path));
    STET_ASSIGN(const Hash256 fingerprint,
                gguf::fingerprint(Env::posix(), *model, cache_directory()));
    if (fingerprint == file.identity().fingerprint) return {};
    return Status(Code::incompatible,
                  fmt::format("the session was made with model '{}', fingerprint {}; {} has {}",
                              file.identity().model_name, file.identity().fingerprint.hex(), path,
                              fingerprint.hex()));
}

}  // namespace

Status export_session(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto store, open_store(flags.store, true));
    STET_ASSIGN(const auto name, resolve_session(*store, flags.name));
    Env& env = Env::posix();
    const std::string path = flags.other.empty() ? name + ".stet" : flags.other;
    if (const auto there = env.info(path); !flags.force && there.is_ok()) {
        return Status(Code::already_exists,
                      fmt::format("{} is there already: --force replaces it", path));
    }
    STET_ASSIGN(store::SessionFile file, store::collect_session(*store, name));
    file.is_compressed = flags.zstd;
    std::uint64_t bytes = 0;
    const Status written = replace_file(env, path, [&](File& to) {
        state::FileSink sink(to);
        Status status = store::write_session(file, flags.zstd, sink);
        bytes = sink.written();
        return status;
    });
    STET_TRY(written);
    if (store->is_encrypted()) {
        terminal.note(fmt::format("{} is not encrypted, as the store is: keep it safe", path));
    }
    Json json = {{"exported", name}, {"file", path}};
    json.update(file_json(file, bytes));
    return answer(flags, terminal, json,
                  fmt::format("{}: {} turns, {} tokens, {}", path, file.turns.size(),
                              file.sequence().position(), format_bytes(bytes)));
}

Status import_session(const SessionFlags& flags, Terminal& terminal) {
    STET_ASSIGN(const auto from, Env::posix().open(flags.name, OpenMode::read));
    STET_ASSIGN(const std::uint64_t bytes, from->size());
    state::FileSource source(*from, bytes);
    auto read = store::read_session(source, half_of_memory());
    if (!read) return read.status().with_context(flags.name);
    const store::SessionFile file = std::move(read).value();
    if (!flags.model.empty()) STET_TRY(check_model(flags.model, file));
    const std::string name = flags.other.empty() ? file.name : flags.other;
    STET_ASSIGN(const auto store, open_store(flags.store, false));
    STET_ASSIGN(const store::SessionInfo made, store::import_session(*store, file, name));
    Json json = {{"imported", made.name}, {"file", flags.name}};
    json.update(file_json(file, bytes));
    return answer(flags, terminal, json,
                  fmt::format("{}: {} turns, {} tokens of model {}", made.name, made.turns,
                              made.tokens, made.model_name));
}

}  // namespace stet::cli
