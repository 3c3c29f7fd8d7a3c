// The library as programs outside this tree see it: only headers of include/stet.
#include <gtest/gtest.h>
#include <stet/stet.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "support/golden.h"
#include "support/temp_directory.h"

namespace stet {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Token> some_tokens(std::size_t count, std::uint32_t seed) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens) {
        seed = seed * 1664525U + 1013904223U;
        token = static_cast<Token>(seed >> 8U & 127U);
    }
    return tokens;
}

// Null when the models aren't there; a failure where CI=true.
std::unique_ptr<Model> load(const std::string& name, bool without_text,
                            RowType type = RowType::f16) {
    const auto path = test::test_cache() / name;
    if (!std::filesystem::exists(path)) {
        const char* ci = std::getenv("CI");
        EXPECT_FALSE(ci != nullptr && std::string_view(ci) == "true") << path << " is missing";
        return nullptr;
    }
    ModelOptions options;
    options.threads = 1;
    options.k_type = options.v_type = type;
    options.without_text = without_text;
    auto model = Model::load(path, options);
    EXPECT_TRUE(model) << model.status().to_string();
    return model ? std::make_unique<Model>(std::move(model).value()) : nullptr;
}

Bytes saved(const Context& context, SequenceId id) {
    Bytes bytes(context.encoded_size(id).value());
    EXPECT_EQ(context.save(id, bytes).value(), bytes.size());
    return bytes;
}

class Api : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        model_ = load(std::string("archs/") + GetParam() + ".gguf", true);
        if (!model_) GTEST_SKIP();
    }
    Context make(std::uint32_t sequences = 3) {
        auto context = Context::create(*model_, sequences);
        EXPECT_TRUE(context) << context.status().to_string();
        return std::move(context).value();
    }
    // Logits after each of `tokens`, one step a token.
    static std::vector<std::vector<float>> go_on(Context& context, SequenceId id,
                                                 std::span<const Token> tokens) {
        std::vector<std::vector<float>> rows;
        for (const Token& token : tokens) {
            auto row = context.feed(id, std::span(&token, 1));
            EXPECT_TRUE(row) << row.status().to_string();
            rows.push_back(std::move(row).value());
        }
        return rows;
    }

    std::unique_ptr<Model> model_;
};

TEST_P(Api, EveryWayBackGoesOnTheSame) {
    Context context = make();
    const auto prompt = some_tokens(70, 1);
    ASSERT_TRUE(context.feed(0, prompt));
    ASSERT_TRUE(context.checkpoint(0));
    const Bytes bytes = saved(context, 0);
    const auto snapshot = context.snapshot(0);
    ASSERT_TRUE(snapshot);
    EXPECT_EQ(snapshot->position(), 70U);
    test::TempDirectory directory;
    ASSERT_EQ(context.save_file(0, directory / "s").value(), bytes.size());
    Bytes streamed;
    CallbackSink sink([&](std::span<const std::byte> data) {
        streamed.insert(streamed.end(), data.begin(), data.end());
        return Status();
    });
    ASSERT_TRUE(context.save(0, sink));
    EXPECT_EQ(streamed, bytes);

    const auto tokens = some_tokens(4, 2);
    const auto expected = go_on(context, 0, tokens);
    std::size_t read = 0;
    CallbackSource source([&](std::span<std::byte> into) {
        std::memcpy(into.data(), streamed.data() + read, into.size());
        read += into.size();
        return Status();
    });
    const std::vector<std::function<Status()>> ways = {
        [&] { return context.restore(1, bytes); },
        [&] { return context.restore(1, source); },
        [&] { return context.restore(1, *snapshot); },
        [&] { return context.restore_file(1, directory / "s"); },
        [&] {
            const Status forked = context.fork(0, 1);
            return forked ? context.rollback(1, 70) : forked;
        },
        [&] {
            const Status forked = context.fork(0, 1);
            return forked ? context.truncate(1, 71).status() : forked;
        },
    };
    for (std::size_t i = 0; i < ways.size(); ++i) {
        const Status status = ways[i]();
        ASSERT_TRUE(status) << i << ": " << status.to_string();
        if (context.position(1).value() == 71) {
            EXPECT_EQ(go_on(context, 1, std::span(tokens).subspan(1)).back(), expected.back());
        } else {
            ASSERT_EQ(context.position(1).value(), 70U) << i;
            EXPECT_EQ(go_on(context, 1, tokens), expected) << i;
        }
        EXPECT_EQ(context.logits(1).value(), expected.back());
    }
}

