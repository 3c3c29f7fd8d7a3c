#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "support/gguf_writer.h"
#include "support/local_time.h"
#include "support/temp_directory.h"

namespace stet::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

fs::path template_folder() {
    if (const char* cache = std::getenv("STET_TEST_CACHE")) return fs::path(cache) / "templates";
    const char* home = std::getenv("HOME");
    return fs::path(home == nullptr ? "" : home) / ".cache/stet/test/templates";
}

bool required() {
    const char* ci = std::getenv("CI");
    return ci != nullptr && std::string_view(ci) == "true";
}

std::chrono::system_clock::time_point noon() {
    return test::local_time("2026-07-26T12:00:00");
}

Result<std::string> render(std::string_view source, std::string_view variables = "{}",
                           const RenderLimits& limits = {}) {
    const auto compiled = ChatTemplate::compile(source, Dialect::extended);
    if (!compiled.is_ok()) return compiled.status();
    return compiled->render(variables, noon(), limits);
}

TEST(ChatTemplate, FormatsTheGivenTime) {
    const auto text = render("{{ strftime_now('%d %b %Y, %H:%M') }}");
    ASSERT_TRUE(text.is_ok()) << text.status().to_string();
    EXPECT_EQ(*text, "26 Jul 2026, 12:00");
}

TEST(ChatTemplate, KeepsItsSource) {
    const auto compiled = ChatTemplate::compile("a{{ 1 }}\n");
    ASSERT_TRUE(compiled.is_ok());
    EXPECT_EQ(compiled->source(), "a{{ 1 }}\n");
}

TEST(ChatTemplate, TellsTheLineOfAMistake) {
    const auto status = ChatTemplate::compile("a\nb\n{% if %}").status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 3"));
    const auto unclosed = ChatTemplate::compile("\n{% for x in y %}\n\n").status();
    EXPECT_THAT(std::string(unclosed.message()), HasSubstr("ends inside the 'for'"));
}

TEST(ChatTemplate, TellsTheLineOfAFailure) {
    const auto status = render("a\n\n{{ messages[0].content }}\nb").status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 3: 'messages' is undefined"));
    const auto macro =
        render("{% macro f(x) %}\n{{ x + 1 }}{% endmacro %}\n\n{{ f('a') }}").status();
    EXPECT_THAT(std::string(macro.message()), HasSubstr("line 2"));
}

TEST(ChatTemplate, PassesOnWhatATemplateRaises) {
    const auto status = render("{{ raise_exception('Roles must alternate!') }}").status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(status.message(), "Roles must alternate!");
}

TEST(ChatTemplate, RefusesVariablesThatAreNotAnObject) {
    for (const std::string_view json : {"", "[1]", "{", "{\"a\":1}}", "1", "{\"a\":\"\xff\"}"}) {
        const auto status = render("x", json).status();
        EXPECT_EQ(status.code(), Code::invalid_argument) << json;
    }
}

TEST(ChatTemplate, RefusesInvalidUtf8) {
    EXPECT_EQ(ChatTemplate::compile("a\xff").status().code(), Code::invalid_argument);
}

TEST(ChatTemplate, KeepsTheOrderOfKeysAndTheLastOfEqualOnes) {
    const auto text = render("{{ v|tojson }}", R"({"v":{"b":1,"a":[],"b":2}})");
    ASSERT_TRUE(text.is_ok());
    EXPECT_EQ(*text, R"({"b": 2, "a": []})");
}

TEST(ChatTemplate, ExtendedDialectChangesListsAndDicts) {
    const auto text = render(
        "{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.insert(0, 0) %}{{ l.pop(1) }}{{ l "
        "}}"
        "{% set d = {} %}{% set _ = d.update({'a': 1}, b=2) %}{{ d.pop('a') }}{{ d }}"
        "{% generation %}x{% endgeneration %}");
    ASSERT_TRUE(text.is_ok()) << text.status().to_string();
    EXPECT_EQ(*text, "1[0, 2]1{'b': 2}x");
}

constexpr std::string_view kTwoMessages =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}],
        "add_generation_prompt": true})";

// The template that for_model() finds in a file, rendered.
std::string of_model(test::GgufWriter writer) {
    const test::TempDirectory folder;
    EXPECT_TRUE(writer.save(folder / "m.gguf").is_ok());
    const auto file = gguf::File::open(Env::posix(), folder / "m.gguf");
    if (!file.is_ok()) return file.status().to_string();
    const auto compiled = ChatTemplate::for_model(**file);
    if (!compiled.is_ok()) return compiled.status().to_string();
    const auto text = compiled->render(kTwoMessages, noon());
    return text.is_ok() ? *text : text.status().to_string();
}

test::GgufWriter model(const std::vector<std::string>& tokens) {
    test::GgufWriter writer;
    writer.set_string("general.architecture", "llama").set_strings("tokenizer.ggml.tokens", tokens);
    return writer;
}

TEST(ChatTemplate, TakesTheTemplateOfTheModel) {
    auto writer = model({"<|im_start|>"});
    writer.set_string("tokenizer.chat_template", "{{ messages[0].content }}!");
    EXPECT_EQ(of_model(writer), "Hi!");
}

