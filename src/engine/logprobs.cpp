#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace stet::engine {

TokenLogprobs token_logprobs(std::span<const float> logits, state::Token token,
                             std::uint32_t top_count) {
    float best = std::numeric_limits<float>::lowest();
    for (const float logit : logits) {
        if (logit > best) best = logit;
    }
    double sum = 0.0;
    for (const float logit : logits) {
        if (!std::isnan(logit)) sum += std::exp(static_cast<double>(logit) - best);
    }
    const double log_sum = std::log(sum);
    const auto logprob = [&](state::Token id) {
        const double value =
            static_cast<double>(logits[static_cast<std::size_t>(id)]) - best - log_sum;
        constexpr float kLowest = std::numeric_limits<float>::lowest();
        return std::isfinite(value) ? static_cast<float>(value) : kLowest;
    };
    TokenLogprobs result{token, logprob(token), {}};
    const std::size_t count = std::min<std::size_t>(top_count, logits.size());
    if (count == 0) return result;
    std::vector<state::Token> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto is_better = [&](state::Token a, state::Token b) {
        const float left = logits[static_cast<std::size_t>(a)];
        const float right = logits[static_cast<std::size_t>(b)];
        if (std::isnan(left) || std::isnan(right)) {
            if (std::isnan(left) != std::isnan(right)) return std::isnan(right);
            return a < b;
        }
        return left != right ? left > right : a < b;
    };
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                      is_better);
    for (std::size_t i = 0; i < count; ++i) result.top.emplace_back(ids[i], logprob(ids[i]));
    return result;
}

}  // namespace stet::engine