TEST_P(Api, AWholeContextComesBack) {
    Context context = make();
    ASSERT_TRUE(context.feed(0, some_tokens(20, 1)));
    ASSERT_TRUE(context.feed(2, some_tokens(9, 2)));
    Bytes bytes(context.encoded_size_all());
    ASSERT_TRUE(context.save_all(bytes));
    const Snapshot all = context.snapshot_all();
    EXPECT_EQ(all.position(), 29U);
    Context other = make(5);
    ASSERT_TRUE(other.feed(4, some_tokens(3, 3)));
    for (const bool by_value : {false, true}) {
        ASSERT_TRUE(by_value ? other.restore_all(all) : other.restore_all(bytes));
        EXPECT_EQ(other.tokens(0).value(), some_tokens(20, 1));
        EXPECT_EQ(other.tokens(2).value(), some_tokens(9, 2));
        EXPECT_EQ(other.position(4).value(), 0U);
        ASSERT_TRUE(other.clear(0));
    }
    EXPECT_EQ(context.restore(0, all).code(), Code::incompatible);
    EXPECT_EQ(context.restore_all(*context.snapshot(0)).code(), Code::incompatible);
}

TEST_P(Api, FailuresChangeNothing) {
    Context context = make(2);
    ASSERT_TRUE(context.feed(0, some_tokens(20, 1)));
    ASSERT_TRUE(context.feed(1, some_tokens(7, 2)));
    Bytes before(context.encoded_size_all());
    ASSERT_TRUE(context.save_all(before));
    Bytes bytes = saved(context, 0);
    const std::vector<Token> wrong = {3, static_cast<Token>(model_->vocabulary())};
    const std::vector<Token> long_prompt(model_->context() + 1, 1);
    const std::vector<Token> one = {1};
    const Context::Input twice[] = {{0, one}, {0, one}};
    const Context::Input half[] = {{0, one}, {1, wrong}};
    bytes[bytes.size() / 2] ^= std::byte{4};
    EXPECT_EQ(context.feed(0, wrong).status().code(), Code::invalid_argument);
    EXPECT_EQ(context.feed(0, {}).status().code(), Code::invalid_argument);
    EXPECT_EQ(context.feed(7, one).status().code(), Code::invalid_argument);
    EXPECT_FALSE(context.feed(0, long_prompt));
    EXPECT_EQ(context.feed(twice).status().code(), Code::invalid_argument);
    EXPECT_EQ(context.feed(half).status().code(), Code::invalid_argument);
    EXPECT_EQ(context.restore(1, bytes).code(), Code::corruption);
    EXPECT_EQ(context.restore_file(1, "/nowhere/at/all").code(), Code::not_found);
    EXPECT_EQ(context.rollback(1, 8).code(), Code::invalid_argument);
    EXPECT_EQ(context.fork(0, 2).code(), Code::invalid_argument);
    EXPECT_FALSE(context.generate(0, {}));
    Bytes after(context.encoded_size_all());
    ASSERT_TRUE(context.save_all(after));
    EXPECT_EQ(before, after);
}

