#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/try.h"
#include "text/jinja/ast.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace stet::text {

namespace {

// Larger than any published template by far; keeps parsing bounded.
constexpr std::size_t kMaxSourceBytes = 1U << 20;

constexpr std::string_view kChatmlTemplate =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr std::string_view kPlainTemplate =
    "{% for message in messages %}"
    "{{ message['role'] + ': ' + message['content'] + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

Status to_status(const jinja::TemplateError& error) {
    if (error.raised) return Status(error.code, error.message);
    if (error.line == 0) {
        return Status(error.code, fmt::format("chat template: {}", one_line(error.message)));
    }
    return Status(error.code,
                  fmt::format("chat template, line {}: {}", error.line, one_line(error.message)));
}

// Runs `work`, whose exceptions become the Status.
template <typename T, typename Work>
Result<T> guarded(Work work) {
    try {
        return work();
    } catch (const jinja::TemplateError& error) {
        return to_status(error);
    } catch (const std::bad_alloc&) {
        return Status(Code::resource_exhausted, "chat template: out of memory");
    } catch (const std::exception& error) {
        return Status(Code::internal, fmt::format("chat template: {}", error.what()));
    }
}

bool has_chatml_tokens(const gguf::File& file) {
    const auto* tokens = file.get_strings("tokenizer.ggml.tokens");
    return tokens != nullptr &&
           std::find(tokens->begin(), tokens->end(), "<|im_start|>") != tokens->end();
}

}  // namespace

struct ChatTemplate::Program {
    std::string source;
    std::unique_ptr<const jinja::Program> parsed;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, Dialect dialect) {
    if (source.size() > kMaxSourceBytes) {
        return Status(Code::invalid_argument,
                      fmt::format("chat template: {} bytes, and at most {} are allowed",
                                  source.size(), kMaxSourceBytes));
    }
    if (!jinja::is_valid_utf8(source)) {
        return Status(Code::invalid_argument, "chat template: not valid UTF-8");
    }
    return guarded<ChatTemplate>([&]() -> Result<ChatTemplate> {
        auto program = std::make_unique<Program>();
        program->source = std::string(source);
        program->parsed = jinja::parse(source, dialect);
        return ChatTemplate(std::move(program));
    });
}

Result<ChatTemplate> ChatTemplate::for_model(const gguf::File& file) {
    if (const auto source = file.get_string("tokenizer.chat_template")) {
        Result<ChatTemplate> compiled = compile(*source, Dialect::extended);
        if (compiled.is_ok()) return compiled;
        return compiled.status().with_context(
            fmt::format("tokenizer.chat_template of {}", file.path().string()));
    }
    return compile(has_chatml_tokens(file) ? kChatmlTemplate : kPlainTemplate, Dialect::extended);
}

Result<std::string> ChatTemplate::render(std::string_view variables_json,
                                         std::chrono::system_clock::time_point now,
                                         const RenderLimits& limits) const {
    return guarded<std::string>([&]() -> Result<std::string> {
        jinja::Runtime runtime(limits, program_->parsed->dialect, now);
        const jinja::Dict* variables = jinja::parse_json_object(runtime, variables_json);
        return jinja::interpret(*program_->parsed, runtime, *variables);
    });
}

std::string_view ChatTemplate::source() const {
    return program_->source;
}

}  // namespace stet::text
