// Answers of diffusion models: schedules against the papers' formulas, choices on logits made for
// them, and whole answers against a second, plain implementation.
#include "engine/denoise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/engine.h"
#include "support/model_editor.h"
#include "support/models.h"
#include "support/temp_directory.h"

namespace stet::engine {
namespace {

constexpr Token kMask = 5;
constexpr std::size_t kVocabulary = 8;

SamplerOptions with_temperature(float temperature, std::uint64_t seed = 1) {
    SamplerOptions options;
    options.temperature = temperature;
    options.seed = seed;
    return options;
}

// Rows whose best token is `best` and leads by `lead`; the mask is better than all.
std::vector<float> row(Token best, float lead) {
    std::vector<float> logits(kVocabulary, 0.0F);
    logits[static_cast<std::size_t>(best)] = lead;
    logits[kMask] = 50.0F;
    return logits;
}

std::vector<float> rows(const std::vector<std::vector<float>>& list) {
    std::vector<float> all;
    for (const auto& one : list) all.insert(all.end(), one.begin(), one.end());
    return all;
}

std::size_t masks_in(std::span<const Token> tokens) {
    return static_cast<std::size_t>(std::ranges::count(tokens, kMask));
}

// Runs it to the end and answers how many tokens each step filled, block by block.
std::vector<std::vector<std::size_t>> counts(Denoiser& denoiser, Sampler& sampler) {
    std::vector<std::vector<std::size_t>> all(1);
    while (true) {
        const RowRange block = denoiser.block();
        std::vector<std::vector<float>> list;
        for (std::size_t i = block.begin; i < block.end; ++i) {
            list.push_back(row(static_cast<Token>(i % 5), 1.0F + static_cast<float>(i % 3)));
        }
        while (!denoiser.is_block_filled()) {
            const std::size_t before = masks_in(denoiser.answer());
            denoiser.fill(rows(list), sampler);
            all.back().push_back(before - masks_in(denoiser.answer()));
            // Nothing behind the block is touched.
            EXPECT_EQ(masks_in(denoiser.answer().subspan(block.end)),
                      denoiser.answer().size() - block.end);
        }
        if (denoiser.is_last_block()) break;
        denoiser.next_block();
        all.emplace_back();
    }
    EXPECT_EQ(masks_in(denoiser.answer()), 0U);
    return all;
}

// LLaDA: a block of m masks in s steps fills m / s in each, and one more in the first m % s.
TEST(Denoiser, BlocksAreFilledEvenly) {
    for (const auto& [length, block, steps] : {std::tuple{32U, 8U, 16U},
                                               {32U, 8U, 12U},
                                               {30U, 8U, 20U},
                                               {7U, 0U, 3U},
                                               {16U, 4U, 400U},
                                               {16U, 4U, 1U},
                                               {1U, 32U, 128U}}) {
        DenoiseOptions options;
        options.block_length = block;
        options.steps = steps;
        Denoiser denoiser(options, {kMask, false}, length, {});
        Sampler sampler(with_temperature(0));
        const auto found = counts(denoiser, sampler);
        const std::size_t size = block == 0 ? length : block;
        const std::size_t blocks = (length + size - 1) / size;
        ASSERT_EQ(found.size(), blocks);
        for (std::size_t b = 0; b < blocks; ++b) {
            const std::size_t masks = std::min(size, length - b * size);
            const std::size_t its =
                std::max<std::size_t>(1, steps * (b + 1) / blocks - steps * b / blocks);
            std::vector<std::size_t> expected;
            for (std::size_t i = 0; i < its; ++i) {
                const std::size_t count = masks / its + (i < masks % its ? 1 : 0);
                if (count != 0) expected.push_back(count);
            }
            EXPECT_EQ(found[b], expected) << length << " " << block << " " << steps << " " << b;
        }
    }
}

// Dream: time goes from 1 to eps in equal steps; a step from t to s fills 1 - s / t of the masks.
TEST(Denoiser, TimeScheduleIsDreams) {
    for (const auto& [length, steps, eps] :
         {std::tuple{64U, 16U, 0.001F}, {10U, 40U, 0.001F}, {33U, 7U, 0.5F}}) {
        DenoiseOptions options;
        options.eps = eps;
        options.steps = steps;
        Denoiser denoiser(options, {kMask, true}, length, {});
        Sampler sampler(with_temperature(0));
        const auto found = counts(denoiser, sampler);
        std::vector<std::size_t> expected;
        std::size_t left = length;
        const double last = double{eps};
        for (unsigned i = 0; i < steps; ++i) {
            const double t = 1.0 + (last - 1.0) * i / steps;
            const double s = 1.0 + (last - 1.0) * (i + 1) / steps;
            const auto count =
                i + 1 == steps
                    ? left
                    : static_cast<std::size_t>(static_cast<double>(left) * (1.0 - s / t));
            if (count != 0) expected.push_back(count);
            left -= count;
        }
        ASSERT_EQ(found.size(), 1U);
        EXPECT_EQ(found[0], expected);
    }
}

TEST(Denoiser, EachAlgorithmHasItsOwnOrder) {
    // Row 0 is likeliest, row 1 leads most over its second, row 2 is narrowest: 3 tokens share it.
    auto likeliest = std::vector<float>(kVocabulary, -20.0F);
    likeliest[0] = std::log(0.52F);
    likeliest[1] = std::log(0.48F);
    auto leading = std::vector<float>(kVocabulary, std::log(0.55F / 6));
    leading[2] = std::log(0.45F);
    auto narrow = std::vector<float>(kVocabulary, -20.0F);
    narrow[3] = narrow[4] = std::log(0.5F);
    // Of two halves the entropy is lower than of 0.45 and six small ones, and 0.52/0.48 lower
    // still.
    const auto first = [&](Unmask algorithm) {
        DenoiseOptions options;
        options.steps = 3;
        options.algorithm = algorithm;
        Denoiser denoiser(options, {kMask, false}, 3, {});
        Sampler sampler(with_temperature(0));
        denoiser.fill(rows({narrow, leading, likeliest}), sampler);
        const auto found =
            std::ranges::find_if(denoiser.answer(), [](Token token) { return token != kMask; });
        return found - denoiser.answer().begin();
    };
    EXPECT_EQ(first(Unmask::confidence), 2);
    EXPECT_EQ(first(Unmask::entropy), 2);
    EXPECT_EQ(first(Unmask::margin), 1);
}

TEST(Denoiser, TheMaskIsNoAnswer) {
    DenoiseOptions options;
    options.steps = 2;
    Denoiser denoiser(options, {kMask, false}, 2, {});
    Sampler sampler(with_temperature(0));
    denoiser.fill(rows({row(3, 1.0F), row(4, 2.0F)}), sampler);
    EXPECT_EQ(denoiser.answer()[0], kMask) << "less sure";
    EXPECT_EQ(denoiser.answer()[1], 4);
    denoiser.fill(rows({row(3, 1.0F), row(0, 9.0F)}), sampler);
    EXPECT_EQ(denoiser.answer()[0], 3);
    EXPECT_EQ(denoiser.answer()[1], 4) << "what is filled stays";
}

TEST(Denoiser, ChanceIsTheSeeds) {
    for (const Unmask algorithm : {Unmask::origin, Unmask::random, Unmask::confidence}) {
        const auto answer = [&](std::uint64_t seed) {
            DenoiseOptions options;
            options.steps = 8;
            options.algorithm = algorithm;
            options.algorithm_temperature = algorithm == Unmask::confidence ? 0.5F : 0.0F;
            Denoiser denoiser(options, {kMask, false}, 24, {});
            Sampler sampler(with_temperature(1.0F, seed));
            counts(denoiser, sampler);
            return std::vector(denoiser.answer().begin(), denoiser.answer().end());
        };
        EXPECT_EQ(answer(3), answer(3));
        EXPECT_NE(answer(3), answer(4));
    }
}

TEST(Denoiser, OptionsHaveRanges) {
    const auto with = [](auto change) {
        DenoiseOptions options;
        change(options);
        return options.validate().code();
    };
    EXPECT_EQ(with([](auto&) {}), Code::ok);
    EXPECT_EQ(with([](auto& o) { o.steps = 0; }), Code::invalid_argument);
    EXPECT_EQ(with([](auto& o) { o.eps = 1.0F; }), Code::invalid_argument);
    EXPECT_EQ(with([](auto& o) { o.guidance = -1.0F; }), Code::invalid_argument);
    EXPECT_EQ(with([](auto& o) { o.algorithm = static_cast<Unmask>(5); }), Code::invalid_argument);
    EXPECT_EQ(with([](auto& o) { o.algorithm_temperature = NAN; }), Code::invalid_argument);
}

// --- With models ---

class Diffusion : public testing::TestWithParam<const char*> {
  protected:
    std::unique_ptr<Engine> make(bool shifts, bool has_mask = true) {
        const auto file = test::open_model(std::string("archs/") + GetParam() + ".gguf");
        if (!file) return nullptr;
        auto edited = test::edit_model(
            *file,
            {.key =
                 [&](test::GgufWriter& writer, const std::string& key, const gguf::Value&) {
                     if (key != "tokenizer.ggml.model") return false;
                     if (has_mask) writer.set_u32("tokenizer.ggml.mask_token_id", kMask);
                     writer.set_bool("diffusion.shift_logits", shifts);
                     return false;
                 }},
            directory_ / "masked.gguf");
        EngineOptions options;
        options.model.threads = 2;
        auto engine = Engine::create(std::move(edited), options, true);
        EXPECT_TRUE(engine) << engine.status().to_string();
        return engine ? std::move(engine).value() : nullptr;
    }

