// Choosing the next token from logits. A chain in the usual order: penalties, then (temperature >
// 0) top-k, top-p, min-p, temperature, draw. Temperature 0 takes the best logit; of equals the
// lowest id.
//
// A Sampler is state that belongs to a sequence: it travels with it (encode/decode), so that a
// restored sequence draws the same next token. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "state/sequence.h"
#include "stet/status.h"

namespace stet::engine {

using state::Token;

struct SamplerOptions {
    float temperature = 0.8F;           // 0: greedy
    std::uint32_t top_k = 40;           // 0: all
    float top_p = 0.95F;                // 1: off (Holtzman et al., arXiv 1904.09751)
    float min_p = 0.05F;                // 0: off (arXiv 2407.01082)
    float repeat_penalty = 1.0F;        // 1: off (CTRL, arXiv 1909.05858)
    float presence_penalty = 0.0F;      // subtracted once for a token seen
    float frequency_penalty = 0.0F;     // subtracted for each time it was seen
    std::uint32_t penalty_window = 64;  // last tokens that penalties look at
    std::uint64_t seed = 0;             // 0: from the system's entropy
    // Added to logits before anything else; -infinity bans a token. Ids past the vocabulary are
    // ignored.
    std::vector<std::pair<Token, float>> logit_bias;

    // invalid_argument naming the option, its value and its range.
    Status validate() const;
};

struct TokenProbability {
    Token token;
    float logit;
    float probability;  // after the chain
};

// How sure a choice is, by the distribution that it is drawn from; with temperature 0 by all tokens
// at temperature 1.
struct Certainty {
    double probability = 0.0;       // of what was chosen
    double margin = 0.0;            // of the best token over the second
    double negative_entropy = 0.0;  // sum of p ln p: at most 0, which is certain
};

class Sampler {
  public:
    explicit Sampler(const SamplerOptions& options);

    // `logits` has one entry a token of the vocabulary. Does not note the token: see accept().
    Token sample(std::span<const float> logits);
    // The same, and how sure it is.
    Token sample(std::span<const float> logits, Certainty& certainty);
    // The token is part of the sequence now (prompt tokens too, for the penalties).
    void accept(Token token);

    // The next number of the same generator, in [0, 1).
    double uniform();

    // The seed really used, and where its generator stands.
    std::uint64_t seed() const { return seed_; }
    std::vector<std::byte> encode() const;
    static Result<Sampler> decode(std::span<const std::byte> data, const SamplerOptions& options);

  private:
    std::uint64_t next_random();
    bool has_penalties() const;
    std::span<const float> apply_bias(std::span<const float> logits);
    std::span<const float> apply_penalties(std::span<const float> logits);
    std::span<const float> adjusted(std::span<const float> logits);
    Token choose(std::span<const float> logits);
    Certainty certainty_of(Token token) const;
    void collect(std::span<const float> logits, std::size_t limit);
    double weigh();
    void keep_min_p();
    void keep_top_p(double total);
    Token draw();

    SamplerOptions options_;
    std::uint64_t seed_ = 0;
    std::uint64_t random_state_[4] = {};        // xoshiro256** (Blackman & Vigna, arXiv 1805.01407)
    std::vector<Token> recent_;                 // the last penalty_window tokens, oldest first
    std::vector<TokenProbability> candidates_;  // scratch
    std::vector<float> biased_;                 // scratch
    std::vector<float> penalized_;              // scratch
};

}  // namespace stet::engine
