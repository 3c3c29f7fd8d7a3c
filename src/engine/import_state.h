// llama.cpp state for a loaded model: what the importer has to know about it.
#pragma once

#include <filesystem>

#include "base/env.h"
#include "engine/engine.h"
#include "state/import/import.h"
#include "stet/status.h"

namespace stet::engine {

state::ImportTarget import_target(const Engine& engine);

// Reads a sequence, session or slot file; every sequence must fit the engine's context. Nothing
// that is alive changes, whatever the outcome.
Result<state::Imported> import_state(Engine& engine, Env& env, const std::filesystem::path& path);

}  // namespace stet::engine
