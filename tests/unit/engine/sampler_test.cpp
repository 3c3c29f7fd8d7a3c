#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace stet::engine {
namespace {

using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Nothing but the temperature; each test turns on what it looks at.
SamplerOptions plain(std::uint64_t seed = 1) {
    SamplerOptions options;
    options.temperature = 1.0F;
    options.top_k = 0;
    options.top_p = 1.0F;
    options.min_p = 0.0F;
    options.seed = seed;
    return options;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
    return logits;
}

std::map<Token, int> draw_many(Sampler& sampler, std::span<const float> logits, int count) {
    std::map<Token, int> counts;
    for (int i = 0; i < count; ++i) ++counts[sampler.sample(logits)];
    return counts;
}

// Pearson's statistic against `expected` (which sums to 1). Tokens that must not appear have 0.
double chi_square(const std::map<Token, int>& counts, const std::vector<double>& expected,
                  int draws) {
    double sum = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto it = counts.find(static_cast<Token>(i));
        const double found = it == counts.end() ? 0.0 : it->second;
        if (expected[i] == 0.0) {
            EXPECT_EQ(found, 0.0) << "token " << i << " was cut off and drawn all the same";
            continue;
        }
        const double wanted = expected[i] * draws;
        sum += (found - wanted) * (found - wanted) / wanted;
    }
    return sum;
}

std::vector<double> normalized(std::vector<double> values) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    for (auto& value : values) value /= sum;
    return values;
}

constexpr int kDraws = 20000;
constexpr double kChiSquareMax = 30.0;  // 0.0005 quantile of 9 degrees of freedom is 29.7

const std::vector<double> kTen = {0.02, 0.25, 0.05, 0.2, 0.1, 0.15, 0.08, 0.07, 0.05, 0.03};

TEST(Sampler, DrawsTheDistributionOfTheLogits) {
    Sampler sampler(plain());
    EXPECT_LT(chi_square(draw_many(sampler, logits_of(kTen), kDraws), kTen, kDraws), kChiSquareMax);
}

TEST(Sampler, TestCanTellDistributionsApart) {
    Sampler sampler(plain());
    auto other = kTen;
    std::swap(other[3], other[4]);
    EXPECT_GT(chi_square(draw_many(sampler, logits_of(kTen), kDraws), other, kDraws),
              kChiSquareMax);
}

TEST(Sampler, TemperatureIsAPowerOfTheProbabilities) {
    for (const double temperature : {0.5, 2.0}) {
        auto options = plain();
        options.temperature = static_cast<float>(temperature);
        Sampler sampler(options);
        auto expected = kTen;
        for (auto& p : expected) p = std::pow(p, 1.0 / temperature);
        EXPECT_LT(
            chi_square(draw_many(sampler, logits_of(kTen), kDraws), normalized(expected), kDraws),
            kChiSquareMax);
    }
}

TEST(Sampler, TopKKeepsTheBest) {
    auto options = plain();
    options.top_k = 3;
    Sampler sampler(options);
    const auto expected = normalized({0, 0.25, 0, 0.2, 0, 0.15, 0, 0, 0, 0});
    EXPECT_LT(chi_square(draw_many(sampler, logits_of(kTen), kDraws), expected, kDraws),
              kChiSquareMax);
}

TEST(Sampler, TopPKeepsTheShortestRunThatReachesIt) {
    auto options = plain();
    options.top_p = 0.5F;  // 0.25 + 0.2 are not enough, with 0.15 they are
    Sampler sampler(options);
    const auto expected = normalized({0, 0.25, 0, 0.2, 0, 0.15, 0, 0, 0, 0});
    EXPECT_LT(chi_square(draw_many(sampler, logits_of(kTen), kDraws), expected, kDraws),
              kChiSquareMax);
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
    auto options = plain();
    options.top_k = 3;     // 0.25 0.2 0.15 become 0.417 0.333 0.25
    options.top_p = 0.7F;  // so two are enough
    Sampler sampler(options);
    const auto expected = normalized({0, 0.25, 0, 0.2, 0, 0, 0, 0, 0, 0});
    EXPECT_LT(chi_square(draw_many(sampler, logits_of(kTen), kDraws), expected, kDraws),
              kChiSquareMax);
}

TEST(Sampler, MinPIsAFractionOfTheBest) {
    auto options = plain();
    options.min_p = 0.35F;  // at least 0.0875
    Sampler sampler(options);
    const auto expected = normalized({0, 0.25, 0, 0.2, 0.1, 0.15, 0, 0, 0, 0});
    EXPECT_LT(chi_square(draw_many(sampler, logits_of(kTen), kDraws), expected, kDraws),
              kChiSquareMax);
}

