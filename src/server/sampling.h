// Fields of requests that say how to choose tokens and when to stop, the same for all interfaces.
#pragma once

#include "engine/engine.h"
#include "server/context.h"
#include "server/json.h"

namespace stet::server {

inline constexpr std::uint32_t kTopLogprobsMax = 20;
inline constexpr std::int64_t kChoicesMax = 32;

// Reads temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, presence_penalty,
// frequency_penalty, seed, stop, ignore_eos, logit_bias. The first wrong field is fields.status().
void read_sampling(const Context& context, Fields& fields, engine::GenerateOptions& options);
// max_tokens under any of its names; the server's --predict bounds it.
void read_tokens_max(const Context& context, Fields& fields,
                     std::initializer_list<std::string_view> names,
                     engine::GenerateOptions& options);

}  // namespace stet::server
