#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "model/decoder.h"

namespace stet::model {
namespace {

// Decode shapes come back every step; of prompt shapes only the last is worth its buffers.
constexpr std::uint32_t kSmallTokens = 32;
constexpr std::size_t kSmallGraphsMax = 16;

// A learned position table ends where the trained context does.
Status check_positions(const Config& config, const exec::Step& step) {
    if (config.position_limit == 0 || step.positions.empty()) return {};
    const auto last = *std::max_element(step.positions.begin(), step.positions.end());
    if (static_cast<std::uint32_t>(last) < config.position_limit) return {};
    return Status(Code::resource_exhausted,
                  fmt::format("position {} is beyond the {} that this model has embeddings for",
                              last, config.position_limit));
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(std::unique_ptr<gguf::File> file,
                                           const ModelOptions& options) {
    auto model = std::make_unique<Model>();
    STET_ASSIGN(model->config, resolve(*file, options.state_types));
    STET_ASSIGN(model->backend, exec::Backend::create(options.threads));
    STET_ASSIGN(model->weights, Weights::load(*file, model->config, *model->backend));
    model->file = std::move(file);
    return model;
}

Result<std::span<const float>> Runner::run(const exec::Step& step) {
    const auto tokens = static_cast<std::uint32_t>(step.tokens.size());
    const auto outputs = static_cast<std::uint32_t>(step.output_rows.size());
    STET_TRY(check_positions(model_->config, step));
    const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Cached& cached) {
        return cached.tokens == tokens && cached.outputs == outputs &&
               cached.encodes == step.encodes && cached.hidden == step.hidden;
    });
    if (found != graphs_.end()) {
        graphs_.splice(graphs_.begin(), graphs_, found);
        return graphs_.front().graph->run(*model_->backend, step);
    }
    const bool small = tokens <= kSmallTokens;
    std::size_t kept = 0;
    graphs_.remove_if([&](const Cached& cached) {
        if ((cached.tokens <= kSmallTokens) != small) return false;
        return ++kept >= (small ? kSmallGraphsMax : 1);
    });
    const Config& config = model_->config;
    const Weights& weights = *model_->weights;
    STET_ASSIGN(auto graph,
                step.encodes ? build_encoder(config, weights, *model_->backend, tokens, step.hidden)
                             : build_decoder(config, weights, *model_->backend, tokens, outputs,
                                             step.hidden));
    graphs_.push_front({tokens, outputs, step.encodes, step.hidden, std::move(graph)});
    return graphs_.front().graph->run(*model_->backend, step);
}

std::size_t Runner::buffer_bytes() const {
    std::size_t sum = 0;
    for (const Cached& cached : graphs_) sum += cached.graph->buffer_bytes();
    return sum;
}

}  // namespace stet::model
