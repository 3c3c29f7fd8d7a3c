// Engine: answers of diffusion models. Every step computes the whole sequence with the answer as it
// is so far; only whole blocks become part of the state.
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "engine/engine.h"

namespace stet::engine {

bool Engine::is_diffusion() const {
    const model::Architecture& row = *model_->config.architecture;
    return !row.causal && !row.has_memory;
}

Status Engine::begin_denoising(Generation& generation) const {
    const GenerateOptions& options = generation.options_;
    STET_TRY(options.denoise.validate());
    STET_ASSIGN(const MaskedModel masks, masked_model(*model_->file, vocabulary()));
    const std::uint64_t before = generation.sequence_.position() + generation.prompt_.size();
    if (before >= context_ && !options.prompt_only) {
        return Status(Code::resource_exhausted,
                      fmt::format("the conversation has {} tokens, which leaves no room for an "
                                  "answer in a context of {}; raise --ctx or start anew",
                                  before, context_));
    }
    const std::uint64_t wanted =
        options.tokens_max != 0 ? options.tokens_max : std::uint64_t{options.denoise.length};
    const std::uint64_t length = std::clamp<std::uint64_t>(context_ - before, 1, wanted);
    generation.before_ = generation.sequence_.tokens;
    generation.before_.insert(generation.before_.end(), generation.prompt_.begin(),
                              generation.prompt_.end());
    for (const Token token : generation.prompt_) generation.sampler_.accept(token);
    generation.denoiser_ =
        std::make_unique<Denoiser>(options.denoise, masks, length, options.logprobs);
    return {};
}

Status Engine::denoise(Generation& generation) {
    if (generation.options_.prompt_only) {
        finish(generation, StopReason::length);
        return finish_block(generation);
    }
    STET_TRY(denoise_block(generation));
    Denoiser& denoiser = *generation.denoiser_;
    if (generation.on_denoise) generation.on_denoise(denoiser);
    if (!denoiser.is_block_filled()) return {};
    const RowRange block = denoiser.block();
    for (std::size_t i = block.begin; i < block.end && !generation.is_done(); ++i) {
        std::optional<TokenLogprobs> logprobs;
        if (generation.options_.logprobs) logprobs = denoiser.logprobs()[i - block.begin];
        take(generation, denoiser.answer()[i], std::move(logprobs));
    }
    if (!generation.is_done() && denoiser.is_last_block()) {
        const GenerateOptions& options = generation.options_;
        const std::uint64_t wanted =
            options.tokens_max != 0 ? options.tokens_max : std::uint64_t{options.denoise.length};
        const bool is_cut = generation.output_.size() < wanted;
        finish(generation, is_cut ? StopReason::context : StopReason::length);
    }
    if (!generation.is_done()) denoiser.next_block();
    return finish_block(generation);
}

// One step: the sequence with the answer behind it, and the same without the prompt where the
// answer is to be guided away from it.
Status Engine::denoise_block(Generation& generation) {
    Denoiser& denoiser = *generation.denoiser_;
    STET_ASSIGN(const MaskedModel masks, masked_model(*model_->file, vocabulary()));
    const std::span<const Token> answer = denoiser.answer();
    std::vector<Token> tokens = generation.before_;
    const std::size_t first = tokens.size();
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    std::vector<Token> unprompted(first, masks.mask);
    unprompted.insert(unprompted.end(), answer.begin(), answer.end());

    const std::size_t shift = masks.shifts ? 1 : 0;
    const RowRange block = denoiser.block();
    const RowRange rows = {first + block.begin - shift, first + block.end - shift};
    std::vector<state::Sequence> drafts(2, state::Sequence::empty(schema()));
    std::vector<Part> parts;
    parts.push_back(
        {.sequence = &drafts[0], .tokens = tokens, .logits = Logits::some, .rows = rows});
    const float guidance = generation.options_.denoise.guidance;
    if (guidance > 0.0F) {
        parts.push_back(
            {.sequence = &drafts[1], .tokens = unprompted, .logits = Logits::some, .rows = rows});
    }
    STET_ASSIGN(const std::span<const float> logits, run(parts));
    if (parts.size() == 1) {
        denoiser.fill(logits, generation.sampler_);
        return {};
    }
    const std::size_t half = logits.size() / 2;
    std::vector<float> guided(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(half));
    guide(guided, logits.subspan(half), guidance);
    denoiser.fill(guided, generation.sampler_);
    return {};
}

// The state follows the answer: the prompt with the first block, then each block as it was taken.
Status Engine::finish_block(Generation& generation) {
    std::vector<Token> tokens = generation.before_;
    tokens.insert(tokens.end(), generation.output_.begin(), generation.output_.end());
    const auto added = std::span(tokens).subspan(generation.sequence_.position());
    if (added.empty()) return {};
    STET_ASSIGN(auto append, state::Append::begin(*pool_, generation.sequence_, added));
    generation.sequence_ = std::move(append).commit();
    return {};
}

}  // namespace stet::engine
