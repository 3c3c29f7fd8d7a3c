#include "stet/context.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "api/model_impl.h"
#include "base/try.h"
#include "engine/feed.h"
#include "engine/import_state.h"
#include "engine/sampler.h"
#include "state/context.h"

namespace stet {

struct Snapshot::Impl {
    std::shared_ptr<const void> model;  // holds the pages, so it goes last
    std::optional<state::Snapshot> one;
    std::optional<state::ContextSnapshot> all;
};

struct Context::Impl {
    std::shared_ptr<Model::Impl> model;  // holds the pages, so it goes last
    state::Context state;

    engine::Engine& engine() { return *model->engine; }
};

namespace {

engine::SamplerOptions sampler_options(const SamplingOptions& options) {
    engine::SamplerOptions wanted;
    wanted.temperature = options.temperature;
    wanted.top_k = options.top_k;
    wanted.top_p = options.top_p;
    wanted.min_p = options.min_p;
    wanted.repeat_penalty = options.repeat_penalty;
    wanted.presence_penalty = options.presence_penalty;
    wanted.frequency_penalty = options.frequency_penalty;
    wanted.penalty_window = options.penalty_window;
    wanted.seed = options.seed;
    return wanted;
}

StopReason stop_reason(engine::StopReason reason) {
    switch (reason) {
        case engine::StopReason::running:
        case engine::StopReason::failed:  // was answered with its failure
        case engine::StopReason::end:
            return StopReason::end;
        case engine::StopReason::length:
            return StopReason::length;
        case engine::StopReason::stop_text:
            return StopReason::stop_text;
        case engine::StopReason::context:
            return StopReason::context;
        case engine::StopReason::cancelled:
            return StopReason::cancelled;
    }
    return StopReason::end;
}

Status wrong_kind(std::string_view holds, std::string_view expected) {
    return {Code::incompatible, fmt::format("holds {}, expected {}", holds, expected)};
}

}  // namespace

std::uint64_t Snapshot::position() const {
    if (impl_->one) return impl_->one->sequence().position();
    std::uint64_t sum = 0;
    for (const auto& entry : impl_->all->entries()) sum += entry.sequence.position();
    return sum;
}

Result<Context> Context::create(const Model& model, std::uint32_t sequences) {
    if (sequences == 0 || sequences > 1U << 16U) {
        return Status(Code::invalid_argument,
                      fmt::format("{} sequences; a context has 1 to 65536", sequences));
    }
    STET_ASSIGN(const state::Identity* identity, model.impl_->identity());
    engine::Engine& engine = *model.impl_->engine;
    return Context(std::make_unique<Impl>(
        Impl{model.impl_, state::Context(engine.pool(), *identity, engine.limits(sequences))}));
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;
Context::Context(Context&& other) noexcept = default;
Context& Context::operator=(Context&& other) noexcept = default;

Result<std::vector<float>> Context::feed(SequenceId id, std::span<const Token> tokens) {
    const Input input{id, tokens};
    STET_ASSIGN(auto rows, feed(std::span(&input, 1)));
    return std::move(rows.front());
}

Result<std::vector<std::vector<float>>> Context::feed(std::span<const Input> inputs) {
    std::vector<state::Sequence> aside;
    for (const Input& input : inputs) {
        STET_ASSIGN(const state::Sequence* live, impl_->state.find(input.id));
        if (input.tokens.empty()) return Status(Code::invalid_argument, "no tokens to feed");
        aside.push_back(*live);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            if (inputs[i].id == inputs[j].id) {
                return Status(Code::invalid_argument,
                              fmt::format("sequence {} is fed twice in one call", inputs[i].id));
            }
        }
    }
    std::vector<engine::Part> parts;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        parts.push_back({&aside[i], inputs[i].tokens, engine::Logits::last, true});
    }
    STET_TRY(engine::feed(impl_->engine(), parts));
    std::vector<std::vector<float>> rows;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        rows.push_back(*aside[i].logits);
        STET_TRY(impl_->state.put(inputs[i].id, std::move(aside[i])));
    }
    return rows;
}

// The sequence's sampler goes on, unless another seed is asked for.
Result<Answer> Context::generate(SequenceId id, std::span<const Token> prompt,
                                 const GenerateOptions& options,
                                 const std::function<bool(std::string_view)>& on_text) {
    STET_ASSIGN(const state::Sequence* live, impl_->state.find(id));
    engine::GenerateOptions wanted;
    wanted.sampling = sampler_options(options.sampling);
    wanted.tokens_max = options.tokens_max;
    wanted.stop = options.stop;
    wanted.ignore_end = options.ignore_end;
    STET_TRY(wanted.sampling.validate());
    engine::Generation generation(*live, {prompt.begin(), prompt.end()}, wanted);
    if (live->sampler) {
        STET_ASSIGN(engine::Sampler sampler,
                    engine::Sampler::decode(*live->sampler, wanted.sampling));
        if (wanted.sampling.seed == 0 || wanted.sampling.seed == sampler.seed()) {
            generation.set_sampler(std::move(sampler));
        }
    }
    generation.on_text = [&](std::string_view text) {
        if (on_text && !on_text(text)) generation.cancel();
    };
    STET_TRY(impl_->engine().generate(generation));
    STET_ASSIGN(state::Sequence end, impl_->engine().settle(generation, true));
    STET_TRY(impl_->state.put(id, std::move(end)));
    return Answer{generation.text(), generation.output(), stop_reason(generation.stop())};
}