    static GenerateOptions options(std::uint64_t tokens, std::uint32_t block, std::uint32_t steps) {
        GenerateOptions options;
        options.sampling.temperature = 0;
        options.tokens_max = tokens;
        options.denoise.block_length = block;
        options.denoise.steps = steps;
        return options;
    }

    // LLaDA's loop as its paper has it, one block after the other, all logits of all tokens.
    static std::vector<Token> plain(Engine& engine, std::vector<Token> x, std::size_t length,
                                    std::size_t block, std::size_t steps, bool shifts,
                                    float guidance) {
        const std::size_t prompt = x.size();
        x.resize(prompt + length, kMask);
        const auto logits_of = [&](const std::vector<Token>& tokens) {
            state::Sequence sequence = state::Sequence::empty(engine.schema());
            const Part part{&sequence, tokens, Logits::all};
            const auto logits = engine.run(std::span(&part, 1));
            EXPECT_TRUE(logits) << logits.status().to_string();
            return std::vector<float>(logits->begin(), logits->end());
        };
        const std::size_t blocks = length / block;
        for (std::size_t b = 0; b < blocks; ++b) {
            for (std::size_t step = 0; step < steps / blocks; ++step) {
                auto logits = logits_of(x);
                if (guidance > 0) {
                    auto bare = x;
                    std::fill_n(bare.begin(), prompt, kMask);
                    const auto without = logits_of(bare);
                    for (std::size_t i = 0; i < logits.size(); ++i) {
                        logits[i] = without[i] + (guidance + 1) * (logits[i] - without[i]);
                    }
                }
                std::vector<std::tuple<double, std::size_t, Token>> sure;
                for (std::size_t i = prompt + b * block; i < prompt + (b + 1) * block; ++i) {
                    if (x[i] != kMask) continue;
                    auto its = std::span(logits).subspan(
                        (i - (shifts ? 1 : 0)) * engine.vocabulary(), engine.vocabulary());
                    its[kMask] = -INFINITY;
                    const auto best = std::ranges::max_element(its);
                    double sum = 0;
                    for (const float logit : its) sum += std::exp(double{logit} - double{*best});
                    sure.emplace_back(-1 / sum, i, static_cast<Token>(best - its.begin()));
                }
                std::ranges::sort(sure);
                for (std::size_t i = 0; i < block / (steps / blocks); ++i) {
                    x[std::get<1>(sure[i])] = std::get<2>(sure[i]);
                }
            }
        }
        return {x.begin() + static_cast<std::ptrdiff_t>(prompt), x.end()};
    }