TEST(Sampler, ExtremesOfTheCutsKeepOneToken) {
    for (int which = 0; which < 3; ++which) {
        auto options = plain();
        if (which == 0) options.top_k = 1;
        if (which == 1) options.top_p = 0.0F;
        if (which == 2) options.min_p = 1.0F;
        Sampler sampler(options);
        EXPECT_EQ(draw_many(sampler, logits_of(kTen), 200), (std::map<Token, int>{{1, 200}}));
    }
}

TEST(Sampler, TopPOfALargeVocabularyMatchesAFullSort) {
    std::mt19937 random(7);  // NOLINT: the same each time
    std::normal_distribution<float> normal(0.0F, 1.0F);
    std::vector<float> logits(6000);
    for (auto& logit : logits) logit = normal(random);
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    double total = 0.0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit));
    double sum = 0.0;
    std::size_t kept = 0;
    while (sum < 0.3 * total) sum += std::exp(static_cast<double>(logits[order[kept++]]));
    ASSERT_GT(kept, 300U);  // past the first piece that gets sorted

    auto options = plain();
    options.top_p = 0.3F;
    Sampler sampler(options);
    float lowest = kInfinity;
    for (int i = 0; i < 800; ++i) {
        lowest = std::min(lowest, logits[static_cast<std::size_t>(sampler.sample(logits))]);
    }
    EXPECT_GE(lowest, logits[order[kept]]);           // nothing past the cut
    EXPECT_LE(lowest, logits[order[kept * 9 / 10]]);  // and the run is not cut short
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
    auto options = plain();
    options.temperature = 0.0F;
    Sampler sampler(options);
    EXPECT_EQ(sampler.sample(std::vector<float>{1.0F, 3.0F, 3.0F, 2.0F}), 1);
    EXPECT_EQ(sampler.sample(std::vector<float>{-5.0F, -5.0F}), 0);
}

TEST(Sampler, GreedyIgnoresCutsAndDrawsNothing) {
    auto options = plain();
    options.temperature = 0.0F;
    options.top_k = 1;
    Sampler sampler(options);
    const auto before = sampler.encode();
    EXPECT_EQ(sampler.sample(logits_of(kTen)), 1);
    EXPECT_EQ(sampler.encode(), before);
}

TEST(Sampler, AnyLogitsAreSurvived) {
    for (const float temperature : {0.0F, 0.8F}) {
        for (const std::uint32_t top_k : {0U, 2U}) {
            SamplerOptions options;
            options.temperature = temperature;
            options.top_k = top_k;
            options.seed = 3;
            options.repeat_penalty = 1.1F;
            Sampler sampler(options);
            sampler.accept(0);
            EXPECT_EQ(sampler.sample(std::vector<float>{}), 0);
            EXPECT_EQ(sampler.sample(std::vector<float>{kNan, kNan, kNan}), 0);
            EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -kInfinity, -kInfinity}), 0);
            EXPECT_EQ(sampler.sample(std::vector<float>{kNan, -kInfinity, -3.0F, kNan}), 2);
            EXPECT_EQ(sampler.sample(std::vector<float>{1.0F, kNan, kInfinity, 2.0F}), 2);
            EXPECT_EQ(sampler.sample(std::vector<float>{-3e38F, -3e38F, 3e38F}), 2);
        }
    }
}

TEST(Sampler, TinyTemperatureIsGreedy) {
    auto options = plain();
    options.temperature = 1e-30F;
    Sampler sampler(options);
    EXPECT_EQ(draw_many(sampler, logits_of(kTen), 100), (std::map<Token, int>{{1, 100}}));
}

