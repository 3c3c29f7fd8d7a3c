// Vectors of the recurrent kernels: 16 floats, whatever the machine's width, so that sums are made
// in the same order on all of them. Functions take references: passing such vectors by value would
// depend on the target.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "exec/recurrent/parts.h"

namespace stet::exec {

inline constexpr std::uint32_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntLanes = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

// The first `count` of a vector, zeros in the others; the same the other way round.
STET_INTO_CLONES void load(Lanes& v, const float* from, std::uint32_t count) {
    if (count >= kLanes) {
        std::memcpy(&v, from, sizeof(v));
    } else {
        v = Lanes{};
        std::memcpy(&v, from, count * sizeof(float));
    }
}
STET_INTO_CLONES void store(float* to, const Lanes& v, std::uint32_t count) {
    std::memcpy(to, &v, count >= kLanes ? sizeof(v) : count * sizeof(float));
}

STET_INTO_CLONES float total(const Lanes& v) {
    float sum[kLanes];
    std::memcpy(sum, &v, sizeof(sum));
    for (std::uint32_t width = kLanes / 2; width > 0; width /= 2) {
        for (std::uint32_t i = 0; i < width; ++i) sum[i] += sum[i + width];
    }
    return sum[0];
}

// x = e^x within 2 units in the last place, 0 <= result < inf. x = n ln 2 + r.
STET_INTO_CLONES void to_exp(Lanes& x) {
    constexpr float kMax = 88.0F;
    constexpr float kLog2e = 1.44269504F;
    constexpr float kLn2High = 0.693359375F;  // exact products with small integers
    constexpr float kLn2Low = -2.12194440e-4F;
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
    constexpr int kExponentBias = 127;
    constexpr int kExponentShift = 23;
    x = x > kMax ? Lanes{} + kMax : x;
    x = x < 1.0F - kMax ? Lanes{} + (1.0F - kMax) : x;
    const Lanes n = (x * kLog2e + kRound) - kRound;
    const Lanes r = (x - n * kLn2High) - n * kLn2Low;
    Lanes p = r * 1.9875691500e-4F + 1.3981999507e-3F;  // minimax on |r| <= ln 2 / 2
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    const IntLanes bits = (__builtin_convertvector(n, IntLanes) + kExponentBias) << kExponentShift;
    Lanes power;
    std::memcpy(&power, &bits, sizeof(power));
    x = p * power;
}

}  // namespace stet::exec
