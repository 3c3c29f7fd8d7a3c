// llama.cpp state for a loaded model: what the importer has to know about it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/env.h"
#include "engine/engine.h"
#include "state/import/import.h"
#include "stet/status.h"

namespace stet::engine {

state::ImportTarget import_target(const Engine& engine);

// Reads a sequence, session or slot file; every sequence must fit the engine's context. Nothing
// that is alive changes, whatever the outcome.
Result<state::Imported> import_state(Engine& engine, Env& env, const std::filesystem::path& path);
// The same for bytes that are in memory; `name` stands for them in messages.
Result<state::Imported> import_state(Engine& engine, std::span<const std::byte> data,
                                     const std::string& name);

}  // namespace stet::engine