Result<std::uint64_t> Context::position(SequenceId id) const {
    STET_ASSIGN(const state::Sequence* live, impl_->state.find(id));
    return live->position();
}

Result<std::vector<Token>> Context::tokens(SequenceId id) const {
    STET_ASSIGN(const state::Sequence* live, impl_->state.find(id));
    return live->tokens;
}

Result<std::vector<float>> Context::logits(SequenceId id) const {
    STET_ASSIGN(const state::Sequence* live, impl_->state.find(id));
    if (live->logits) return *live->logits;
    return Status(Code::unavailable,
                  fmt::format("sequence {} keeps no logits after token {}", id, live->position()));
}

Result<Usage> Context::usage(SequenceId id) const {
    STET_ASSIGN(state::Usage usage, impl_->state.usage(id));
    return Usage{usage.position, usage.pages, usage.bytes, std::move(usage.checkpoints)};
}

Status Context::clear(SequenceId id) {
    return impl_->state.clear(id);
}

Status Context::fork(SequenceId from, SequenceId to) {
    return impl_->state.fork(from, to);
}

Status Context::checkpoint(SequenceId id) {
    return impl_->state.checkpoint(id);
}

Status Context::rollback(SequenceId id, std::uint64_t position) {
    return impl_->state.rollback(id, position);
}

Result<Cut> Context::truncate(SequenceId id, std::uint64_t position) {
    STET_ASSIGN(const state::CutResult cut, impl_->state.truncate(id, position));
    return Cut{cut.position, cut.recompute_tokens};
}

Result<Snapshot> Context::snapshot(SequenceId id) const {
    STET_ASSIGN(state::Snapshot snapshot, impl_->state.snapshot(id));
    auto impl = std::make_shared<Snapshot::Impl>();
    impl->one = std::move(snapshot);
    impl->model = impl_->model;
    return Snapshot(std::move(impl));
}

Status Context::restore(SequenceId id, const Snapshot& snapshot) {
    if (snapshot.impl_->one) return impl_->state.restore(id, *snapshot.impl_->one);
    return wrong_kind("a whole context", "one sequence");
}

Snapshot Context::snapshot_all() const {
    auto impl = std::make_shared<Snapshot::Impl>();
    impl->all = impl_->state.snapshot_all();
    impl->model = impl_->model;
    return Snapshot(std::move(impl));
}

Status Context::restore_all(const Snapshot& snapshot) {
    if (snapshot.impl_->all) return impl_->state.restore_all(*snapshot.impl_->all);
    return wrong_kind("one sequence", "a whole context");
}

Result<std::uint64_t> Context::encoded_size(SequenceId id) const {
    return impl_->state.encoded_size(id);
}

Result<std::uint64_t> Context::save(SequenceId id, std::span<std::byte> buffer) const {
    return impl_->state.save(id, buffer);
}

Result<std::uint64_t> Context::save(SequenceId id, Sink& sink) const {
    return impl_->state.save(id, sink);
}

Result<std::uint64_t> Context::save_file(SequenceId id, const Path& path) const {
    return impl_->state.save_file(id, Env::posix(), path);
}

Status Context::restore(SequenceId id, std::span<const std::byte> data) {
    return impl_->state.restore(id, data);
}

Status Context::restore(SequenceId id, Source& source) {
    return impl_->state.restore(id, source);
}

Status Context::restore_file(SequenceId id, const Path& path) {
    return impl_->state.restore_file(id, Env::posix(), path);
}

std::uint64_t Context::encoded_size_all() const {
    return impl_->state.encoded_size_all();
}

Result<std::uint64_t> Context::save_all(std::span<std::byte> buffer) const {
    return impl_->state.save_all(buffer);
}

Result<std::uint64_t> Context::save_all(Sink& sink) const {
    return impl_->state.save_all(sink);
}

Result<std::uint64_t> Context::save_all_file(const Path& path) const {
    return impl_->state.save_all_file(Env::posix(), path);
}

Status Context::restore_all(std::span<const std::byte> data) {
    return impl_->state.restore_all(data);
}

Status Context::restore_all(Source& source) {
    return impl_->state.restore_all(source);
}

Status Context::restore_all_file(const Path& path) {
    return impl_->state.restore_all_file(Env::posix(), path);
}

Status Context::import_file(SequenceId id, const Path& path) {
    STET_ASSIGN(state::Imported imported,
                engine::import_state(impl_->engine(), Env::posix(), path));
    if (imported.sequences.size() != 1) {
        return Status(Code::invalid_argument,
                      fmt::format("{}: holds {} sequences, expected one", path.string(),
                                  imported.sequences.size()));
    }
    return impl_->state.put(id, std::move(imported.sequences.front().sequence));
}

}  // namespace stet
