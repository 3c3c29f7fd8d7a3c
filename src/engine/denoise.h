// Answers of diffusion models: all of an answer's tokens are masks at first, and every step fills
// in some of them, those that the model is most sure of.
//
// Sources: LLaDA (arXiv 2502.09992: blocks from left to right, low-confidence remasking, guidance),
// Dream (arXiv 2508.15487: schedule by time, algorithms by certainty; its public sources for the
// formulas), discrete diffusion (arXiv 2107.03006: random order). Gumbel noise of temperature t
// (LLaDA) draws a token with the same probabilities as a sampler does at temperature t, so there is
// only the sampler.
//
// Thread rules: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/batch.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "gguf/gguf.h"
#include "stet/status.h"

namespace stet::engine {

// Which masks are filled first. Numbers as users of llama.cpp know them.
enum class Unmask : std::uint8_t {
    origin,      // each by chance
    entropy,     // where the distribution is narrowest
    margin,      // where the best token leads most
    random,      // so many, anywhere
    confidence,  // where the token that was drawn is likeliest
};

struct DenoiseOptions {
    std::uint32_t steps = 128;   // of the whole answer; steps that would fill nothing are left out
    std::uint32_t length = 128;  // tokens of an answer whose length nobody limits
    std::uint32_t block_length = 32;  // tokens that are filled before those after them; 0: all
    // Above 0: a schedule over all of the answer, by time from 1 to this, instead of blocks.
    float eps = 0.0F;
    Unmask algorithm = Unmask::confidence;
    float algorithm_temperature = 0.0F;  // above 0: masks are drawn by certainty / temperature
    // Above 0: away from what the model says without the prompt (arXiv 2207.12598); costs a second
    // pass.
    float guidance = 0.0F;

    // invalid_argument naming the option, its value and its range.
    Status validate() const;
};

// What the model's file says about masks.
struct MaskedModel {
    Token mask = 0;
    bool shifts = true;  // the logits of a token stand at the one before it
};
// not_found, naming the key: the file doesn't say which token is the mask.
Result<MaskedModel> masked_model(const gguf::File& file, std::uint32_t vocabulary);

class Denoiser {
  public:
    // `length` > 0 tokens. With `logprobs`, those of each token at the step that filled it in.
    Denoiser(const DenoiseOptions& options, const MaskedModel& model, std::size_t length,
             std::optional<std::uint32_t> logprobs);

    std::span<const Token> answer() const { return answer_; }  // masks where nothing is yet
    RowRange block() const;                                    // tokens that are filled now
    bool is_block_filled() const { return masks_ == 0; }
    bool is_last_block() const { return block_ + 1 == blocks_; }
    // Requires that this one is filled and not the last.
    void next_block();

    // One step. `logits` are those of block()'s tokens, [tokens][vocabulary].
    void fill(std::span<const float> logits, Sampler& sampler);

    std::uint32_t steps_done() const { return steps_before_ + step_; }
    std::uint32_t steps() const { return options_.steps; }
    // One for each token of the block, where they were asked for.
    std::span<const TokenLogprobs> logprobs() const { return logprobs_; }

  private:
    struct Candidate {
        std::size_t place;  // in the block
        Token token;
        double certainty;
    };

    void begin_block();
    std::size_t fill_count() const;
    Candidate candidate(std::size_t place, std::span<const float> logits, Sampler& sampler);
    void choose(std::vector<Candidate>& candidates, std::size_t count, Sampler& sampler) const;
    void put(const Candidate& candidate, std::span<const float> logits);

    DenoiseOptions options_;
    MaskedModel model_;
    std::optional<std::uint32_t> logprobs_count_;
    std::vector<Token> answer_;
    std::size_t blocks_ = 1;
    std::size_t block_ = 0;
    std::size_t masks_ = 0;           // of the block
    std::uint32_t block_steps_ = 0;   // of the block
    std::uint32_t step_ = 0;          // of the block
    std::uint32_t steps_before_ = 0;  // of earlier blocks
    std::vector<TokenLogprobs> logprobs_;
    std::vector<float> row_;  // scratch: logits without the mask's
};

// logits += guidance * (logits - without), element by element.
void guide(std::span<float> logits, std::span<const float> without, float guidance);

}  // namespace stet::engine