TEST(Sampler, EveryChoiceIsATokenOfFiniteLogit) {
    EXPECT_TRUE(rc::check("the choice has a logit above -inf whenever there is one", [] {
        auto options = plain(*rc::gen::inRange<std::uint64_t>(1, 1000));
        options.temperature = static_cast<float>(*rc::gen::inRange(0, 30)) / 10.0F;
        options.top_k = *rc::gen::inRange<std::uint32_t>(0, 20);
        options.top_p = static_cast<float>(*rc::gen::inRange(0, 11)) / 10.0F;
        options.min_p = static_cast<float>(*rc::gen::inRange(0, 11)) / 10.0F;
        options.frequency_penalty = static_cast<float>(*rc::gen::inRange(-5, 5));
        const auto value = rc::gen::weightedOneOf<float>(
            {{6, rc::gen::map(rc::gen::inRange(-400, 400),
                              [](int v) { return static_cast<float>(v) / 10.0F; })},
             {1, rc::gen::element(kNan, kInfinity, -kInfinity, 3e38F, -3e38F)}});
        const auto logits = *rc::gen::container<std::vector<float>>(value);
        Sampler sampler(options);
        for (int i = 0; i < 5; ++i) {
            const auto token = static_cast<std::size_t>(sampler.sample(logits));
            const bool any =
                std::any_of(logits.begin(), logits.end(), [](float l) { return l > -kInfinity; });
            if (!any) {
                RC_ASSERT(token == 0U);
                continue;
            }
            RC_ASSERT(token < logits.size());
            RC_ASSERT(logits[token] > -kInfinity);
            sampler.accept(static_cast<Token>(token));
        }
    }));
}

TEST(Sampler, RepeatPenaltyPushesBothSignsDown) {
    auto options = plain();
    options.temperature = 0.0F;
    options.repeat_penalty = 2.0F;
    Sampler sampler(options);
    sampler.accept(0);
    EXPECT_EQ(sampler.sample(std::vector<float>{3.0F, 1.6F}), 1);    // 1.5 < 1.6
    EXPECT_EQ(sampler.sample(std::vector<float>{3.0F, 1.4F}), 0);    // 1.5 > 1.4
    EXPECT_EQ(sampler.sample(std::vector<float>{-1.0F, -1.9F}), 1);  // -2 < -1.9
    EXPECT_EQ(sampler.sample(std::vector<float>{-1.0F, -2.1F}), 0);
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
    for (const bool frequency : {false, true}) {
        auto options = plain();
        options.temperature = 0.0F;
        (frequency ? options.frequency_penalty : options.presence_penalty) = 1.0F;
        Sampler sampler(options);
        for (int i = 0; i < 3; ++i) sampler.accept(0);
        EXPECT_EQ(sampler.sample(std::vector<float>{5.0F, 3.9F}), frequency ? 1 : 0);
        EXPECT_EQ(sampler.sample(std::vector<float>{5.0F, 4.1F}), 1);
        EXPECT_EQ(sampler.sample(std::vector<float>{5.0F, 1.9F}), 0);
    }
}

TEST(Sampler, PenaltiesLookAtTheWindowOnly) {
    auto options = plain();
    options.temperature = 0.0F;
    options.presence_penalty = 10.0F;
    options.penalty_window = 2;
    Sampler sampler(options);
    const std::vector<float> logits = {3.0F, 2.0F, 1.0F, 0.0F};
    sampler.accept(0);
    sampler.accept(1);
    EXPECT_EQ(sampler.sample(logits), 2);
    sampler.accept(2);  // pushes 0 out
    EXPECT_EQ(sampler.sample(logits), 0);
}

TEST(Sampler, PenaltiesIgnoreTokensOutsideTheVocabulary) {
    auto options = plain();
    options.temperature = 0.0F;
    options.presence_penalty = 10.0F;
    Sampler sampler(options);
    sampler.accept(1000000);
    EXPECT_EQ(sampler.sample(std::vector<float>{1.0F, 2.0F}), 1);
}

TEST(Sampler, EqualSeedsDrawEqually) {
    Sampler a(plain(42));
    Sampler b(plain(42));
    Sampler c(plain(43));
    const auto logits = logits_of(kTen);
    int equal = 0;
    for (int i = 0; i < 200; ++i) {
        const Token token = a.sample(logits);
        ASSERT_EQ(b.sample(logits), token);
        equal += c.sample(logits) == token ? 1 : 0;
    }
    EXPECT_LT(equal, 100);
}

TEST(Sampler, GeneratorIsXoshiro256StarStar) {
    // First output for seed 1234 expanded through splitmix64, computed by hand from the definition
    // in arXiv 1805.01407: rotl(s1 * 5, 7) * 9. 1024 equal logits show its ten highest bits.
    std::uint64_t state = 1234;
    std::uint64_t words[2];
    for (auto& word : words) {
        state += 0x9E3779B97F4A7C15U;
        std::uint64_t z = state;
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
        word = z ^ (z >> 31U);
    }
    const std::uint64_t product = words[1] * 5;
    const std::uint64_t expected = (product << 7U | product >> 57U) * 9;
    Sampler sampler(plain(1234));
    EXPECT_EQ(sampler.sample(std::vector<float>(1024, 0.5F)), static_cast<Token>(expected >> 54U));
}

