// A language model (a GGUF file): text to tokens and back, and the pages that hold the state of its
// sequences. Sequences themselves live in contexts (stet/context.h).
//
// Thread rules: a Model and its contexts belong to one thread at a time. Copies are the same model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stet/status.h"

namespace stet {

using Token = std::int32_t;

enum class RowType : std::uint8_t { f32, f16, q8_0 };  // of keys and values in the state

struct ModelOptions {
    int threads = 0;  // 0: as many as help
    RowType k_type = RowType::f16;
    RowType v_type = RowType::f16;
    std::uint32_t context = 0;            // tokens that a sequence may have; 0: as trained
    std::uint32_t batch = 512;            // tokens of a step at most
    std::uint64_t state_limit_bytes = 0;  // of all sequences; 0: half of the machine's memory
    bool without_text = false;            // no tokenizer: for models that are only fed token ids
    // Where the model's fingerprint is remembered, which costs reading every byte of the file.
    // Empty: it is computed when the first context is made.
    std::filesystem::path cache_directory;
};

struct EncodeOptions {
    bool add_special = true;     // tokens that begin or end a text, as the model wants them
    bool parse_special = false;  // control tokens written in the text become their ids
};

struct Message {
    std::string role;  // "system", "user", "assistant"
    std::string content;
};

class Model {
  public:
    // not_found, io; corruption and incompatible name what is wrong with the file; unimplemented
    // names an architecture or tokenizer that is not supported, and the nearest that are.
    static Result<Model> load(const std::filesystem::path& path, const ModelOptions& options = {});

    std::string_view name() const;          // as its makers call it
    std::string_view architecture() const;  // "llama", "qwen3", ...
    std::uint32_t vocabulary() const;       // ids are 0 to vocabulary() - 1
    std::uint32_t context() const;          // tokens that a sequence may have
    // Bytes of a sequence's state at so many tokens, without checkpoints.
    std::uint64_t state_bytes(std::uint64_t tokens) const;

    // unavailable when loaded without text.
    Result<std::vector<Token>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
    Result<std::string> decode(std::span<const Token> tokens, bool special = false) const;
    // Messages as the model's own chat template writes them; encode with parse_special and without
    // add_special. `generation_prompt`: up to where the answer begins.
    Result<std::string> render(std::span<const Message> messages,
                               bool generation_prompt = true) const;

  private:
    friend class Context;
    struct Impl;
    explicit Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<Impl> impl_;
};

}  // namespace stet
