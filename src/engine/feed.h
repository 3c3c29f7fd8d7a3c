// Tokens into sequences, in as many steps as they need.
#pragma once

#include <span>

#include "engine/batch.h"
#include "engine/engine.h"
#include "stet/status.h"

namespace stet::engine {

// Steps of at most engine.batch() tokens, sequences side by side, ending where checkpoints are due.
// Of each part only the last token gets logits. When a step fails, the steps before it have
// happened: whoever wants all or nothing gives copies. invalid_argument for an empty sequence of a
// model with an encoder (T5): its prompt is a generation's.
Status feed(Engine& engine, std::span<const Part> parts);

}  // namespace stet::engine
