// Arithmetic of the recurrent kernels that compilers turn into vector code.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace stet::exec {

// Sums are kept in so many parts, whatever the vector width.
inline constexpr std::uint32_t kSumLanes = 16;

inline float total(const float* lanes) {
    float sum[kSumLanes];
    std::copy_n(lanes, kSumLanes, sum);
    for (std::uint32_t width = kSumLanes / 2; width > 0; width /= 2) {
        for (std::uint32_t i = 0; i < width; ++i) sum[i] += sum[i + width];
    }
    return sum[0];
}

// e^x within 2 units in the last place, 0 <= result < inf; without branches. x = n ln 2 + r.
inline float exp_of(float x) {
    constexpr float kMax = 88.0F;
    constexpr float kLog2e = 1.44269504F;
    constexpr float kLn2High = 0.693359375F;  // exact products with small integers
    constexpr float kLn2Low = -2.12194440e-4F;
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
    x = std::min(kMax, std::max(-kMax + 1.0F, x));
    const float n = (x * kLog2e + kRound) - kRound;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    float p = 1.9875691500e-4F;  // minimax on |r| <= ln 2 / 2
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

}  // namespace stet::exec
