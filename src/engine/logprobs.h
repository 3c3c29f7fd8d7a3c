// How likely the model found a token and its rivals: log-softmax of the raw logits, before bias,
// penalties and sampling.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "state/sequence.h"

namespace stet::engine {

struct TokenLogprobs {
    state::Token token;
    float logprob;  // natural logarithm; the lowest float instead of -infinity
    std::vector<std::pair<state::Token, float>> top;  // best first; of equals the lower id first
};

TokenLogprobs token_logprobs(std::span<const float> logits, state::Token token,
                             std::uint32_t top_count);

}  // namespace stet::engine
