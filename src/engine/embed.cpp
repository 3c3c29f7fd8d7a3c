#include "engine/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/try.h"
#include "state/checkpoint.h"

namespace stet::engine {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"none", "mean", "cls", "last"};

}  // namespace

std::string_view pooling_name(Pooling pooling) {
    return kNames.at(static_cast<std::size_t>(pooling));
}

Result<Pooling> parse_pooling(std::string_view name) {
    const auto found = std::ranges::find(kNames, name);
    if (found == kNames.end()) {
        return Status(Code::invalid_argument,
                      fmt::format("pooling is '{}', it must be none, mean, cls or last", name));
    }
    return static_cast<Pooling>(found - kNames.begin());
}

// The format's numbers: -1 unspecified (some writers store it as a u32), 0 none, 1 mean, 2 cls,
// 3 last, 4 rank.
Result<Pooling> pooling_of(const gguf::File& file) {
    const auto name = file.get_string("general.architecture");
    const std::string key = fmt::format("{}.pooling_type", name.value_or(""));
    const auto value = file.get_int(key);
    constexpr std::int64_t kUnspecified = 0xffffffff;
    if (!value || *value == -1 || *value == kUnspecified) return Pooling::none;
    if (*value >= 0 && *value <= 3) return static_cast<Pooling>(*value);
    return Status(Code::unimplemented,
                  fmt::format("{}: {} is {}; none, mean, cls and last (0 to 3) are supported, give "
                              "one of them",
                              file.path().string(), key, *value));
}

void normalize(std::span<float> row, std::int32_t norm) {
    constexpr double kInt16 = 32760.0;
    double size = 0.0;
    if (norm < 0) return;
    for (const float x : row) {
        const double magnitude = std::abs(double{x});
        size = norm == 0 ? std::max(size, magnitude) : size + std::pow(magnitude, norm);
    }
    size = norm == 0 ? size / kInt16 : std::pow(size, 1.0 / norm);
    const double factor = size > 0.0 ? 1.0 / size : 0.0;
    for (float& x : row) x = static_cast<float>(x * factor);
}

Result<Embedder> Embedder::create(Engine& engine, std::vector<Token> tokens,
                                  const EmbedOptions& options) {
    if (tokens.empty()) return Status(Code::invalid_argument, "the text has no tokens");
    if (tokens.size() > engine.context()) {
        return Status(Code::resource_exhausted,
                      fmt::format("the text has {} tokens, the context {}; raise --ctx or cut it",
                                  tokens.size(), engine.context()));
    }
    if (options.norm < -1 || options.norm > kNormMax) {
        return Status(
            Code::invalid_argument,
            fmt::format("the norm is {}, it must be from -1 to {}", options.norm, kNormMax));
    }
    Embedder embedder(engine, std::move(tokens), options);
    embedder.sequence_ = state::Sequence::empty(engine.schema());
    return embedder;
}

Result<bool> Embedder::step() {
    if (done_ == tokens_.size()) return false;
    // What looks both ways sees the whole text at once.
    const bool is_whole = engine_->has_encoder() || engine_->is_diffusion();
    std::size_t count = tokens_.size() - done_;
    if (!is_whole) {
        count = std::min({count, std::size_t{engine_->batch()},
                          state::step_tokens_max(engine_->schema(), sequence_.position())});
    }
    const Part part{.sequence = &sequence_,
                    .tokens = std::span(tokens_).subspan(done_, count),
                    .logits = Logits::all,
                    .encodes = engine_->has_encoder(),
                    .hidden = true};
    STET_ASSIGN(const auto rows, engine_->run(std::span(&part, 1)));
    add(rows, rows.size() / count);
    done_ += count;
    if (done_ < tokens_.size()) return true;
    finish();
    return false;
}

void Embedder::add(std::span<const float> rows, std::size_t width) {
    switch (options_.pooling) {
        case Pooling::none:
            rows_.insert(rows_.end(), rows.begin(), rows.end());
            break;
        case Pooling::mean:
            sum_.resize(width);
            for (std::size_t i = 0; i < rows.size(); ++i) sum_[i % width] += double{rows[i]};
            break;
        case Pooling::cls: {
            const auto first = rows.first(width);
            if (done_ == 0) rows_.assign(first.begin(), first.end());
            break;
        }
        case Pooling::last: {
            const auto last = rows.last(width);
            rows_.assign(last.begin(), last.end());
            break;
        }
    }
}

void Embedder::finish() {
    if (options_.pooling == Pooling::mean) {
        const auto count = static_cast<double>(tokens_.size());
        for (const double sum : sum_) rows_.push_back(static_cast<float>(sum / count));
    }
    if (options_.pooling != Pooling::none) normalize(rows_, options_.norm);
}

Result<std::vector<float>> embed(Engine& engine, std::vector<Token> tokens,
                                 const EmbedOptions& options) {
    STET_ASSIGN(Embedder embedder, Embedder::create(engine, std::move(tokens), options));
    while (true) {
        STET_ASSIGN(const bool is_more, embedder.step());
        if (!is_more) return embedder.take();
    }
}

}  // namespace stet::engine
