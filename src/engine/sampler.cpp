#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <random>
#include <string_view>

#include "base/bytes.h"
#include "base/try.h"

namespace stet::engine {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kPenaltyWindowMax = 65536;  // tokens
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Logits may be anything. NaN never wins; +inf wins, but stays usable in differences.
float cleaned(float logit) {
    if (std::isnan(logit)) return kLowest;
    return std::min(logit, std::numeric_limits<float>::max());
}

// Of equal logits the lower id is the better one, so that results do not depend on sort order.
bool is_better(const TokenProbability& a, const TokenProbability& b) {
    if (a.logit != b.logit) return a.logit > b.logit;
    return a.token < b.token;
}

Token best_token(std::span<const float> logits) {
    std::size_t best = 0;
    float best_logit = kLowest;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] > best_logit) {
            best = i;
            best_logit = logits[i];
        }
    }
    return static_cast<Token>(best);
}

std::uint64_t splitmix64(std::uint64_t& state) {
    state += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
}

std::uint64_t seed_from_system() {
    std::uint64_t seed = 0;
    try {
        std::random_device device;
        seed = static_cast<std::uint64_t>(device()) << 32U | device();
    } catch (const std::exception&) {  // no entropy source: the clock still differs between runs
        auto ticks =
            static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
        seed = splitmix64(ticks);
    }
    return seed != 0 ? seed : 1;
}

Status check_range(std::string_view option, float value, float low, float high) {
    if (value >= low && value <= high) return {};  // false for NaN
    return Status(
        Code::invalid_argument,
        fmt::format("sampling: {} is {}, it must be from {} to {}", option, value, low, high));
}

}  // namespace

Status SamplerOptions::validate() const {
    STET_TRY(check_range("temperature", temperature, 0.0F, 100.0F));
    STET_TRY(check_range("top_p", top_p, 0.0F, 1.0F));
    STET_TRY(check_range("min_p", min_p, 0.0F, 1.0F));
    STET_TRY(check_range("repeat_penalty", repeat_penalty, 0.01F, 100.0F));
    STET_TRY(check_range("presence_penalty", presence_penalty, -100.0F, 100.0F));
    STET_TRY(check_range("frequency_penalty", frequency_penalty, -100.0F, 100.0F));
    if (penalty_window > kPenaltyWindowMax) {
        return Status(Code::invalid_argument,
                      fmt::format("sampling: penalty_window is {}, it must be from 0 to {}",
                                  penalty_window, kPenaltyWindowMax));
    }
    return {};
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options), seed_(options.seed != 0 ? options.seed : seed_from_system()) {
    std::uint64_t state = seed_;
    for (auto& word : random_state_) word = splitmix64(state);
}

std::uint64_t Sampler::next_random() {
    auto& s = random_state_;
    const std::uint64_t result = std::rotl(s[1] * 5, 7) * 9;
    const std::uint64_t t = s[1] << 17U;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = std::rotl(s[3], 45);
    return result;
}

double Sampler::uniform() {
    return static_cast<double>(next_random() >> 11U) * 0x1.0p-53;
}

std::span<const float> Sampler::adjusted(std::span<const float> logits) {
    if (!options_.logit_bias.empty()) logits = apply_bias(logits);
    if (has_penalties()) logits = apply_penalties(logits);
    return logits;
}

Token Sampler::sample(std::span<const float> logits) {
    logits = adjusted(logits);
    return options_.temperature <= 0.0F ? best_token(logits) : choose(logits);
}

Token Sampler::sample(std::span<const float> logits, Certainty& certainty) {
    logits = adjusted(logits);
    Token token = 0;
    if (options_.temperature <= 0.0F) {
        token = best_token(logits);
        collect(logits, logits.size());
        weigh();
    } else {
        token = choose(logits);
    }
    certainty = certainty_of(token);
    return token;
}