    const std::vector<Token> prompt_ = {3, 1, 4, 1, 9, 2, 6, 7};
    test::TempDirectory directory_;
};

TEST_P(Diffusion, AnswersEqualThePlainLoop) {
    for (const bool shifts : {true, false}) {
        const auto engine = make(shifts);
        if (!engine) return;
        ASSERT_TRUE(engine->is_diffusion());
        for (const float guidance : {0.0F, 1.5F}) {
            auto wanted = options(24, 8, 12);
            wanted.denoise.guidance = guidance;
            Generation generation(state::Sequence::empty(engine->schema()), prompt_, wanted);
            int steps = 0;
            generation.on_denoise = [&](const Denoiser&) { ++steps; };
            ASSERT_TRUE(engine->generate(generation));
            EXPECT_EQ(generation.output(), plain(*engine, prompt_, 24, 8, 12, shifts, guidance));
            EXPECT_EQ(generation.stop(), StopReason::length);
            EXPECT_EQ(steps, 12);
        }
    }
}

// The state is the tokens: a second answer goes on from the first one's.
TEST_P(Diffusion, TheStateIsPromptAndAnswer) {
    const auto engine = make(true);
    if (!engine) return;
    Generation first(state::Sequence::empty(engine->schema()), prompt_, options(8, 4, 8));
    ASSERT_TRUE(engine->generate(first));
    const auto end = engine->settle(first, false);
    ASSERT_TRUE(end) << end.status().to_string();
    std::vector<Token> all = prompt_;
    all.insert(all.end(), first.output().begin(), first.output().end());
    EXPECT_EQ(end->tokens, all);
    const std::vector<Token> more = {10, 20};
    Generation second(*end, more, options(8, 4, 8));
    ASSERT_TRUE(engine->generate(second));
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(second.output(), plain(*engine, all, 8, 4, 8, true, 0.0F));
}

// Draws continue where the saved sampler stands.
TEST_P(Diffusion, ASavedSamplerGoesOnAsTheUnbrokenOne) {
    const auto engine = make(true);
    if (!engine) return;
    auto wanted = options(8, 4, 8);
    wanted.sampling.temperature = 1.0F;
    wanted.sampling.seed = 7;
    const auto second_turn = [&](bool with_break) {
        Generation first(state::Sequence::empty(engine->schema()), prompt_, wanted);
        EXPECT_TRUE(engine->generate(first));
        auto end = engine->settle(first, false);
        EXPECT_TRUE(end);
        Sampler sampler = first.sampler();
        if (with_break) sampler = *Sampler::decode(*end->sampler, wanted.sampling);
        Generation second(*end, {10, 20}, wanted);
        second.set_sampler(std::move(sampler));
        EXPECT_TRUE(engine->generate(second));
        return std::pair(first.output(), second.output());
    };
    EXPECT_EQ(second_turn(true), second_turn(false));
    EXPECT_NE(second_turn(true).first, second_turn(true).second);
}

TEST_P(Diffusion, AnswersMadeSideBySideEqualEachAlone) {
    const auto engine = make(true);
    if (!engine) return;
    Generation alone(state::Sequence::empty(engine->schema()), prompt_, options(8, 4, 8));
    ASSERT_TRUE(engine->generate(alone));
    Generation a(state::Sequence::empty(engine->schema()), prompt_, options(8, 4, 8));
    Generation b(state::Sequence::empty(engine->schema()), {9, 9, 9}, options(12, 4, 6));
    ASSERT_TRUE(engine->submit(a));
    ASSERT_TRUE(engine->submit(b));
    while (*engine->step()) {
    }
    EXPECT_EQ(a.output(), alone.output());
    EXPECT_EQ(b.output().size(), 12U);
}

TEST_P(Diffusion, WhatIsCancelledKeepsWholeBlocksOnly) {
    const auto engine = make(true);
    if (!engine) return;
    Generation generation(state::Sequence::empty(engine->schema()), prompt_, options(16, 4, 16));
    generation.on_denoise = [&](const Denoiser& denoiser) {
        if (denoiser.steps_done() == 6) generation.cancel();
    };
    ASSERT_TRUE(engine->generate(generation));
    EXPECT_EQ(generation.stop(), StopReason::cancelled);
    EXPECT_EQ(generation.output().size(), 4U);
    EXPECT_EQ(generation.sequence().position(), prompt_.size() + 4);
}

TEST_P(Diffusion, LogprobsAreThoseOfTheStepThatFilled) {
    const auto engine = make(true);
    if (!engine) return;
    auto wanted = options(4, 0, 1);  // all in one step
    wanted.logprobs = 2;
    Generation generation(state::Sequence::empty(engine->schema()), prompt_, wanted);
    ASSERT_TRUE(engine->generate(generation));
    ASSERT_EQ(generation.logprobs().size(), 4U);
    std::vector<Token> all = prompt_;
    all.resize(all.size() + 4, kMask);
    state::Sequence sequence = state::Sequence::empty(engine->schema());
    const Part part{&sequence, all, Logits::all};
    const auto logits = engine->run(std::span(&part, 1));
    for (std::size_t i = 0; i < 4; ++i) {
        const auto its =
            logits->subspan((prompt_.size() + i - 1) * engine->vocabulary(), engine->vocabulary());
        EXPECT_EQ(generation.logprobs()[i].logprob,
                  token_logprobs(its, generation.output()[i], 2).logprob);
    }
}

TEST_P(Diffusion, TheContextLimitsAnAnswer) {
    const auto engine = make(true);
    if (!engine) return;
    const std::vector<Token> nearly(engine->context() - 3, 1);
    Generation generation(state::Sequence::empty(engine->schema()), nearly, options(16, 8, 4));
    ASSERT_TRUE(engine->generate(generation));
    EXPECT_EQ(generation.output().size(), 3U);
    EXPECT_EQ(generation.stop(), StopReason::context);
    const std::vector<Token> full(engine->context(), 1);
    Generation refused(state::Sequence::empty(engine->schema()), full, options(16, 8, 4));
    EXPECT_EQ(engine->generate(refused).code(), Code::resource_exhausted);
}

TEST_P(Diffusion, WithoutAMaskThereIsNoAnswer) {
    const auto engine = make(true, false);
    if (!engine) return;
    Generation generation(state::Sequence::empty(engine->schema()), prompt_, options(8, 4, 8));
    const Status status = engine->generate(generation);
    EXPECT_EQ(status.code(), Code::not_found);
    EXPECT_NE(status.message().find("tokenizer.ggml.mask_token_id"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Diffusion,
                         testing::Values("dream-dense", "llada-dense", "llada-moe-moe", "rnd1-moe"),
                         test::ModelTestName());

}  // namespace
}  // namespace stet::engine
