// What a public Model stands for. Its contexts share it.
#pragma once

#include <memory>

#include "base/hash.h"
#include "engine/engine.h"
#include "state/snapshot.h"
#include "stet/model.h"
#include "text/chat_template.h"

namespace stet {

struct Model::Impl {
    // The fingerprint is computed when first asked for.
    Result<const state::Identity*> identity();

    std::unique_ptr<engine::Engine> engine;
    std::unique_ptr<text::ChatTemplate> chat_template;  // null: without text
    model::StateTypes types;
    std::filesystem::path cache_directory;
    std::unique_ptr<state::Identity> known_identity;
};

}  // namespace stet