// Of the probabilities that candidates_ have, up to a common factor.
Certainty Sampler::certainty_of(Token token) const {
    double total = 0.0, best = 0.0, second = 0.0, chosen = 0.0, weighted_logs = 0.0;
    for (const auto& candidate : candidates_) {
        const double p = static_cast<double>(candidate.probability);
        if (candidate.token == token) chosen = p;
        second = std::max(second, std::min(best, p));
        best = std::max(best, p);
        total += p;
        if (p > 0.0) weighted_logs += p * std::log(p);
    }
    if (!(total > 0.0)) return {};
    return {chosen / total, (best - second) / total, weighted_logs / total - std::log(total)};
}

// The chain after penalties, for temperatures above 0.
Token Sampler::choose(std::span<const float> logits) {
    collect(logits, options_.top_k == 0 ? logits.size() : options_.top_k);
    if (candidates_.empty()) return 0;
    // Both cuts keep a run of best tokens, so their order does not matter as long as top_p counts
    // what was there before either. min_p needs no sorting and leaves less to sort.
    const bool has_top_p = options_.top_p < 1.0F;
    const double total = has_top_p ? weigh() : 0.0;
    keep_min_p();
    if (has_top_p) keep_top_p(total);
    return draw();
}

void Sampler::accept(Token token) {
    if (options_.penalty_window == 0) return;
    if (recent_.size() >= options_.penalty_window) recent_.erase(recent_.begin());
    recent_.push_back(token);
}

bool Sampler::has_penalties() const {
    return !recent_.empty() &&
           (options_.repeat_penalty != 1.0F || options_.presence_penalty != 0.0F ||
            options_.frequency_penalty != 0.0F);
}

std::span<const float> Sampler::apply_bias(std::span<const float> logits) {
    biased_.assign(logits.begin(), logits.end());
    for (const auto& [token, bias] : options_.logit_bias) {
        if (token >= 0 && static_cast<std::size_t>(token) < biased_.size()) {
            biased_[static_cast<std::size_t>(token)] += bias;
        }
    }
    return biased_;
}

std::span<const float> Sampler::apply_penalties(std::span<const float> logits) {
    penalized_.assign(logits.begin(), logits.end());
    std::vector<Token> seen = recent_;
    std::sort(seen.begin(), seen.end());
    for (auto it = seen.begin(); it != seen.end();) {
        const Token token = *it;
        const auto next = std::upper_bound(it, seen.end(), token);
        const auto count = static_cast<float>(next - it);
        it = next;
        if (token < 0 || static_cast<std::size_t>(token) >= penalized_.size()) continue;
        float& logit = penalized_[static_cast<std::size_t>(token)];
        logit = cleaned(logit);
        // Away from being chosen on either side of zero.
        logit = logit > 0.0F ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
        logit -= options_.presence_penalty + count * options_.frequency_penalty;
    }
    return penalized_;
}

// Fills candidates_ with the `limit` best tokens, best first, or with all in order of their ids.
// Tokens of probability zero are left out.
void Sampler::collect(std::span<const float> logits, std::size_t limit) {
    candidates_.clear();
    if (limit >= logits.size()) {
        for (std::size_t i = 0; i < logits.size(); ++i) {
            const float logit = cleaned(logits[i]);
            if (logit > kLowest) candidates_.push_back({static_cast<Token>(i), logit, 0.0F});
        }
        return;
    }
    // A heap with the worst of the best on top: most logits of a large vocabulary lose against it
    // at one comparison.
    float threshold = kLowest;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (!(logits[i] > threshold)) continue;  // also skips NaN
        if (candidates_.size() == limit) {
            std::pop_heap(candidates_.begin(), candidates_.end(), is_better);
            candidates_.pop_back();
        }
        candidates_.push_back({static_cast<Token>(i), cleaned(logits[i]), 0.0F});
        std::push_heap(candidates_.begin(), candidates_.end(), is_better);
        if (candidates_.size() == limit) threshold = candidates_.front().logit;
    }
    std::sort_heap(candidates_.begin(), candidates_.end(), is_better);
}

