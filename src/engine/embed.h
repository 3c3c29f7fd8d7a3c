// Embeddings: what a model makes of a text, as numbers. They are the hidden state after the last
// norm, where logits would be made of it; of a model with an encoder (T5), what the encoder
// answers.
//
// Thread rules: those of the engine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "stet/status.h"

namespace stet::engine {

// One row of numbers for a text, or one for each of its tokens.
enum class Pooling : std::uint8_t {
    none,
    mean,
    cls,   // the first token's
    last,  // the last token's
};

std::string_view pooling_name(Pooling pooling);
Result<Pooling> parse_pooling(std::string_view name);
// ARCHITECTURE.pooling_type; none where the file doesn't say. unimplemented: rank (of rerankers).
Result<Pooling> pooling_of(const gguf::File& file);

// Numbers as llama.cpp's: -1 leaves the row as it is, 0 makes its largest 32760 (for 16 bits), 2
// its length 1, another p its p-norm 1.
inline constexpr std::int32_t kNormDefault = 2;
inline constexpr std::int32_t kNormMax = 64;
void normalize(std::span<float> row, std::int32_t norm);

struct EmbedOptions {
    Pooling pooling = Pooling::none;
    std::int32_t norm = kNormDefault;  // of pooled rows; those of tokens stay as they are
};

// One text in the making, a step at a time, so that others may step between.
class Embedder {
  public:
    // invalid_argument: no tokens, or ids out of range. resource_exhausted: more tokens than the
    // context has.
    static Result<Embedder> create(Engine& engine, std::vector<Token> tokens,
                                   const EmbedOptions& options);

    // False when the embedding is there. After a failure start anew.
    Result<bool> step();
    std::size_t token_count() const { return tokens_.size(); }
    // [rows][width]; rows is 1 unless pooling is none.
    std::vector<float> take() { return std::move(rows_); }

  private:
    Embedder(Engine& engine, std::vector<Token> tokens, const EmbedOptions& options)
        : engine_(&engine), tokens_(std::move(tokens)), options_(options) {}
    void add(std::span<const float> rows, std::size_t width);
    void finish();

    Engine* engine_;
    std::vector<Token> tokens_;
    EmbedOptions options_;
    state::Sequence sequence_;
    std::size_t done_ = 0;     // tokens
    std::vector<double> sum_;  // of all rows, for mean
    std::vector<float> rows_;
};

// The whole at once.
Result<std::vector<float>> embed(Engine& engine, std::vector<Token> tokens,
                                 const EmbedOptions& options);

}  // namespace stet::engine