TEST(ChatTemplate, FallsBackToChatmlWhenTheVocabularyHasIt) {
    EXPECT_EQ(of_model(model({"a", "<|im_start|>", "<|im_end|>"})),
              "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n"
              "<|im_start|>assistant\n");
}

TEST(ChatTemplate, FallsBackToPlainTextForBaseModels) {
    EXPECT_EQ(of_model(model({"a"})), "user: Hi\nassistant: Yes?\nassistant:");
}

TEST(ChatTemplate, NamesTheFileWhoseTemplateIsBroken) {
    auto writer = model({"a"});
    writer.set_string("tokenizer.chat_template", "{% nope %}");
    EXPECT_THAT(of_model(writer), AllOf(HasSubstr("m.gguf"), HasSubstr("unknown tag 'nope'")));
}

TEST(ChatTemplate, RendersTheTemplateOfARealModel) {
    const fs::path path =
        template_folder().parent_path() / "models/smollm2-135m-instruct-q4_1.gguf";
    if (!fs::exists(path)) {
        if (required()) FAIL() << path << " is missing";
        GTEST_SKIP() << path << " is missing";
    }
    const auto file = gguf::File::open(Env::posix(), path);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    const auto compiled = ChatTemplate::for_model(**file);
    ASSERT_TRUE(compiled.is_ok()) << compiled.status().to_string();
    const auto text = compiled->render(kTwoMessages, noon());
    ASSERT_TRUE(text.is_ok()) << text.status().to_string();
    EXPECT_EQ(*text,
              "<|im_start|>system\n"
              "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
              "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n"
              "<|im_start|>assistant\n");
}

class Expected : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!fs::is_directory(template_folder())) {
            if (required()) FAIL() << "no templates in " << template_folder();
            GTEST_SKIP() << "no templates in " << template_folder();
        }
        data_ = Json::parse(read_file(fs::path(STET_TEST_DATA) / "templates/expected.json"));
    }

    std::string source(const std::string& name) const {
        return read_file(template_folder() / name);
    }

    std::string variables(const std::string& name) const {
        Json all = data_["cases"][name];
        all["bos_token"] = data_["bos_token"];
        all["eos_token"] = data_["eos_token"];
        return all.dump();
    }

    Json data_;
};

TEST_F(Expected, EveryRenderingAndEveryErrorIsTheReferences) {
    const auto now = test::local_time(data_["now"].get<std::string>());
    int compared = 0;
    for (const auto& [name, cases] : data_["expected"].items()) {
        SCOPED_TRACE(name);
        const auto compiled = ChatTemplate::compile(source(name));
        if (cases.contains("error")) {
            EXPECT_FALSE(compiled.is_ok());
            ++compared;
            continue;
        }
        ASSERT_TRUE(compiled.is_ok()) << compiled.status().to_string();
        for (const auto& [case_name, expected] : cases.items()) {
            SCOPED_TRACE(case_name);
            const auto rendered = compiled->render(variables(case_name), now);
            ++compared;
            if (expected.contains("error")) {
                ASSERT_FALSE(rendered.is_ok()) << *rendered;
                EXPECT_EQ(rendered.status().code(), Code::invalid_argument);
            } else {
                ASSERT_TRUE(rendered.is_ok()) << rendered.status().to_string();
                EXPECT_EQ(*rendered, expected["text"].get<std::string>());
            }
        }
    }
    EXPECT_GT(compared, 300);
}

// What the extended dialect adds: exactly the templates that the reference refuses for its lack.
TEST_F(Expected, ExtendedDialectDiffersOnlyWhereTheReferenceRefusesAFeature) {
    const auto now = test::local_time(data_["now"].get<std::string>());
    std::set<std::string> gained;
    for (const auto& [name, cases] : data_["expected"].items()) {
        SCOPED_TRACE(name);
        const auto compiled = ChatTemplate::compile(source(name), Dialect::extended);
        ASSERT_TRUE(compiled.is_ok()) << compiled.status().to_string();
        if (cases.contains("error")) {
            gained.insert(name);
            const auto rendered = compiled->render(variables("user"), now);
            ASSERT_TRUE(rendered.is_ok()) << rendered.status().to_string();
            EXPECT_THAT(*rendered, HasSubstr("Hello <there> & \"you\""));
            continue;
        }
        for (const auto& [case_name, expected] : cases.items()) {
            const auto rendered = compiled->render(variables(case_name), now);
            if (rendered.is_ok() != expected.contains("text")) {
                gained.insert(name + " " + case_name);
            } else if (rendered.is_ok()) {
                EXPECT_EQ(*rendered, expected["text"].get<std::string>());
            }
        }
    }
    EXPECT_EQ(gained, (std::set<std::string>{"Kimi-K2-Instruct.jinja tool_round_trip",
                                             "Kimi-K2-Thinking.jinja tool_round_trip",
                                             "LFM2.5-8B-A1B.jinja", "poolside-Laguna-S-2.1.jinja",
                                             "poolside-Laguna-XS-2.1.jinja",
                                             "poolside-Laguna-XS.2.jinja"}));
}

}  // namespace
}  // namespace stet::text
