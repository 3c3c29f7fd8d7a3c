// The loop and its transactions, on small models with random weights: a sliding window one and a
// plain one.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "support/models.h"

namespace stet::engine {
namespace {

std::vector<Token> some_tokens(std::size_t count, std::uint32_t seed) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens) {
        seed = seed * 1664525U + 1013904223U;
        token = static_cast<Token>((seed >> 9) % 128);
    }
    return tokens;
}

class EngineTest : public testing::TestWithParam<const char*> {
  protected:
    std::unique_ptr<Engine> make(EngineOptions options = {}) {
        auto file = test::open_model(std::string("archs/") + GetParam() + ".gguf");
        if (!file) return nullptr;
        options.model.threads = 2;
        auto engine = Engine::create(std::move(file), options, true);
        EXPECT_TRUE(engine) << engine.status().to_string();
        return engine ? std::move(engine).value() : nullptr;
    }

    static std::vector<float> feed(Engine& engine, state::Sequence& sequence,
                                   std::span<const Token> tokens) {
        const engine::Part part{&sequence, tokens, engine::Logits::last};
        const auto logits = engine.run(std::span(&part, 1));
        EXPECT_TRUE(logits) << logits.status().to_string();
        return logits ? std::vector(logits->begin(), logits->end()) : std::vector<float>();
    }

    static GenerateOptions greedy(std::uint64_t tokens) {
        GenerateOptions options;
        options.sampling.temperature = 0;
        options.tokens_max = tokens;
        return options;
    }
};

TEST_P(EngineTest, KeepsTheLogitsThatFollow) {
    const auto engine = make();
    if (!engine) return;
    const auto tokens = some_tokens(40, 1);
    state::Sequence a = state::Sequence::empty(engine->schema());
    state::Sequence b = a;
    state::Sequence c = a;
    const std::array parts = {
        Part{&a, std::span(tokens).first(3), Logits::all, true},
        Part{&b, std::span(tokens).first(9), Logits::last, false},
        Part{&c, std::span(tokens).first(20), Logits::last, true},
    };
    const auto logits = engine->run(parts);
    ASSERT_TRUE(logits) << logits.status().to_string();
    const auto row = [&](std::size_t i) {
        const auto found = logits->subspan(i * engine->vocabulary(), engine->vocabulary());
        return std::vector(found.begin(), found.end());
    };
    ASSERT_NE(a.logits, nullptr);
    EXPECT_EQ(*a.logits, row(2)) << "of the last of its three rows";
    EXPECT_EQ(b.logits, nullptr);
    ASSERT_NE(c.logits, nullptr);
    EXPECT_EQ(*c.logits, row(4));
    feed(*engine, c, std::span(tokens).subspan(20, 1));
    EXPECT_EQ(c.logits, nullptr) << "they follow no longer";
}

TEST_P(EngineTest, AFailedStepLeavesEverySequenceAsItWas) {
    const auto engine = make();
    if (!engine) return;
    const auto prompt = some_tokens(70, 1);
    const auto other = some_tokens(30, 2);
    const auto more = some_tokens(9, 3);
    const auto control = [&](bool with_failure) {
        state::Sequence a = state::Sequence::empty(engine->schema());
        state::Sequence b = a;
        feed(*engine, a, prompt);
        feed(*engine, b, other);
        if (with_failure) {
            std::vector<Token> bad = some_tokens(40, 4);
            for (const Token token : {-1, 128, 1 << 30}) {
                bad.back() = token;
                const engine::Part parts[] = {{&a, more, engine::Logits::all},
                                              {&b, bad, engine::Logits::last}};
                const auto refused = engine->run(parts);
                EXPECT_EQ(refused.status().code(), Code::invalid_argument);
            }
            const auto many = some_tokens(engine->context(), 5);
            const engine::Part parts[] = {{&a, more, engine::Logits::all},
                                          {&b, many, engine::Logits::last}};
            EXPECT_EQ(engine->run(parts).status().code(), Code::invalid_argument);
            EXPECT_EQ(a.position(), prompt.size());
            EXPECT_EQ(b.position(), other.size());
        }
        auto logits = feed(*engine, a, more);
        const auto second = feed(*engine, b, more);
        logits.insert(logits.end(), second.begin(), second.end());
        return logits;
    };
    EXPECT_EQ(control(false), control(true)) << "next logits must be the same bits";
}

