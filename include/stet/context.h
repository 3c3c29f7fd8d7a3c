// A context: a bounded set of sequences of one model, what can be computed on them, and everything
// that can be done to their state. Sequences have ids 0 to sequences - 1; one that holds nothing is
// empty.
//
// Every call is a transaction: the next value is built and proven aside, and the change is one
// swap. A call that fails, wherever and why ever, leaves the context (the target with its previous
// content, and every other sequence) bit-identical to never having been made.
//
// A sequence remembers its tokens, its rows, the logits that follow its last token, where its
// sampler stands, and checkpoints. A copy shares pages with its origin until either goes on: fork
// and snapshot copy no rows.
//
// Codes: invalid_argument (id, position, token), unavailable (no state at that position),
// incompatible (made by another model, with other row types, by another version, or of another
// kind), resource_exhausted (longer than the context, no room for pages, a buffer too small),
// corruption (damaged or cut short), not_found and io (files). Messages name the one cause,
// expected and found.
//
// Thread rules: one thread at a time, as its model. Snapshots may be kept and copied anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stet/model.h"
#include "stet/status.h"
#include "stet/stream.h"

namespace stet {

using SequenceId = std::uint32_t;

struct SamplingOptions {
    float temperature = 0.8F;           // 0: greedy
    std::uint32_t top_k = 40;           // 0: all
    float top_p = 0.95F;                // 1: off
    float min_p = 0.05F;                // 0: off
    float repeat_penalty = 1.0F;        // 1: off
    float presence_penalty = 0.0F;      // subtracted once for a token seen
    float frequency_penalty = 0.0F;     // subtracted for each time it was seen
    std::uint32_t penalty_window = 64;  // last tokens that penalties look at
    std::uint64_t seed = 0;             // 0: from the system's entropy
};

struct GenerateOptions {
    SamplingOptions sampling = {};
    std::uint64_t tokens_max = 0;        // 0: until the model ends or the context is full
    std::vector<std::string> stop = {};  // texts that end the answer; not part of it
    bool ignore_end = false;             // go on past the model's end of its answer
};

enum class StopReason : std::uint8_t { end, length, stop_text, context, cancelled };

struct Answer {
    std::string text;
    std::vector<Token> tokens;
    StopReason stop = StopReason::end;
};

struct Usage {
    std::uint64_t position = 0;              // tokens
    std::uint64_t pages = 0;                 // and blocks, checkpoints included, each once
    std::uint64_t bytes = 0;                 // of them; forks and snapshots share them
    std::vector<std::uint64_t> checkpoints;  // positions
};

struct Cut {
    std::uint64_t position = 0;          // reached
    std::uint64_t recompute_tokens = 0;  // from there to the position that was wanted
};

// One sequence, or a whole context, as a value that never changes.
class Snapshot {
  public:
    std::uint64_t position() const;  // tokens, of all sequences together

  private:
    friend class Context;
    struct Impl;
    explicit Snapshot(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

class Context {
  public:
    using Path = std::filesystem::path;

    static Result<Context> create(const Model& model, std::uint32_t sequences = 1);
    ~Context();
    Context(Context&& other) noexcept;
    Context& operator=(Context&& other) noexcept;

    // Computing. Logits are one a token of the vocabulary, those that follow the last token.
    struct Input {
        SequenceId id = 0;
        std::span<const Token> tokens;  // at least one
    };
    // An empty sequence of a model with an encoder (T5) begins with generate(), which encodes its
    // prompt; here it is refused.
    Result<std::vector<float>> feed(SequenceId id, std::span<const Token> tokens);
    // Several sequences in the same steps, each once: all of them go on, or none.
    Result<std::vector<std::vector<float>>> feed(std::span<const Input> inputs);
    // Feeds `prompt` (at least one token) and goes on until something stops it. The sequence then
    // holds prompt and answer, less the answer's last token where the context is full. `on_text`
    // gets the text as it becomes certain, and stops the answer by `false`. The sequence's sampler
    // goes on where it stands, unless another seed is asked for.
    Result<Answer> generate(SequenceId id, std::span<const Token> prompt,
                            const GenerateOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});

    // Looking.
    Result<std::uint64_t> position(SequenceId id) const;
    Result<std::vector<Token>> tokens(SequenceId id) const;
    Result<std::vector<float>> logits(SequenceId id) const;  // unavailable: none are kept
    Result<Usage> usage(SequenceId id) const;

    // Going back and aside.
    Status clear(SequenceId id);
    Status fork(SequenceId from, SequenceId to);
    // Keeps what is needed to come back to where the sequence is now.
    Status checkpoint(SequenceId id);
    // To exactly `position`; unavailable, naming the nearest one, when no state is kept for it.
    Status rollback(SequenceId id, std::uint64_t position);
    // To the nearest position at or before `position` that state is kept for. Never refuses one.
    Result<Cut> truncate(SequenceId id, std::uint64_t position);

    // Values in memory. A snapshot fits any context of the same model and row types.
    Result<Snapshot> snapshot(SequenceId id) const;
    Status restore(SequenceId id, const Snapshot& snapshot);
    Snapshot snapshot_all() const;
    Status restore_all(const Snapshot& snapshot);

    // Encoded, to a caller's buffer, a stream or a file. Answer the bytes written.
    Result<std::uint64_t> encoded_size(SequenceId id) const;
    Result<std::uint64_t> save(SequenceId id, std::span<std::byte> buffer) const;
    Result<std::uint64_t> save(SequenceId id, Sink& sink) const;
    Result<std::uint64_t> save_file(SequenceId id, const Path& path) const;
    Status restore(SequenceId id, std::span<const std::byte> data);
    Status restore(SequenceId id, Source& source);
    Status restore_file(SequenceId id, const Path& path);

    // The same for all sequences together. Those that the state doesn't hold become empty.
    std::uint64_t encoded_size_all() const;
    Result<std::uint64_t> save_all(std::span<std::byte> buffer) const;
    Result<std::uint64_t> save_all(Sink& sink) const;
    Result<std::uint64_t> save_all_file(const Path& path) const;
    Status restore_all(std::span<const std::byte> data);
    Status restore_all(Source& source);
    Status restore_all_file(const Path& path);

    // A sequence, session or slot file of llama.cpp's that holds one sequence.
    Status import_file(SequenceId id, const Path& path);

  private:
    struct Impl;
    explicit Context(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace stet
