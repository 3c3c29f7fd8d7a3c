// A vocabulary written by the test itself.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/gguf.h"
#include "support/gguf_writer.h"
#include "support/memory_env.h"
#include "text/tokenizer.h"

namespace stet::test {

// Values of tokenizer.ggml.token_type.
enum TokenType : std::int32_t {
    kTypeNormal = 1,
    kTypeUnknown,
    kTypeControl,
    kTypeUser,
    kTypeUnused,
    kTypeByte
};

class SmallVocabulary {
  public:
    using Token = text::Token;
    explicit SmallVocabulary(std::string_view model) {
        writer_.set_string("general.architecture", "llama");
        writer_.set_string("tokenizer.ggml.model", model);
    }
    Token add(std::string_view text, std::int32_t type = kTypeNormal, float score = 0) {
        texts_.emplace_back(text);
        types_.push_back(type);
        scores_.push_back(score);
        return static_cast<Token>(texts_.size() - 1);
    }
    void add_bytes() {
        for (int byte = 0; byte < 256; ++byte) {
            char text[8];
            std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
            add(text, kTypeByte);
        }
    }
    void set_merges(std::vector<std::string> merges) {
        merges_ = std::move(merges);
        has_merges_ = true;
    }
    GgufWriter& writer() { return writer_; }
    Result<std::unique_ptr<text::Tokenizer>> load() {
        GgufWriter whole = writer_;
        whole.set_strings("tokenizer.ggml.tokens", texts_);
        if (has_merges_) whole.set_strings("tokenizer.ggml.merges", merges_);
        whole.set_i32s("tokenizer.ggml.token_type", types_);
        whole.set_f32s("tokenizer.ggml.scores", scores_);
        return load_bare(whole);
    }
    // Without the token keys, for tests that write their own.
    static Result<std::unique_ptr<text::Tokenizer>> load_bare(GgufWriter& writer) {
        MemoryEnv env(writer.bytes());
        const auto file = gguf::File::open(env, "small.gguf");
        if (!file) return file.status();
        return text::Tokenizer::load(**file);
    }

  private:
    GgufWriter writer_;
    std::vector<std::string> texts_;
    std::vector<std::int32_t> types_;
    std::vector<float> scores_;
    std::vector<std::string> merges_;
    bool has_merges_ = false;
};

}  // namespace stet::test
