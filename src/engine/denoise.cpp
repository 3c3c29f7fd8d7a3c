#include "engine/denoise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace stet::engine {
namespace {

constexpr std::uint32_t kStepsMax = 1U << 20;
constexpr std::uint32_t kLengthMax = 1U << 20;

Status out_of_range(std::string_view option, double value, std::string_view range) {
    return Status(Code::invalid_argument,
                  fmt::format("diffusion: {} is {}, it must be {}", option, value, range));
}

}  // namespace

Status DenoiseOptions::validate() const {
    if (steps == 0 || steps > kStepsMax) {
        return out_of_range("steps", steps, fmt::format("from 1 to {}", kStepsMax));
    }
    if (length == 0 || length > kLengthMax) {
        return out_of_range("length", length, fmt::format("from 1 to {}", kLengthMax));
    }
    if (!(eps >= 0.0F && eps < 1.0F)) return out_of_range("eps", eps, "at least 0 and below 1");
    if (!(algorithm_temperature >= 0.0F && algorithm_temperature <= 100.0F)) {
        return out_of_range("algorithm temperature", algorithm_temperature, "from 0 to 100");
    }
    if (!(guidance >= 0.0F && guidance <= 100.0F)) {
        return out_of_range("guidance (cfg scale)", guidance, "from 0 to 100");
    }
    if (algorithm > Unmask::confidence) {
        return out_of_range("algorithm", static_cast<double>(algorithm), "from 0 to 4");
    }
    return {};
}

Result<MaskedModel> masked_model(const gguf::File& file, std::uint32_t vocabulary) {
    constexpr std::string_view kMask = "tokenizer.ggml.mask_token_id";
    const auto mask = file.get_uint(kMask);
    if (!mask) {
        return Status(Code::not_found,
                      fmt::format("{}: a diffusion model without {} can't make an answer",
                                  file.path().string(), kMask));
    }
    if (*mask >= vocabulary) {
        return Status(Code::corruption,
                      fmt::format("{}: {} is {}, the model has {} tokens", file.path().string(),
                                  kMask, *mask, vocabulary));
    }
    return MaskedModel{static_cast<Token>(*mask),
                       file.get_bool("diffusion.shift_logits").value_or(true)};
}

Denoiser::Denoiser(const DenoiseOptions& options, const MaskedModel& model, std::size_t length,
                   std::optional<std::uint32_t> logprobs)
    : options_(options), model_(model), logprobs_count_(logprobs), answer_(length, model.mask) {
    if (options_.eps > 0.0F || options_.block_length == 0) {
        options_.block_length = static_cast<std::uint32_t>(length);
    }
    blocks_ = (length + options_.block_length - 1) / options_.block_length;
    begin_block();
}

RowRange Denoiser::block() const {
    const std::size_t begin = block_ * options_.block_length;
    return {begin, std::min(begin + options_.block_length, answer_.size())};
}

// Steps are shared out evenly among the blocks; each has one at least.
void Denoiser::begin_block() {
    const RowRange range = block();
    const auto until = [&](std::size_t block) {
        return static_cast<std::uint32_t>(options_.steps * block / blocks_);
    };
    masks_ = range.end - range.begin;
    block_steps_ = std::max(until(block_ + 1) - until(block_), 1U);
    step_ = 0;
    if (logprobs_count_) logprobs_.assign(masks_, {});
    while (fill_count() == 0) ++step_;
}

void Denoiser::next_block() {
    steps_before_ += block_steps_;
    ++block_;
    begin_block();
}

// How many masks this step fills. Blocks: evenly, the first steps one more (LLaDA). By time
// (Dream): of what is left 1 - s / t, t and s being the time before and after the step. The last
// step fills all that is left.
std::size_t Denoiser::fill_count() const {
    if (step_ + 1 >= block_steps_) return masks_;
    const std::size_t steps_left = block_steps_ - step_;
    if (options_.eps == 0.0F) return (masks_ + steps_left - 1) / steps_left;
    const auto time = [&](std::uint32_t step) {
        return 1.0 - static_cast<double>(step) / block_steps_ * (1.0 - double{options_.eps});
    };
    return static_cast<std::size_t>(static_cast<double>(masks_) *
                                    (1.0 - time(step_ + 1) / time(step_)));
}

// The mask itself is never an answer: what is left of it at the end would be text.
Denoiser::Candidate Denoiser::candidate(std::size_t place, std::span<const float> logits,
                                        Sampler& sampler) {
    row_.assign(logits.begin(), logits.end());
    row_[static_cast<std::size_t>(model_.mask)] = -std::numeric_limits<float>::infinity();
    Certainty certainty;
    Candidate made{place, sampler.sample(row_, certainty), certainty.probability};
    // Logits that are no numbers choose token 0.
    if (made.token == model_.mask) made.token = model_.mask == 0 ? 1 : 0;
    if (options_.algorithm == Unmask::entropy) made.certainty = certainty.negative_entropy;
    if (options_.algorithm == Unmask::margin) made.certainty = certainty.margin;
    if (options_.algorithm == Unmask::random) made.certainty = sampler.uniform();
    return made;
}

// Moves the `count` that are to be filled to the front.
void Denoiser::choose(std::vector<Candidate>& candidates, std::size_t count,
                      Sampler& sampler) const {
    if (options_.algorithm_temperature == 0.0F) {
        std::stable_sort(
            candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.certainty > b.certainty; });
        return;
    }
    // By chance without putting back: the greatest of certainty / t + Gumbel noise (arXiv
    // 1903.06059).
    for (Candidate& candidate : candidates) {
        const double noise = -std::log(-std::log(sampler.uniform() + 0x1.0p-54));
        candidate.certainty = candidate.certainty / options_.algorithm_temperature + noise;
    }
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                      candidates.end(), [](const Candidate& a, const Candidate& b) {
                          return a.certainty > b.certainty;
                      });
}

void Denoiser::put(const Candidate& candidate, std::span<const float> logits) {
    answer_[block().begin + candidate.place] = candidate.token;
    --masks_;
    if (logprobs_count_) {
        logprobs_[candidate.place] = token_logprobs(logits, candidate.token, *logprobs_count_);
    }
}

void Denoiser::fill(std::span<const float> logits, Sampler& sampler) {
    const RowRange range = block();
    const std::size_t vocabulary = logits.size() / (range.end - range.begin);
    const auto row = [&](std::size_t place) {
        return logits.subspan(place * vocabulary, vocabulary);
    };
    const std::size_t count = fill_count();
    const bool by_chance = options_.algorithm == Unmask::origin;
    const double chance = static_cast<double>(count) / static_cast<double>(masks_);
    std::vector<Candidate> candidates;
    for (std::size_t place = 0; place < range.end - range.begin; ++place) {
        if (answer_[range.begin + place] != model_.mask) continue;
        if (by_chance && sampler.uniform() >= chance) continue;
        candidates.push_back(candidate(place, row(place), sampler));
    }
    if (!by_chance) {
        choose(candidates, count, sampler);
        candidates.resize(count);
    }
    for (const Candidate& chosen : candidates) put(chosen, row(chosen.place));
    ++step_;
    while (masks_ != 0 && fill_count() == 0) ++step_;
}

void guide(std::span<float> logits, std::span<const float> without, float guidance) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
        logits[i] += guidance * (logits[i] - without[i]);
    }
}

}  // namespace stet::engine
