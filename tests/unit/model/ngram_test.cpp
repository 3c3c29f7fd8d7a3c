// Rows of the n-gram table against the definition.
#include "model/ngram.h"

#include <gtest/gtest.h>

#include <vector>

namespace stet::model {
namespace {

NgramPlan plan_of(std::uint32_t size) {
    NgramPlan plan;
    plan.size = size;
    plan.end_token = 2;
    for (std::uint64_t i = 0; i < size; ++i) {
        plan.multipliers.push_back(0x123456789ABULL * (2 * i + 1));  // more than 32 bits
    }
    for (std::uint64_t i = 0; i < 2 * (size - 1); ++i) plan.heads.push_back({1000 * i, 97 + i});
    return plan;
}

std::vector<std::int32_t> rows_of(const NgramPlan& plan, std::vector<std::int32_t> history) {
    std::vector<std::int32_t> rows(plan.heads.size());
    ngram_rows(plan, history, history.size() - 1, rows.data());
    return rows;
}

// `tokens` newest first, as many as the longest n-gram has.
std::vector<std::int32_t> expected(const NgramPlan& plan,
                                   const std::vector<std::uint64_t>& tokens) {
    std::vector<std::int32_t> rows;
    for (std::size_t n = 2; n <= plan.size; ++n) {
        std::uint64_t hash = 0;
        for (std::size_t i = 0; i < n; ++i) hash ^= tokens[i] * plan.multipliers[i];
        for (std::size_t i = 2 * (n - 2); i < 2 * (n - 1); ++i) {
            rows.push_back(
                static_cast<std::int32_t>(plan.heads[i].offset + hash % plan.heads[i].vocabulary));
        }
    }
    return rows;
}

TEST(Ngrams, AreHashesOfTheLastTokens) {
    const NgramPlan plan = plan_of(4);
    EXPECT_EQ(rows_of(plan, {7, 5, 9, 11, 13}), expected(plan, {13, 11, 9, 5}));
}

TEST(Ngrams, BeforeTheFirstTokenAreEndTokens) {
    const NgramPlan plan = plan_of(4);
    EXPECT_EQ(rows_of(plan, {13}), expected(plan, {13, 2, 2, 2}));
    EXPECT_EQ(rows_of(plan, {11, 13}), expected(plan, {13, 11, 2, 2}));
}

TEST(Ngrams, AnEndTokenHidesWhatWasBefore) {
    const NgramPlan plan = plan_of(4);
    EXPECT_EQ(rows_of(plan, {5, 2, 11, 13}), expected(plan, {13, 11, 2, 2}));
    EXPECT_EQ(rows_of(plan, {5, 9, 2, 13}), expected(plan, {13, 2, 2, 2}));
    // The token itself may be one: what is before it counts.
    EXPECT_EQ(rows_of(plan, {5, 9, 11, 2}), expected(plan, {2, 11, 9, 5}));
}

}  // namespace
}  // namespace stet::model
