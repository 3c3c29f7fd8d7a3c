// Chat templates: the Jinja programs that models carry to turn messages into a prompt. A sandboxed
// subset of Jinja: no files, no attributes of the host, bounded steps, memory and depth.
//
// A ChatTemplate is immutable after compile(); any thread may render.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gguf/gguf.h"
#include "stet/status.h"

namespace stet::text {

struct RenderLimits {
    std::uint64_t steps = 2'000'000;
    std::uint64_t output_bytes = 16U << 20;
    std::uint32_t depth = 128;
    std::uint64_t memory_bytes = 256U << 20;  // held by values at one time
};

// What a template may do beyond the reference Jinja environment (immutable sandbox, loop controls).
enum class Dialect : std::uint8_t {
    reference,  // nothing: errors exactly where the reference has them
    // {% generation %} wrappers, and methods that change lists and dicts made by the template
    // (append, pop, update, ...), which published templates use.
    extended,
};

class ChatTemplate {
  public:
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    // invalid_argument with line and reason when the source is not of the subset.
    static Result<ChatTemplate> compile(std::string_view source,
                                        Dialect dialect = Dialect::reference);
    // The file's tokenizer.chat_template; chatml when it has none and its vocabulary has
    // <|im_start|>; else a plain "role: text" form for base models. The source used is kept.
    // Compiled in the extended dialect.
    static Result<ChatTemplate> for_model(const gguf::File& file);

    // `variables` is a JSON object: messages, tools, add_generation_prompt, bos_token, eos_token,
    // and whatever else the template reads. `now` is what strftime_now() formats.
    // invalid_argument: raise_exception() text, or the error with its line.
    // resource_exhausted: a limit was passed.
    Result<std::string> render(std::string_view variables_json,
                               std::chrono::system_clock::time_point now,
                               const RenderLimits& limits = {}) const;

    std::string_view source() const;

  private:
    struct Program;
    explicit ChatTemplate(std::unique_ptr<const Program> program);
    std::unique_ptr<const Program> program_;
};

}  // namespace stet::text
