// The text that a new turn adds to what earlier turns already stand for.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/turn_content.h"
#include "stet/status.h"

namespace stet::engine {

// Renders messages through a chat template.
using RenderMessages = std::function<Result<std::string>(const std::vector<Message>& messages,
                                                         bool generation_prompt)>;

// Templates may write earlier messages anew (trimmed, without their reasoning); the state has them
// as they were (`so_far`), so then only what follows the last answer is taken from the template.
Result<std::string> new_turn_text(const RenderMessages& render, std::string_view so_far,
                                  const std::vector<Message>& before,
                                  const std::vector<Message>& after);

}  // namespace stet::engine