TEST_P(Api, LongPromptsAreFedInStepsTogether) {
    ModelOptions options;
    options.threads = 1;
    options.batch = 16;
    options.without_text = true;
    auto small =
        Model::load(test::test_cache() / "archs" / (std::string(GetParam()) + ".gguf"), options);
    ASSERT_TRUE(small);
    auto stepped = Context::create(*small, 2);
    ASSERT_TRUE(stepped);
    const auto a = some_tokens(50, 1);
    const auto b = some_tokens(21, 2);
    const Context::Input inputs[] = {{0, a}, {1, b}};
    const auto rows = stepped->feed(inputs);
    ASSERT_TRUE(rows) << rows.status().to_string();
    Context whole = make(2);
    EXPECT_LT(test::nmse(whole.feed(0, a).value(), (*rows)[0]), 1e-5);
    EXPECT_LT(test::nmse(whole.feed(1, b).value(), (*rows)[1]), 1e-5);
    EXPECT_EQ(stepped->usage(0)->position, 50U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Api,
                         testing::Values("llama-dense", "gemma3-dense", "mamba-dense",
                                         "falcon-h1-dense", "deepseek4-moe"),
                         test::ModelTestName());

TEST(ApiText, AnswersGoOnAfterARestore) {
    const auto model = load("models/smollm2-135m-instruct-q4_1.gguf", false);
    if (!model) GTEST_SKIP();
    EXPECT_EQ(model->architecture(), "llama");
    const Message question{"user", "Name three colours."};
    const auto text = model->render(std::span(&question, 1));
    ASSERT_TRUE(text) << text.status().to_string();
    const auto prompt = model->encode(*text, {.add_special = false, .parse_special = true});
    ASSERT_TRUE(prompt);
    auto context = Context::create(*model, 2);
    ASSERT_TRUE(context);
    GenerateOptions options;
    options.sampling.seed = 5;
    options.tokens_max = 8;
    std::string streamed;
    const auto answer = context->generate(0, *prompt, options, [&](std::string_view piece) {
        streamed += piece;
        return true;
    });
    ASSERT_TRUE(answer) << answer.status().to_string();
    EXPECT_EQ(answer->text, streamed);
    EXPECT_EQ(answer->tokens.size(), 8U);
    EXPECT_EQ(answer->stop, StopReason::length);
    EXPECT_EQ(context->position(0).value(), prompt->size() + 8);
    EXPECT_EQ(model->decode(answer->tokens).value(), answer->text);

    const Bytes bytes = saved(*context, 0);
    const auto more = model->encode(" and", {.add_special = false});
    ASSERT_TRUE(more);
    const auto expected = context->generate(0, *more, options);
    ASSERT_TRUE(context->restore(1, bytes));
    const auto again = context->generate(1, *more, options);
    ASSERT_TRUE(expected);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->tokens, expected->tokens) << "the sampler goes on too";

    const auto stopped =
        context->generate(1, *more, {.ignore_end = true}, [](std::string_view) { return false; });
    ASSERT_TRUE(stopped);
    EXPECT_EQ(stopped->stop, StopReason::cancelled);
}

TEST(ApiState, OtherRowTypesAreRefused) {
    const auto model = load("archs/llama-dense.gguf", true);
    const auto other = load("archs/llama-dense.gguf", true, RowType::q8_0);
    if (!model || !other) GTEST_SKIP();
    auto from = Context::create(*other);
    auto to = Context::create(*model);
    ASSERT_TRUE(from->feed(0, some_tokens(3, 1)));
    EXPECT_EQ(to->restore(0, saved(*from, 0)).code(), Code::incompatible);
    EXPECT_EQ(to->restore(0, *from->snapshot(0)).code(), Code::incompatible);
    EXPECT_GT(model->state_bytes(100), other->state_bytes(100));
}

TEST(ApiState, EncodersReadPromptsOfGenerations) {
    const auto model = load("archs/t5-dense.gguf", true);
    if (!model) GTEST_SKIP();
    auto context = Context::create(*model);
    EXPECT_EQ(context->feed(0, some_tokens(5, 1)).status().code(), Code::invalid_argument);
    GenerateOptions options;
    options.tokens_max = 3;
    const auto answer = context->generate(0, some_tokens(5, 1), options);
    ASSERT_TRUE(answer) << answer.status().to_string();
    EXPECT_TRUE(context->feed(0, some_tokens(2, 2)));
}

TEST(ApiState, LlamaCppFilesAreImported) {
    const auto model = load("archs/llama-dense.gguf", true);
    if (!model) GTEST_SKIP();
    auto context = Context::create(*model);
    const Status status = context->import_file(0, STET_TEST_DATA "/legacy/llama-dense.seq");
    ASSERT_TRUE(status) << status.to_string();
    EXPECT_GT(context->position(0).value(), 0U);
}

TEST(ApiState, AModelLivesAsLongAsItsContexts) {
    auto model = load("archs/llama-dense.gguf", true);
    if (!model) GTEST_SKIP();
    auto context = Context::create(*model);
    model.reset();
    ASSERT_TRUE(context->feed(0, some_tokens(3, 1)));
    const auto kept = context->snapshot(0);
    *context = Context::create(*load("archs/llama-dense.gguf", true)).value();
    EXPECT_TRUE(context->restore(0, *kept)) << "from a snapshot that outlives its context";
    EXPECT_EQ(context->position(0).value(), 3U);
}

}  // namespace
}  // namespace stet
