#include "text/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

namespace stet::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
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

// "2026-07-26T12:00:00" in the local time zone, which strftime_now() uses.
std::chrono::system_clock::time_point local_time(const std::string& text) {
    std::tm time{};
    EXPECT_NE(strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time), nullptr);
    time.tm_isdst = -1;
    return std::chrono::system_clock::from_time_t(std::mktime(&time));
}

std::chrono::system_clock::time_point noon() { return local_time("2026-07-26T12:00:00"); }

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

class Expected : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!fs::is_directory(template_folder())) {
            if (required()) FAIL() << "no templates in " << template_folder();
            GTEST_SKIP() << "no templates in " << template_folder();
        }
        data_ = Json::parse(read_file(fs::path(STET_TEST_DATA) / "templates/expected.json"));
    }

    std::string source(const std::string& name) const { return read_file(template_folder() / name); }

    std::string variables(const std::string& name) const {
        Json all = data_["cases"][name];
        all["bos_token"] = data_["bos_token"];
        all["eos_token"] = data_["eos_token"];
        return all.dump();
    }

    Json data_;
};

TEST_F(Expected, EveryRenderingAndEveryErrorIsTheReferences) {
    const auto now = local_time(data_["now"].get<std::string>());
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
    const auto now = local_time(data_["now"].get<std::string>());
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
    EXPECT_EQ(gained, (std::set<std::string>{
                          "Kimi-K2-Instruct.jinja tool_round_trip",
                          "Kimi-K2-Thinking.jinja tool_round_trip", "LFM2.5-8B-A1B.jinja",
                          "poolside-Laguna-S-2.1.jinja", "poolside-Laguna-XS-2.1.jinja",
                          "poolside-Laguna-XS.2.jinja"}));
}

}  // namespace
}  // namespace stet::text