TEST_P(EngineTest, FullStateMemoryIsRefusedAndHarmless) {
    const auto roomy = make();
    if (!roomy) return;
    std::uint64_t page_bytes = 0;
    for (const memory::Group& group : roomy->schema().groups) page_bytes += group.page_bytes();
    EngineOptions options;
    options.state_limit_bytes = 2 * page_bytes;
    const auto engine = make(options);
    state::Sequence sequence = state::Sequence::empty(engine->schema());
    feed(*engine, sequence, some_tokens(60, 1));
    const auto many = some_tokens(120, 2);
    const engine::Part part{&sequence, many, engine::Logits::last};
    EXPECT_EQ(engine->run(std::span(&part, 1)).status().code(), Code::resource_exhausted);
    EXPECT_EQ(sequence.position(), 60U);
    state::Sequence fresh = state::Sequence::empty(roomy->schema());
    feed(*roomy, fresh, some_tokens(60, 1));
    EXPECT_EQ(feed(*engine, sequence, some_tokens(3, 3)), feed(*roomy, fresh, some_tokens(3, 3)));
}

TEST_P(EngineTest, RowsNeverWrittenAreNeverRead) {
    const auto engine = make();
    if (!engine) return;
    const auto clean = [&] {
        state::Sequence sequence = state::Sequence::empty(engine->schema());
        feed(*engine, sequence, some_tokens(67, 1));
        return feed(*engine, sequence, some_tokens(1, 2));
    };
    const auto expected = clean();
    engine->pool().set_poison(std::byte{0xff});  // NaN in every element type
    EXPECT_EQ(clean(), expected);
}

TEST_P(EngineTest, GenerationsTogetherEqualEachAlone) {
    const auto engine = make();
    if (!engine) return;
    const auto solo = [&](std::uint32_t seed, std::size_t prompt) {
        Generation generation(state::Sequence::empty(engine->schema()), some_tokens(prompt, seed),
                              greedy(20));
        EXPECT_TRUE(engine->generate(generation));
        EXPECT_EQ(generation.stop(), StopReason::length);
        return generation.output();
    };
    const auto first = solo(1, 50);
    const auto second = solo(2, 7);
    Generation a(state::Sequence::empty(engine->schema()), some_tokens(50, 1), greedy(20));
    Generation b(state::Sequence::empty(engine->schema()), some_tokens(7, 2), greedy(20));
    ASSERT_TRUE(engine->submit(a));
    ASSERT_TRUE(engine->submit(b));
    while (engine->step().value()) {
    }
    EXPECT_EQ(a.output(), first);
    EXPECT_EQ(b.output(), second);
}

TEST_P(EngineTest, ChunkedPromptsSayTheSame) {
    const auto whole = make();
    if (!whole) return;
    EngineOptions options;
    options.batch = 16;
    const auto chunked = make(options);
    std::vector<Token> outputs[2];
    for (const int i : {0, 1}) {
        Engine& engine = i == 0 ? *whole : *chunked;
        Generation generation(state::Sequence::empty(engine.schema()), some_tokens(90, 6),
                              greedy(12));
        ASSERT_TRUE(engine.generate(generation));
        outputs[i] = generation.output();
        EXPECT_EQ(generation.sequence().position(), 90U + 11U) << "the last token is pending";
        EXPECT_EQ(generation.pending().size(), 1U);
    }
    EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_P(EngineTest, StopsAtTheContextAndRefusesWhatCannotFit) {
    EngineOptions options;
    options.context = 40;
    const auto engine = make(options);
    if (!engine) return;
    Generation generation(state::Sequence::empty(engine->schema()), some_tokens(30, 1), greedy(0));
    ASSERT_TRUE(engine->generate(generation));
    EXPECT_EQ(generation.stop(), StopReason::context);
    EXPECT_EQ(generation.sequence().position(), 40U);
    Generation large(state::Sequence::empty(engine->schema()), some_tokens(41, 1), greedy(1));
    EXPECT_EQ(engine->generate(large).code(), Code::resource_exhausted);
    Generation nothing(state::Sequence::empty(engine->schema()), {}, greedy(1));
    EXPECT_EQ(engine->generate(nothing).code(), Code::invalid_argument);
}

TEST_P(EngineTest, CancelledGenerationKeepsWhatItHas) {
    const auto engine = make();
    if (!engine) return;
    Generation generation(state::Sequence::empty(engine->schema()), some_tokens(10, 1), greedy(0));
    ASSERT_TRUE(engine->submit(generation));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->step().value());
    generation.cancel();
    EXPECT_FALSE(engine->step().value());
    EXPECT_EQ(generation.stop(), StopReason::cancelled);
    EXPECT_EQ(generation.output().size(), 5U);
}

INSTANTIATE_TEST_SUITE_P(All, EngineTest, testing::Values("llama-dense", "gemma3-dense"),
                         [](const auto& parameter) {
                             std::string name = parameter.param;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace stet::engine
