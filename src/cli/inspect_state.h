// `stet inspect` of files with state: ours (state/encode.h, store/session_file.h) and llama.cpp's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/env.h"
#include "cli/terminal.h"
#include "stet/status.h"

namespace stet::cli {

// What the file is by its first bytes; nothing if it is none with state.
enum class StateFile : std::uint8_t { sequence, session, llama };
std::optional<StateFile> state_file_kind(const File& file, std::uint64_t size_bytes);

// Reads the whole file, proves it as far as it can be, and prints what is in it.
Status inspect_state(const std::string& path, const File& file, std::uint64_t size_bytes,
                     StateFile kind, bool is_json, Terminal& terminal);

}  // namespace stet::cli