// Sets each candidate's probability, up to a common factor, before any cut; answers their sum.
double Sampler::weigh() {
    float best = kLowest;
    for (const auto& candidate : candidates_) best = std::max(best, candidate.logit);
    double total = 0.0;
    for (auto& candidate : candidates_) {
        candidate.probability = std::exp(candidate.logit - best);
        total += static_cast<double>(candidate.probability);
    }
    return total;
}

// Keeps the tokens that are at least min_p times as probable as the best one.
void Sampler::keep_min_p() {
    if (options_.min_p <= 0.0F) return;
    float best = kLowest;
    for (const auto& candidate : candidates_) best = std::max(best, candidate.logit);
    const float threshold = best + std::log(options_.min_p);
    std::erase_if(candidates_, [&](const auto& candidate) { return candidate.logit < threshold; });
}

// Keeps the shortest run of best tokens that together have top_p of `total`.
void Sampler::keep_top_p(double total) {
    const double wanted = total * static_cast<double>(options_.top_p);
    double sum = 0.0;
    std::size_t sorted = 0;  // the run is mostly short: sorts only as far as it gets
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (i == sorted) {
            const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
            sorted = std::min(candidates_.size(), std::max<std::size_t>(256, sorted * 8));
            const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
            if (end != candidates_.end()) {
                std::nth_element(begin, end, candidates_.end(), is_better);
            }
            std::sort(begin, end, is_better);
        }
        sum += static_cast<double>(candidates_[i].probability);
        if (sum >= wanted) {
            candidates_.resize(i + 1);
            return;
        }
    }
}

Token Sampler::draw() {
    float best = kLowest;
    for (const auto& candidate : candidates_) best = std::max(best, candidate.logit);
    double total = 0.0;
    for (auto& candidate : candidates_) {
        candidate.probability = std::exp((candidate.logit - best) / options_.temperature);
        total += static_cast<double>(candidate.probability);
    }
    const double place = uniform();
    double sum = 0.0;
    Token last = candidates_.front().token;
    for (auto& candidate : candidates_) {
        sum += static_cast<double>(candidate.probability);
        if (candidate.probability <= 0.0F) continue;
        last = candidate.token;
        if (sum > place * total) break;
    }
    return last;
}

// Version u32, seed u64, generator state 4 x u64, count u32, recent tokens i32 each.
std::vector<std::byte> Sampler::encode() const {
    Writer writer;
    writer.write(kVersion);
    writer.write(seed_);
    for (const auto word : random_state_) writer.write(word);
    writer.write(static_cast<std::uint32_t>(recent_.size()));
    for (const auto token : recent_) writer.write(token);
    return writer.take();
}

Result<Sampler> Sampler::decode(std::span<const std::byte> data, const SamplerOptions& options) {
    Reader reader(data, "sampler state");
    STET_ASSIGN(const auto version, reader.read<std::uint32_t>("version"));
    if (version != kVersion) {
        return Status(Code::incompatible,
                      fmt::format("sampler state: version {}, this program reads version {}",
                                  version, kVersion));
    }
    STET_ASSIGN(const auto seed, reader.read<std::uint64_t>("seed"));
    if (seed == 0) return reader.corrupt("seed", "is zero");
    SamplerOptions seeded = options;
    seeded.seed = seed;
    Sampler sampler(seeded);
    bool any = false;
    for (auto& word : sampler.random_state_) {
        STET_ASSIGN(word, reader.read<std::uint64_t>("generator"));
        any = any || word != 0;
    }
    if (!any) return reader.corrupt("generator", "is all zero");  // it would stay there for ever
    STET_ASSIGN(const auto count, reader.read<std::uint32_t>("count"));
    STET_TRY(reader.require(count, sizeof(Token), "tokens"));
    sampler.recent_.reserve(std::min(count, options.penalty_window) + 1ULL);
    for (std::uint32_t i = 0; i < count; ++i) {
        STET_ASSIGN(const auto token, reader.read<Token>("token"));
        if (token < 0) return reader.corrupt("token", fmt::format("is {}", token));
        sampler.accept(token);
    }
    STET_TRY(reader.finish());
    return sampler;
}

}  // namespace stet::engine
