// Conversations over a real model and a real store: turns, undo, fork, resume, and damage.
#include "engine/conversation.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/models.h"
#include "support/temp_directory.h"

namespace stet::engine {
namespace {

class ConversationTest : public testing::Test {
  protected:
    void SetUp() override {
        auto file = test::open_model("models/smollm2-135m-instruct-q4_1.gguf");
        if (!file) return;
        EngineOptions options;
        options.model.threads = 2;
        options.context = 1024;
        auto engine = Engine::create(std::move(file), options);
        ASSERT_TRUE(engine) << engine.status().to_string();
        engine_ = std::move(engine).value();
        open_store();
    }

    void open_store() {
        store_.reset();
        auto store = store::Store::open(Env::posix(), directory_.path() / "store", {});
        ASSERT_TRUE(store) << store.status().to_string();
        store_ = std::move(store).value();
    }

    std::unique_ptr<Conversation> open(const std::string& name) {
        auto conversation = Conversation::open(*engine_, store_.get(), name, fingerprint_, "");
        EXPECT_TRUE(conversation) << conversation.status().to_string();
        return conversation ? std::move(conversation).value() : nullptr;
    }

    static TurnResult say(Conversation& conversation, const std::string& text) {
        TurnRequest request;
        request.text = text;
        request.options.sampling.temperature = 0;
        request.options.tokens_max = 6;
        auto result = conversation.run_turn(request);
        EXPECT_TRUE(result) << result.status().to_string();
        return result ? std::move(result).value() : TurnResult();
    }

    test::TempDirectory directory_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<store::Store> store_;
    Hash256 fingerprint_ = Sha256().add("a model").finish();
};

TEST_F(ConversationTest, ResumedEqualsUnbroken) {
    if (!engine_) return;
    auto unbroken = open("a");
    const TurnResult one = say(*unbroken, "Hello");
    EXPECT_TRUE(one.is_durable);
    EXPECT_EQ(one.reused_tokens, 0U);
    const TurnResult two = say(*unbroken, "Name a colour.");
    EXPECT_EQ(two.turn_number, 2U);
    EXPECT_GT(two.reused_tokens, one.prompt_tokens);

    auto first = open("b");
    say(*first, "Hello");
    first.reset();
    open_store();
    auto second = open("b");
    EXPECT_EQ(second->resume_report().restored_tokens, second->resume_report().tokens);
    EXPECT_EQ(second->resume_report().reason, "");
    const TurnResult again = say(*second, "Name a colour.");
    EXPECT_EQ(again.tokens, two.tokens);
    EXPECT_EQ(again.reused_tokens, two.reused_tokens);
    EXPECT_EQ(again.computed_tokens, two.computed_tokens);
    EXPECT_EQ(second->messages().size(), 4U);
}

TEST_F(ConversationTest, UndoAndForkGoBackExactly) {
    if (!engine_) return;
    auto chat = open("a");
    say(*chat, "Hello");
    const TurnResult expected = say(*chat, "Name a colour.");
    ASSERT_TRUE(chat->fork("other"));
    EXPECT_EQ(chat->fork("other").code(), Code::already_exists);
    ASSERT_TRUE(chat->undo());
    EXPECT_EQ(chat->turn_count(), 1U);
    EXPECT_EQ(say(*chat, "Name a colour.").tokens, expected.tokens);
    ASSERT_TRUE(chat->switch_to("other"));
    EXPECT_EQ(chat->turn_count(), 2U);
    ASSERT_TRUE(chat->undo());  // of a turn that only the store still has
    EXPECT_EQ(say(*chat, "Name a colour.").tokens, expected.tokens);
    ASSERT_TRUE(chat->undo());
    ASSERT_TRUE(chat->undo());
    EXPECT_EQ(chat->undo().code(), Code::unavailable);
    EXPECT_EQ(chat->sequence().position(), 0U);
}

TEST_F(ConversationTest, StoppedBeforeTheFirstTokenIsNoTurn) {
    if (!engine_) return;
    auto chat = open("a");
    say(*chat, "Hello");
    const std::uint64_t position = chat->sequence().position();
    const std::atomic<bool> cancel{true};
    TurnRequest request;
    request.text = "More";
    request.cancel = &cancel;
    EXPECT_EQ(chat->run_turn(request).status().code(), Code::cancelled);
    EXPECT_EQ(chat->sequence().position(), position);
    EXPECT_EQ(chat->turn_count(), 1U);
}

TEST_F(ConversationTest, DamagedStateIsRecomputedAndSaysWhy) {
    if (!engine_) return;
    auto chat = open("a");
    say(*chat, "Hello");
    const TurnResult expected = say(*chat, "Name a colour.");
    ASSERT_TRUE(chat->undo());
    chat.reset();
    store_.reset();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
        if (entry.path().extension() != ".seg") continue;
        std::fstream segment(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        segment.seekp(static_cast<std::streamoff>(entry.file_size() / 3));
        segment.write("damage", 6);
    }
    open_store();
    chat = open("a");
    EXPECT_EQ(chat->resume_report().restored_tokens, 0U);
    EXPECT_NE(chat->resume_report().reason, "");
    const TurnResult again = say(*chat, "Name a colour.");
    EXPECT_EQ(again.reused_tokens, 0U);
    EXPECT_EQ(again.prompt_tokens, expected.prompt_tokens);
    EXPECT_FALSE(again.tokens.empty());
    EXPECT_EQ(chat->turn_count(), 2U);
}

TEST_F(ConversationTest, AnotherModelsSessionIsRefused) {
    if (!engine_) return;
    say(*open("a"), "Hello");
    fingerprint_ = Sha256().add("another model").finish();
    const auto refused = Conversation::open(*engine_, store_.get(), "a", fingerprint_, "");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), Code::incompatible);
}

TEST_F(ConversationTest, SampledTextContinuesWithTheSameDice) {
    if (!engine_) return;
    const auto draw = [](Conversation& conversation, std::uint64_t seed) {
        TurnRequest request;
        request.text = "Tell me something.";
        request.options.sampling.temperature = 1.5F;
        request.options.sampling.seed = seed;
        request.options.tokens_max = 8;
        return conversation.run_turn(request).value().tokens;
    };
    auto unbroken = open("a");
    draw(*unbroken, 7);
    const auto expected = draw(*unbroken, 7);
    draw(*open("b"), 7);
    EXPECT_EQ(draw(*open("b"), 7), expected);
    EXPECT_EQ(draw(*open("b"), 0).size(), 8U);
}

}  // namespace
}  // namespace stet::engine
