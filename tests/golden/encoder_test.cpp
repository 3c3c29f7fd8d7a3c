// Models with an encoder: what a sequence encoded is part of its state.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "state/context.h"
#include "support/golden.h"
#include "support/models.h"

namespace stet {
namespace {

using engine::Engine;
using engine::Logits;
using engine::Part;
using state::Sequence;
using state::Token;
using Tokens = std::vector<Token>;

class Encoder : public testing::Test {
  protected:
    void SetUp() override {
        auto file = test::open_model("archs/t5-dense.gguf");
        if (!file) return;
        engine::EngineOptions options;
        options.model.threads = 2;
        auto engine = Engine::create(std::move(file), options, true);
        ASSERT_TRUE(engine) << engine.status().to_string();
        engine_ = *std::move(engine);
    }
    Sequence encoded(const Tokens& tokens) {
        Sequence sequence = Sequence::empty(engine_->schema());
        const Status status = encode(sequence, tokens);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        return sequence;
    }
    Status encode(Sequence& sequence, const Tokens& tokens, Logits logits = Logits::none) {
        const Part part{.sequence = &sequence, .tokens = tokens, .logits = logits, .encodes = true};
        return engine_->run(std::span(&part, 1)).status();
    }
    std::vector<float> decode(Sequence& sequence, const Tokens& tokens) {
        const Part part{&sequence, tokens, Logits::all};
        const auto logits = engine_->run(std::span(&part, 1));
        EXPECT_TRUE(logits) << logits.status().to_string();
        return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
    }

    std::unique_ptr<Engine> engine_;  // null: the model isn't there
    const Tokens short_ = {5, 9, 2};
    const Tokens long_ = {7, 1, 1, 30, 90, 12, 55, 3, 66, 81, 4};
};

TEST_F(Encoder, SequencesShareStepsWhateverTheyEncoded) {
    if (!engine_) return;
    Sequence a = encoded(short_);
    Sequence b = encoded(long_);
    Sequence none = Sequence::empty(engine_->schema());
    const auto of_a = decode(a, {0, 10, 20});
    const auto of_b = decode(b, {0, 11});
    const auto of_none = decode(none, {0, 10, 20});
    EXPECT_GT(test::nmse(of_a, of_none), 1e-3);
    Sequence c = Sequence::empty(engine_->schema());
    Sequence d = Sequence::empty(engine_->schema());
    std::array both = {
        Part{.sequence = &c, .tokens = short_, .logits = Logits::none, .encodes = true},
        Part{.sequence = &d, .tokens = long_, .logits = Logits::none, .encodes = true}};
    ASSERT_TRUE(engine_->run(both).status().is_ok());
    const Tokens first = {0, 10, 20};
    const Tokens second = {0, 11};
    both = {Part{&c, first, Logits::all}, Part{&d, second, Logits::all}};
    const auto together = engine_->run(both);
    ASSERT_TRUE(together);
    EXPECT_LT(test::nmse(of_a, together->first(of_a.size())), 1e-9);
    EXPECT_LT(test::nmse(of_b, together->subspan(of_a.size())), 1e-9);
}

TEST_F(Encoder, WhatWasEncodedIsSavedAndForked) {
    if (!engine_) return;
    Sequence sequence = encoded(long_);
    decode(sequence, {0, 10});
    state::Limits limits;
    limits.tokens_max = 256;
    state::Context context(engine_->pool(),
                           state::Identity::of({}, engine_->schema(), memory::ElementType::f16,
                                               memory::ElementType::f16),
                           limits);
    ASSERT_TRUE(context.put(0, sequence).is_ok());
    auto size = context.encoded_size(0);
    ASSERT_TRUE(size);
    std::vector<std::byte> bytes(*size);
    ASSERT_TRUE(context.save(0, bytes));
    ASSERT_TRUE(context.clear(0).is_ok());
    ASSERT_TRUE(context.restore(0, bytes).is_ok());
    Sequence restored = **context.find(0);
    Sequence fork = sequence;
    const auto expected = decode(sequence, {20, 30});
    EXPECT_EQ(decode(restored, {20, 30}), expected);
    EXPECT_EQ(decode(fork, {20, 30}), expected);
}

TEST_F(Encoder, GenerationsEncodeTheirPromptAndBeginWithTheStartToken) {
    if (!engine_) return;
    engine::GenerateOptions options;
    options.sampling.temperature = 0.0F;
    options.tokens_max = 6;
    options.ignore_end = true;
    engine::Generation generation(Sequence::empty(engine_->schema()), long_, options);
    ASSERT_TRUE(engine_->generate(generation).is_ok());
    Sequence sequence = encoded(long_);
    Tokens expected;
    Token next = engine_->model().config.encoder.start_token;
    for (int i = 0; i < 6; ++i) {
        const auto logits = decode(sequence, {next});
        next = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
        expected.push_back(next);
    }
    EXPECT_EQ(generation.output(), expected);
    EXPECT_EQ(generation.sequence().position(), long_.size() + 6);
}

TEST_F(Encoder, ReadsTheBeginOfASequenceOnly) {
    if (!engine_) return;
    Sequence sequence = encoded(short_);
    EXPECT_EQ(encode(sequence, short_).code(), Code::invalid_argument);
    EXPECT_EQ(sequence.position(), short_.size());
    Sequence other = Sequence::empty(engine_->schema());
    EXPECT_EQ(encode(other, short_, Logits::last).code(), Code::invalid_argument);
    const std::array mixed = {
        Part{.sequence = &other, .tokens = short_, .logits = Logits::none, .encodes = true},
        Part{&sequence, short_, Logits::none}};
    EXPECT_EQ(engine_->run(mixed).status().code(), Code::invalid_argument);
    auto file = test::open_model("archs/llama-dense.gguf");
    if (!file) return;
    auto decoder = Engine::create(std::move(file), {}, true);
    ASSERT_TRUE(decoder);
    Sequence plain = Sequence::empty((*decoder)->schema());
    const Part part{.sequence = &plain, .tokens = short_, .logits = Logits::none, .encodes = true};
    EXPECT_EQ((*decoder)->run(std::span(&part, 1)).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace stet
