// Renders chat templates for tests/api/test_template_oracle.py, as the reference environment would.
//
// Standard input, one JSON object a line: first {"now": "2026-07-26T12:00:00", "variables": {...}},
// then {"source": "..."} for each template. Answers {"text": "..."} or {"code", "message"} for
// each.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/local_time.h"
#include "text/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

Json failure(const stet::Status& status) {
    return {{"code", stet::code_name(status.code())}, {"message", status.to_string()}};
}

Json rendered(const std::string& source, const std::string& variables,
              std::chrono::system_clock::time_point now) {
    const auto compiled = stet::text::ChatTemplate::compile(source, stet::text::Dialect::reference);
    if (!compiled) return failure(compiled.status());
    const auto text = compiled->render(variables, now);
    if (!text) return failure(text.status());
    return {{"text", *text}};
}

}  // namespace

int main() {
    std::string line;
    if (!std::getline(std::cin, line)) return 1;
    const Json head = Json::parse(line);
    const std::string variables = head.at("variables").dump();
    const auto now = stet::test::local_time(head.at("now").get<std::string>());
    while (std::getline(std::cin, line)) {
        const std::string source = Json::parse(line).at("source").get<std::string>();
        std::cout << rendered(source, variables, now).dump() << "\n";
    }
    return 0;
}