TEST(Sampler, SeedZeroComesFromTheSystem) {
    const Sampler a(plain(0));
    const Sampler b(plain(0));
    EXPECT_NE(a.seed(), 0U);
    EXPECT_NE(a.seed(), b.seed());
    EXPECT_EQ(Sampler(plain(a.seed())).encode(), a.encode());
}

TEST(Sampler, DecodedSamplerGoesOnWhereItStood) {
    auto options = plain(9);
    options.repeat_penalty = 1.3F;
    Sampler sampler(options);
    const auto logits = logits_of(kTen);
    for (int i = 0; i < 100; ++i) sampler.accept(sampler.sample(logits));
    options.seed = 77;  // the state's own seed counts
    auto restored = Sampler::decode(sampler.encode(), options);
    ASSERT_TRUE(restored.is_ok()) << restored.status().to_string();
    EXPECT_EQ(restored->seed(), 9U);
    for (int i = 0; i < 200; ++i) {
        const Token token = sampler.sample(logits);
        ASSERT_EQ(restored->sample(logits), token) << "draw " << i;
        sampler.accept(token);
        restored->accept(token);
    }
}

TEST(Sampler, DecodeFitsTheTokensIntoASmallerWindow) {
    Sampler sampler(plain(9));
    for (Token i = 0; i < 50; ++i) sampler.accept(i);
    auto options = plain(9);
    options.penalty_window = 4;
    auto restored = Sampler::decode(sampler.encode(), options);
    ASSERT_TRUE(restored.is_ok());
    Sampler expected(options);
    for (Token i = 46; i < 50; ++i) expected.accept(i);
    EXPECT_EQ(restored->encode(), expected.encode());
}

TEST(Sampler, DamagedStateIsRefused) {
    Sampler sampler(plain(9));
    for (Token i = 0; i < 5; ++i) sampler.accept(i);
    const auto good = sampler.encode();
    for (std::size_t size = 0; size < good.size(); ++size) {  // every cut
        const auto cut = Sampler::decode(std::span(good).first(size), plain());
        ASSERT_EQ(cut.status().code(), Code::corruption) << size;
    }
    auto longer = good;
    longer.push_back(std::byte{0});
    EXPECT_EQ(Sampler::decode(longer, plain()).status().code(), Code::corruption);

    auto version = good;
    version[0] = std::byte{9};
    EXPECT_EQ(Sampler::decode(version, plain()).status().code(), Code::incompatible);

    auto count = good;
    std::memset(count.data() + 44, 0xFF, 4);  // four thousand million tokens
    EXPECT_EQ(Sampler::decode(count, plain()).status().code(), Code::corruption);

    auto negative = good;
    std::memset(negative.data() + 48, 0xFF, 4);
    EXPECT_THAT(Sampler::decode(negative, plain()).status().to_string(), HasSubstr("token"));

    auto stuck = good;
    std::memset(stuck.data() + 12, 0, 32);
    EXPECT_THAT(Sampler::decode(stuck, plain()).status().to_string(), HasSubstr("all zero"));
}

TEST(SamplerOptions, EachIsCheckedAndNamed) {
    EXPECT_TRUE(SamplerOptions().validate().is_ok());
    const auto refused = [](auto change, std::string_view name) {
        SamplerOptions options;
        change(options);
        const Status status = options.validate();
        EXPECT_EQ(status.code(), Code::invalid_argument) << name;
        EXPECT_THAT(status.to_string(), HasSubstr(std::string(name)));
    };
    refused([](auto& o) { o.temperature = -0.1F; }, "temperature is -0.1");
    refused([](auto& o) { o.temperature = kNan; }, "temperature is nan");
    refused([](auto& o) { o.temperature = kInfinity; }, "temperature is inf");
    refused([](auto& o) { o.top_p = 1.5F; }, "top_p is 1.5");
    refused([](auto& o) { o.min_p = -1.0F; }, "min_p is -1");
    refused([](auto& o) { o.repeat_penalty = 0.0F; }, "repeat_penalty is 0");
    refused([](auto& o) { o.presence_penalty = 1000.0F; }, "presence_penalty is 1000");
    refused([](auto& o) { o.frequency_penalty = kNan; }, "frequency_penalty is nan");
    refused([](auto& o) { o.penalty_window = 1U << 30U; }, "penalty_window is 1073741824");
}

}  // namespace
}  // namespace stet::engine
