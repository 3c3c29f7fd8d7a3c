#include "engine/import_state.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/architectures.h"

namespace stet::engine {

state::ImportTarget import_target(const Engine& engine) {
    const model::Config& config = engine.model().config;
    return {.architecture = std::string(config.architecture->name),
            .layers = static_cast<std::uint32_t>(config.layers.size()),
            .vocabulary = config.vocabulary,
            .window_is_chunk = config.architecture->window_chunked};
}

Result<state::Imported> import_state(Engine& engine, Env& env, const std::filesystem::path& path) {
    STET_ASSIGN(const auto mapping, env.map(path));
    return import_state(engine, mapping->bytes(), path.string());
}

Result<state::Imported> import_state(Engine& engine, std::span<const std::byte> data,
                                     const std::string& name) {
    const state::ImportTarget target = import_target(engine);
    STET_ASSIGN(const auto summary, state::check_llama_state(data, name, target, engine.schema()));
    for (const auto& entry : summary.sequences) {
        if (entry.tokens <= engine.context()) continue;
        return Status(Code::resource_exhausted,
                      fmt::format("{}: sequence {} has {} tokens, the context {}; raise --ctx",
                                  name, entry.id, entry.tokens, engine.context()));
    }
    return state::import_llama_state(data, name, target, engine.pool());
}

}  // namespace stet::engine
